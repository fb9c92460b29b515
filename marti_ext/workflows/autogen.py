"""An assistant and a user proxy in conversation."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Message, Task
from marti_ext.workflows.aggregation import NO_ANSWER
from marti_ext.workflows.base import Workflow

ASSISTANT = """You are an assistant who solves the user's problem by careful reasoning. Nothing that you write is \
executed, and no tool is at hand: do not claim to have run or looked up anything. Give the final answer in the form \
that the user asks for. When the problem is solved, end with a line that holds the single word TERMINATE."""
NO_CODE = " Do not write any program code."
OTHER_SIDE = """I asked:
{problem}

The reply was:
{reply}"""

# On a line of its own, perhaps in Markdown's dress or with a full stop; never within a sentence.
_TERMINATE = re.compile(r"^[ \t*`_]*TERMINATE[ \t\r*`_.]*$", re.MULTILINE)


@dataclass(frozen=True)
class AutoGen(Workflow):
    """The first agent is the assistant, the last the user proxy (arXiv:2308.08155), both of one model if it is alone.

    The proxy has no instruction and sees the conversation from the other side, with the roles swapped. It ends after
    `turns` replies of the assistant, or when one of the two writes TERMINATE on a line of its own. Code is not
    executed. The answer is the assistant's last message that says anything. `forbid_code` also forbids to write any,
    as MASLab does, with which the CoMAS paper (arXiv:2510.08529) evaluates: programming tasks can then hardly be
    answered, which goes far to explain the low figures there of untrained models (39.6 on HumanEval).
    """

    turns: int = 3
    forbid_code: bool = False

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise UserError(f"autogen: turns is {self.turns}, use 1 or more")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        assistant, proxy = agents[0], agents[-1]
        instruction = Message("system", ASSISTANT + (NO_CODE if self.forbid_code else ""))
        to_assistant, to_proxy = [instruction, Message("user", task.prompt)], list[Message]()
        answer = ""
        for turn in range(self.turns):
            words = await assistant.reply(*to_assistant, interaction="assistant", round=turn)
            answer = _TERMINATE.sub("", words).strip() or answer
            if _TERMINATE.search(words) or turn == self.turns - 1:
                break
            heard = words or NO_ANSWER
            # From the other side the task is the proxy's own; most templates want a user to speak first.
            to_proxy.append(
                Message("user", heard if to_proxy else OTHER_SIDE.format(problem=task.prompt, reply=heard))
            )
            back = await proxy.reply(*to_proxy, interaction="user_proxy", round=turn)
            if _TERMINATE.search(back):
                break
            to_proxy.append(Message("assistant", back or NO_ANSWER))
            to_assistant += [Message("assistant", heard), Message("user", back or NO_ANSWER)]
        return answer
