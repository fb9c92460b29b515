"""Several attempts, and one call that makes an answer of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Task
from marti_ext.workflows.aggregation import aggregate, independent
from marti_ext.workflows.base import Workflow


@dataclass(frozen=True)
class Consistency(Workflow):
    """`samples` independent replies, then the first agent reads them all and writes the answer.

    This is self-consistency as MASLab has it, with which the CoMAS paper (arXiv:2510.08529) evaluates. As first
    published (arXiv:2203.11171) it is a majority vote: `vote`.
    """

    samples: int = 5

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UserError(f"consistency: samples is {self.samples}, use 1 or more")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = await independent(task, agents, self.samples)
        return await aggregate(task, agents[0], replies, round=1)
