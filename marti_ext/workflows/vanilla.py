"""No discussion."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.types import Task
from marti_ext.workflows.base import Workflow


@dataclass(frozen=True)
class Vanilla(Workflow):
    """Every agent answers the task alone; the answer is the first agent's."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = await asyncio.gather(*(agent.reply(task.prompt) for agent in agents))
        return replies[0]
