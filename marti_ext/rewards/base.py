"""Who deserves what for an episode."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from marti_ext.types import Episode, Task


class RewardFunction(ABC):
    """Sets `turn.reward` (None, as it starts, keeps a turn out of training and statistics).

    Subclasses are frozen dataclasses: their options are their fields. With `needs_label` every task must have one.
    """

    needs_label: ClassVar[bool] = False

    @abstractmethod
    def assign(self, episodes: Sequence[Episode]) -> None:
        """Reward the turns of all finished episodes of one batch."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise UserError, before anything runs, for tasks that this reward cannot judge."""
        del tasks
