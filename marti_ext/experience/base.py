"""From rewarded episodes to training rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from marti_ext.types import Episode, Floats, Sample

ReferenceLogProbs = Callable[[str, Sequence[Sample]], list[Floats]]
"""(policy, samples) -> for each sample (T,): log-probs under the frozen initial policy, 0 off the action mask."""


class ExperienceMaker(ABC):
    """Makes each policy's training rows from one batch of episodes; never mixes the statistics of two policies.

    Subclasses are frozen dataclasses: their options are their fields. The trainer needs not be known here: one
    implementation serves them all.
    """

    gives_pairs: ClassVar[bool] = False
    """Whether rows come in pairs, for training.loss dpo."""

    @property
    def needs_reference(self) -> bool:
        """Whether `make` asks for reference log-probs, so that trainers keep the initial weights."""
        return False

    @abstractmethod
    def make(self, episodes: Sequence[Episode], reference: ReferenceLogProbs) -> Mapping[str, list[Sample]]:
        """{policy: rows with advantages}; a policy without rows is absent."""
