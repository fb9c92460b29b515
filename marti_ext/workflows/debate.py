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

    With fewer agents than debaters they take turns. `others` lets each read only so many of the others, drawn anew
    and in random order every time (null: all, in order). Without `aggregate` the first debater's last reply is the
    answer. MAPoRL (arXiv:2502.18439) in the CoMAS paper: debaters 4, rounds 2, others 2, aggregate false.
    """

    debaters: int = 3
    rounds: int = 2
    others: int | None = None
    aggregate: bool = True

    def __post_init__(self) -> None:
        if self.debaters < 2:
            raise UserError(f"debate: debaters is {self.debaters}, use 2 or more: one has nobody to read")
        if self.rounds < 1:
            raise UserError(f"debate: rounds is {self.rounds}, use 1 or more")
        if self.others is not None and not 1 <= self.others < self.debaters:
            raise UserError(f"debate: others is {self.others}, use 1 to {self.debaters - 1}, or null for all of them")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        replies = await independent(task, agents, self.debaters)
        for round in range(1, self.rounds):
            replies = await asyncio.gather(
                *(
                    agents[i % len(agents)].reply(
                        Message("user", task.prompt),
                        Message("assistant", own or NO_ANSWER),
                        REVISE.format(replies=quoted(self._read(replies, i, rng)), problem=task.prompt),
                        round=round,
                    )
                    for i, own in enumerate(replies)
                )
            )
        return await aggregate(task, agents[0], replies, round=self.rounds) if self.aggregate else replies[0]

    def _read(self, replies: Sequence[str], own: int, rng: random.Random) -> list[str]:
        """The replies that the debater at place `own` gets to read."""
        others = [*replies[:own], *replies[own + 1 :]]
        return others if self.others is None else rng.sample(others, self.others)
