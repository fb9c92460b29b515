"""What is said in the laboratory. Prompts are the library's own; each of their fixed sentences is one token.

So CoMAS runs unchanged, and yet a prompt is some twenty tokens long and a reply two to seven.
"""

import re
from collections.abc import Sequence

from additions import reply

from marti_ext.types import Completion, Task, Turn
from marti_ext.workflows import comas_prompts as prompts
from marti_ext.workflows import self_judge
from marti_ext.workflows.aggregation import quoted
from marti_ext.workflows.debate import REVISE

OBJECTION = "Wrong."
_HOLE = "\0"


def solution_prompt(task: Task) -> str:
    """As CoMAS asks in its first round."""
    return prompts.solution_prompt(task, [])


def evaluation_prompt(task: Task, solution: str, *, with_verdict: bool = False) -> str:
    """As CoMAS asks in its first round; `with_verdict` as it does where nobody scores."""
    return prompts.evaluation_prompt(task, [], turn(solution), with_verdict=with_verdict)


def scoring_prompt(task: Task, solution: str, critique: str | None) -> str:
    """As CoMAS asks; without a critique, as it does where nobody evaluates."""
    [message] = prompts.scoring_prompt(task, turn(solution), None if critique is None else turn(critique))
    return message.content


def revision_prompt(task: Task, own: str, others: Sequence[str]) -> str:
    """As a debate asks in its second round; a conversation is its texts one after the other."""
    return task.prompt + own + REVISE.format(replies=quoted(others), problem=task.prompt)


def self_judging_prompt(task: Task, answer: str) -> str:
    """As one is asked who judges an own answer."""
    return self_judge.JUDGE.format(problem=task.prompt, reply=answer, low=self_judge.LOW, high=self_judge.HIGH)


def solution(answer: str) -> str:
    """A solution as the math verifier reads it."""
    return reply(answer)


def critique(objects: bool) -> str:
    """A critique as CoMAS reads it."""
    return OBJECTION if objects else prompts.NO_FLAW


def verdict(objects: bool) -> str:
    """A verdict as CoMAS reads it where nobody scores."""
    return f"<verdict>{'incorrect' if objects else 'correct'}</verdict>"


def scoring(score: int) -> str:
    """A judgement as CoMAS reads it."""
    return f"<score>{score}</score>"


def words() -> list[str]:
    """The tokens of more than one character."""
    task = Task("", _HOLE)
    asked = (
        solution_prompt(task),
        evaluation_prompt(task, _HOLE),
        evaluation_prompt(task, _HOLE, with_verdict=True),
        scoring_prompt(task, _HOLE, _HOLE),
        scoring_prompt(task, _HOLE, None),
        revision_prompt(task, _HOLE, [_HOLE]),
        revision_prompt(task, _HOLE, [_HOLE, _HOLE]),
        self_judging_prompt(task, _HOLE),
    )
    judgements = [say(objects) for say in (critique, verdict) for objects in (True, False)]
    said = (solution(_HOLE), *judgements, *re.split(r"(?<=>)\d", scoring(prompts.HIGH)))
    pieces = {piece for text in (*asked, *said) for piece in text.split(_HOLE) if len(piece) > 1}
    return sorted(pieces, key=lambda piece: (-len(piece), piece))


def turn(text: str) -> Turn:
    """What somebody has said, without a model that said it."""
    return Turn("", "", "", 0, (), Completion(text), text=text)
