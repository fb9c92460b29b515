"""How agents work on one task."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from marti_ext.agent import Agent
from marti_ext.types import Task


class Workflow(ABC):
    """Control flow over agents. Subclasses are frozen dataclasses: their options are their fields.

    One object serves all episodes at once, so `run` keeps its state in local variables. Calls that do not need each
    other go through asyncio.gather or a task group.
    """

    @abstractmethod
    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        """Work on one task and return the team's answer. Draw chance from `rng` alone: it is the episode's own."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise UserError, before anything runs, for tasks that this workflow cannot work on."""
        del tasks
