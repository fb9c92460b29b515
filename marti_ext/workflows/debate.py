"""Agents answer, read each other, and answer again."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Message, Task
from marti_ext.workflows.aggregation import NO_ANSWER, aggregate, independent, quoted
from marti_ext.workflows.base import Workflow

REVISE = """Others worked on the same problem. Their replies:

{replies}

Compare them with yours, correct whichever is wrong, and reply to the problem once more: complete, and in the form \
that it asks for. The problem again:

{problem}"""


@dataclass(frozen=True)
class Debate(Workflow):
    """`debaters` answer; in each further round every one sees its own last reply and the others' and answers anew; at
    the end the first agent makes one answer of the last replies (arXiv:2305.14325).

    With fewer agents than debaters they take turns.
    """

    debaters: int = 3
    rounds: int = 2

    def __post_init__(self) -> None:
        if self.debaters < 2:
            raise UserError(f"debate: debaters is {self.debaters}, use 2 or more: one has nobody to read")
        if self.rounds < 1:
            raise UserError(f"debate: rounds is {self.rounds}, use 1 or more")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = await independent(task, agents, self.debaters)
        for round in range(1, self.rounds):
            replies = await asyncio.gather(
                *(
                    agents[i % len(agents)].reply(
                        Message("user", task.prompt),
                        Message("assistant", own or NO_ANSWER),
                        REVISE.format(replies=quoted(replies[:i] + replies[i + 1 :]), problem=task.prompt),
                        round=round,
                    )
                    for i, own in enumerate(replies)
                )
            )
        return await aggregate(task, agents[0], replies, round=self.rounds)
