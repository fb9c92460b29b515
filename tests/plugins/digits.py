"""A reward of a user's own, in a file of their own: the share of digits in a solution."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.rewards.base import RewardFunction
from marti_ext.types import Episode


@dataclass(frozen=True)
class DigitShare(RewardFunction):
    agents: tuple[str, ...] = ()  # whom to reward; nobody named: everybody
    seconds: float = 0.0  # to spend, so that a test can stop a run in the middle

    def assign(self, episodes: Sequence[Episode]) -> None:
        time.sleep(self.seconds)
        for turn in (t for e in episodes for t in e.turns):
            if not self.agents or turn.agent in self.agents:
                turn.reward = sum(c.isdigit() for c in turn.text) / max(1, len(turn.text))


@dataclass(frozen=True)
class OddReward(RewardFunction):
    """Gives what is no reward."""

    gives: str = "nan"

    def assign(self, episodes: Sequence[Episode]) -> None:
        for turn in (t for e in episodes for t in e.turns):
            turn.reward = float(self.gives) if self.gives != "text" else self.gives
