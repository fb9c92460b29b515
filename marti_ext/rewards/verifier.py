"""The rule-checked answer as reward."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from marti_ext.rewards.base import RewardFunction
from marti_ext.types import Episode, Task, Turn
from marti_ext.verifiers.kinds import verifier_for


@dataclass(frozen=True)
class VerifierReward(RewardFunction):
    """1 for a right answer, 0 for a wrong or missing one, to each turn of the named interactions.

    What could not be graded (no label, a time-out, a failed verifier, no room to answer) gets no reward.
    """

    needs_label: ClassVar[bool] = True
    interactions: tuple[str, ...] = ("solution",)

    def assign(self, episodes: Sequence[Episode]) -> None:
        graded = [(e.task, t) for e in episodes for t in e.turns if t.interaction in self.interactions]
        with ThreadPoolExecutor() as threads:  # verifiers wait for workers of their own
            list(threads.map(lambda pair: self._grade(*pair), graded))

    def check(self, tasks: Sequence[Task]) -> None:
        for kind in {task.kind for task in tasks}:
            verifier_for(kind)

    def _grade(self, task: Task, turn: Turn) -> None:
        if turn.completion.silent:
            return
        turn.score = verifier_for(task.kind).verify(task, turn.completion.text)
        if turn.score.status in ("ok", "unparsed", "truncated"):
            turn.reward = turn.score.value
