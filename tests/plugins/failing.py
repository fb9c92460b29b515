"""A workflow that fails."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.types import Task
from marti_ext.workflows.base import Workflow


@dataclass(frozen=True)
class Failing(Workflow):
    """Fails on every `every`-th word problem, by the number in its id."""

    every: int = 1

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = [await agent.reply(task.prompt) for agent in agents]
        if int(task.id.rpartition("-")[2]) % self.every == 0:
            raise RuntimeError("boom")
        return replies[0]
