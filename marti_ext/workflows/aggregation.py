"""The last step of a set-up: one agent turns several replies into one."""

import asyncio
from collections.abc import Sequence

from marti_ext.agent import Agent
from marti_ext.types import Task

AGGREGATE = """{problem}

These replies to the problem were given so far. Each of them may be right or wrong.

{replies}

Check the replies against the problem and against each other. Then write one final reply to the problem yourself: \
complete, and in exactly the form that the problem asks for, since only your reply will be read."""

NO_ANSWER = "(no answer)"  # what others are shown of an empty reply


async def aggregate(task: Task, agent: Agent, replies: Sequence[str], *, round: int) -> str:
    """One call that reads all replies and gives the final one."""
    prompt = AGGREGATE.format(problem=task.prompt, replies=quoted(replies))
    return await agent.reply(prompt, interaction="aggregation", round=round)


def quoted(replies: Sequence[str]) -> str:
    """Replies one below the other, each between marks that stand in none of them."""
    bar = "---"
    while any(f"{bar} reply" in reply for reply in replies):
        bar += "-"
    return "\n\n".join(
        f"{bar} reply {number} {bar}\n{reply.strip() or NO_ANSWER}\n{bar} reply {number} ends {bar}"
        for number, reply in enumerate(replies, start=1)
    )


async def independent(task: Task, agents: Sequence[Agent], count: int) -> list[str]:
    """`count` replies at once; with fewer agents they take turns."""
    return await asyncio.gather(*(agents[i % len(agents)].reply(task.prompt) for i in range(count)))
