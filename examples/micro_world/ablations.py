"""Variants of CoMAS as plug-ins: with a judge apart, with some rows left out.

In a config: `reward: {name: "examples/micro_world/ablations.py:PartialReward", trained: [solution]}`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.rewards.comas import ZeroSumReward
from marti_ext.types import Episode, Task, Turn
from marti_ext.workflows.comas import CoMAS


@dataclass(frozen=True)
class CoMASWithJudge(CoMAS):
    """CoMAS in which the last agent does all the scoring and nothing else."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        *team, judge = agents
        return await _Judged(**vars(self), judge=judge).run(task, team, rng)


@dataclass(frozen=True, kw_only=True)
class _Judged(CoMAS):
    """One episode of it: who judges is known only then."""

    judge: Agent

    async def _score(self, agent: Agent, task: Task, solution: Turn, evaluation: Turn | None = None) -> None:
        await super()._score(self.judge, task, solution, evaluation)


@dataclass(frozen=True)
class PartialReward(ZeroSumReward):
    """The reward of CoMAS, but only turns of the interactions `trained` are trained on."""

    trained: tuple[str, ...] = ("solution",)

    def assign(self, episodes: Sequence[Episode]) -> None:
        super().assign(episodes)
        for turn in (turn for episode in episodes for turn in episode.turns):
            if turn.interaction not in self.trained:
                turn.reward = None
