"""Self-consistency as a majority vote."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Task
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.verifiers.votes import majority
from marti_ext.workflows.aggregation import independent
from marti_ext.workflows.base import Workflow


@dataclass(frozen=True)
class Vote(Workflow):
    """`samples` independent replies; the answer that most of them give wins (arXiv:2203.11171).

    Answers are the same if the verifier of the task's kind says so: 0.5 and 1/2 are one answer. A reply without an
    answer has no vote; a tie goes to the answer that came first. Given is the first reply with the winning answer.
    """

    samples: int = 5

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UserError(f"vote: samples is {self.samples}, use 1 or more")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = await independent(task, agents, self.samples)
        # In a thread: the verifier may wait for a process of its own.
        winner = await asyncio.to_thread(majority, verifier_for(task.kind), task, replies)
        return replies[winner or 0]

    def check(self, tasks: Sequence[Task]) -> None:
        for kind in {task.kind for task in tasks}:
            verifier_for(kind)
