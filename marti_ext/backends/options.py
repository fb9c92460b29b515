"""What backends are told. Light to import: `marti-ext train --help` reads it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Precision = Literal["fp32", "bf16"]


class Lora(BaseModel):
    """A low-rank adapter (Hu et al., arXiv:2106.09685) on a base that policies share, in place of own weights."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    rank: int = Field(16, ge=1)
    """Rank of the update."""
    alpha: int = Field(32, ge=1)
    """The update is scaled by alpha / rank."""
    target_modules: str | list[str] = "all-linear"
    """Modules that get an adapter, as in peft."""


class ModelOptions(BaseModel):
    """Weights in Hugging Face format, in this process."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    model: str
    """A folder or a hub name."""
    lora: Lora | None = None
    """Train a low-rank adapter; policies with the same model and a lora share one frozen base."""
    precision: Precision = "fp32"
    """Arithmetic of rollout and training; the weights themselves stay float32."""
    device: str = "auto"
    """cpu, cuda, mps; auto takes the best there is."""
    context_window: int | None = Field(None, ge=2)
    """Prompt and reply together, in tokens; at most, and by default, the model's own."""
    template_arguments: dict[str, Any] = {}
    """Arguments of the tokenizer's chat template, for example {enable_thinking: false}."""
    max_batch_size: int = Field(64, ge=1)
    """Rows of one generation batch."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
