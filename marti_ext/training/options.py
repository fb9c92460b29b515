"""What a trainer is told. Light to import: `marti-ext train --help` reads it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


class TrainingOptions(BaseModel):
    """PPO-style updates of one policy (REINFORCE++ has no critic)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    learning_rate: float = Field(1e-6, gt=0, le=1)
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the learning rate goes on after warm-up; cosine falls to min_learning_rate_ratio and stays there."""
    warmup_updates: int = Field(0, ge=0)
    """Optimiser updates over which the learning rate rises from 0."""
    total_updates: Count | None = None
    """Optimiser updates over which a cosine schedule falls, of this policy; needed for cosine, since how many rows
    a step brings is not known beforehand."""
    min_learning_rate_ratio: NonNegative = 0.1
    """Where cosine ends, as a share of learning_rate."""
    batch_size: Count = 64
    """Rows of one optimiser update at the most; a step's rows are dealt into batches of equal size."""
    micro_batch_size: Count = 4
    """Rows of one forward and backward pass: less memory, the same gradient."""
    max_epochs: Count = 1
    """Passes over the rows of a step (OpenRLHF's max_epochs)."""
    loss: Literal["clip", "dpo"] = "clip"
    """clip: PPO's clipped objective, on advantages · dpo: direct preference optimisation against the frozen initial
    policy, on the pairs of experience preference_pairs (backend local)."""
    dpo_beta: Positive = 0.1
    """How strongly dpo holds the policy to the initial one."""
    clip_eps: Positive = 0.2
    """How far the ratio of new to old probability may go before a token stops pushing further."""
    kl_loss_coef: NonNegative = 0.0
    """Weight of the KL divergence from the frozen initial policy as a loss. (In the reward: experience.kl_coef.)"""
    kl_loss_estimator: Literal["k1", "k2", "k3"] = "k2"
    """Per-token estimator of that loss. On-policy, k2 has the gradient of the reverse KL; k1 has none on average."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    weight_decay: NonNegative = 0.0
    """AdamW's weight decay."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """AdamW's moving averages."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    @model_validator(mode="after")
    def _cosine_has_an_end(self) -> "TrainingOptions":
        if self.schedule == "cosine" and self.total_updates is None:
            raise ValueError("schedule cosine needs total_updates (optimiser updates of this policy in the whole run)")
        return self

    @model_validator(mode="after")
    def _dpo_has_its_own_kl(self) -> "TrainingOptions":
        if self.loss == "dpo" and self.kl_loss_coef:
            raise ValueError("loss dpo holds to the initial policy by dpo_beta: leave out kl_loss_coef")
        return self

    @property
    def needs_reference(self) -> bool:
        """Whether an update asks for log-probs of the frozen initial policy."""
        return self.loss == "dpo" or self.kl_loss_coef > 0
