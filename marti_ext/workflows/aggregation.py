"""The last step of a set-up: one agent turns several replies into one."""

import asyncio
from collections.abc import Sequence

from marti_ext.agent import Agent
from marti_ext.types import Task

AGGREGATE = """{problem}

{count} replies to this problem were written independently. Each may be right or wrong.

{replies}

Check the replies against the problem and against each other. Then write one final reply to the problem yourself: \
complete, and in exactly the form that the problem asks for, since only your reply will be read."""


async def aggregate(task: Task, agent: Agent, replies: Sequence[str], *, round: int) -> str:
    """One call that reads all replies and gives the final one."""
    prompt = AGGREGATE.format(problem=task.prompt, count=len(replies), replies=quoted(replies))
    return await agent.reply(prompt, interaction="aggregation", round=round)


def quoted(replies: Sequence[str]) -> str:
    """Replies one below the other, each between marks of its own."""
    return "\n\n".join(
        f"--- reply {number} ---\n{reply.strip() or '(no answer)'}\n--- end of reply {number} ---"
        for number, reply in enumerate(replies, start=1)
    )


async def independent(task: Task, agents: Sequence[Agent], count: int) -> list[str]:
    """`count` replies at once; with fewer agents they take turns."""
    return await asyncio.gather(*(agents[i % len(agents)].reply(task.prompt) for i in range(count)))
