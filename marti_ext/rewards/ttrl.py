"""The majority's answer as reward."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.verifier import VerifierReward
from marti_ext.types import Episode, Task, Turn
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.verifiers.votes import majority


@dataclass(frozen=True)
class TTRLReward(RewardFunction):
    """1 for the answer that most replies to a task give, 0 for another or none: test-time reinforcement learning
    (arXiv:2504.16084). No label is looked at.

    All replies of a batch to one task vote, whichever agent, copy or round they are of: use rollout.copies_per_task.
    Answers are the same if the verifier of the task's kind says so; a tie goes to the answer that came first, by
    copy, round and place. Only an answer that the verifier would accept has a vote: one without the box that it asks
    for has none. The winner then grades every reply as a label would, so that what cannot be graded gets no reward.

    A task of another kind than `vote_kinds`, or without any vote, is unvotable: its replies get `dummy_reward` (as in
    the CoMAS paper, arXiv:2510.08529, section 4.1; under a batch mean it is not neutral) or, with `mask`, nothing.
    """

    interactions: tuple[str, ...] = ("solution",)
    vote_kinds: tuple[str, ...] = ("math",)
    unvotable: Literal["dummy", "mask"] = "dummy"
    dummy_reward: float = 0.5

    def assign(self, episodes: Sequence[Episode]) -> None:
        by_task: defaultdict[str, list[Episode]] = defaultdict(list)
        for episode in sorted(episodes, key=lambda e: e.copy):
            by_task[episode.task.id].append(episode)
        with ThreadPoolExecutor() as threads:  # verifiers wait for workers of their own
            labels = list(threads.map(self._pseudo_label, by_task.values()))
        votable: list[Episode] = []
        for group, label in zip(by_task.values(), labels, strict=True):
            if label:
                votable += [replace(episode, task=replace(episode.task, label=label)) for episode in group]
            elif self.unvotable == "dummy":
                for turn in self._replies(group):
                    turn.reward = self.dummy_reward
        VerifierReward(self.interactions).assign(votable)

    def check(self, tasks: Sequence[Task]) -> None:
        for kind in self.vote_kinds:
            verifier_for(kind)

    def _pseudo_label(self, episodes: Sequence[Episode]) -> str:
        """The winning answer, "" where nothing can be voted on."""
        task = episodes[0].task
        if task.kind not in self.vote_kinds:
            return ""
        verifier = verifier_for(task.kind)
        texts = [turn.completion.text for turn in self._replies(episodes)]
        votes = [text for text in texts if _counts(verifier, task, text)]
        winner = majority(verifier, task, votes)
        return "" if winner is None else verifier.read(task, votes[winner])

    def _replies(self, episodes: Sequence[Episode]) -> list[Turn]:
        turns = [turn for episode in episodes for turn in episode.turns]
        return [turn for turn in turns if turn.interaction in self.interactions and not turn.completion.silent]


def _counts(verifier: Verifier, task: Task, text: str) -> bool:
    """Whether the answer of a text can be graded, and can grade others: by itself it is right."""
    answer = verifier.read(task, text)
    return bool(answer) and verifier.verify(replace(task, label=answer), text).value == 1.0
