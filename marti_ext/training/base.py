"""Stage 3, agent training: what the loop asks of a trainer, wherever its weights live."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marti_ext.backends.base import TokenBackend
from marti_ext.types import Floats, Sample

Metrics = dict[str, Any]
# What a trainer goes on from, beside the weights in a policy's folder: the local one's file, DeepSpeed's folder.
LOCAL_STATE, DEEPSPEED_STATE = "trainer.pt", "_actor"


class NonFiniteError(RuntimeError):
    """A loss, a gradient or a weight is not a number; what is saved is from before."""


class PolicyTrainer(ABC):
    """Trains one policy. `backend` samples from the weights that `step` moves."""

    backend: TokenBackend
    alone: bool = True
    """Whether no other policy trains at the same time, because they share a device."""

    @abstractmethod
    def step(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        """Train on one step's rows: metrics, equal for equal rows in any order.

        Without rows nothing moves: weights, optimiser and schedule. Raises NonFiniteError.
        """

    def publish(self) -> None:
        """Let `backend` sample from the weights as they are now, where it does not share them. Called after `step`."""
        return

    @abstractmethod
    def reference_log_probs(self, samples: Sequence[Sample]) -> list[Floats]:
        """For each row (T,): log-probs under the frozen initial policy, in nats, 0 off the action mask."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights (a Hugging Face folder), optimiser and schedule."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Take back what `save` wrote."""
