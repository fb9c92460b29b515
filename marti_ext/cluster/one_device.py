"""The memory of a run in one process, with `backend: local`."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from marti_ext.cluster.memory import GIB
from marti_ext.cluster.shapes import ModelShape, adapter_parameters
from marti_ext.config import Config, HFPolicy
from marti_ext.progress import say, show_table


@dataclass(frozen=True)
class Held:
    """What one policy keeps for the whole run, in bytes: float32 throughout, AdamW's two moments as its optimizer."""

    trained: int  # parameters
    weights: float
    gradients: float
    optimizer: float
    reference: float

    @property
    def all(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.reference


def held(config: Config, shapes: Mapping[str, ModelShape], *, needs_reference: bool) -> dict[str, Held]:
    """{policy: what it keeps}; a base that adapters share is counted with the first of them."""
    training = {agent.policy for agent in config.agents if agent.trainable}
    bases: set[tuple[str, str]] = set()
    found = {}
    for name, shape in shapes.items():
        policy = config.policies[name]
        assert isinstance(policy, HFPolicy)
        base, reference = shape.parameters, 0
        if policy.lora is None:
            own = base
            if name in training and (needs_reference or policy.training.kl_loss_coef > 0):
                reference = base
        else:  # the base itself is the reference
            own = adapter_parameters(policy.model, policy.lora, trust_remote_code=policy.trust_remote_code)
            base = own if (policy.model, policy.device) in bases else base + own
            bases.add((policy.model, policy.device))
        trained = own if name in training else 0
        found[name] = Held(trained, 4.0 * base, 4.0 * trained, 8.0 * trained, 4.0 * reference)
    return found


def show(config: Config, shapes: Mapping[str, ModelShape], console: Console, *, needs_reference: bool) -> None:
    """Print it."""
    policies = held(config, shapes, needs_reference=needs_reference)
    table = Table("policy", title="Memory of this process's device, GiB")
    for column in ("parameters", "trained", "weights", "gradients", "optimizer", "reference", "all"):
        table.add_column(column, justify="right")
    for name, one in policies.items():
        sizes = (one.weights, one.gradients, one.optimizer, one.reference, one.all)
        table.add_row(
            name, f"{shapes[name].parameters:,}", f"{one.trained:,}", *(f"{size / GIB:.2f}" for size in sizes)
        )
    show_table(console, table)
    say(
        console,
        f"together     {sum(one.all for one in policies.values()) / GIB:.2f} GiB; activations and the cache of "
        "generation come on top",
    )
