"""What is said in the laboratory. Prompts are the library's own; each of their fixed sentences is one token.

So CoMAS runs unchanged, and yet a prompt is some twenty tokens long and a reply two to seven.
"""

import re

from ablations import alone_prompt
from additions import reply

from marti_ext.types import Completion, Task, Turn
from marti_ext.workflows import comas_prompts as prompts

OBJECTION = "Wrong."
_HOLE = "\0"


def solution_prompt(task: Task) -> str:
    """As CoMAS asks in its first round."""
    return prompts.solution_prompt(task, [])


def evaluation_prompt(task: Task, solution: str) -> str:
    """As CoMAS asks in its first round."""
    return prompts.evaluation_prompt(task, [], turn(solution))


def scoring_prompt(task: Task, solution: str, critique: str | None) -> str:
    """As CoMAS asks; without a critique, as the variant without evaluation does."""
    if critique is None:
        return alone_prompt(task, solution)
    [message] = prompts.scoring_prompt(task, turn(solution), turn(critique))
    return message.content


def solution(answer: str) -> str:
    """A solution as the math verifier reads it."""
    return reply(answer)


def critique(objects: bool) -> str:
    """A critique as CoMAS reads it."""
    return OBJECTION if objects else prompts.NO_FLAW


def scoring(score: int) -> str:
    """A judgement as CoMAS reads it."""
    return f"<score>{score}</score>"


def words() -> list[str]:
    """The tokens of more than one character."""
    task = Task("", _HOLE)
    asked = (
        solution_prompt(task),
        evaluation_prompt(task, _HOLE),
        scoring_prompt(task, _HOLE, _HOLE),
        scoring_prompt(task, _HOLE, None),
    )
    said = (solution(_HOLE), OBJECTION, prompts.NO_FLAW, *re.split(r"(?<=>)\d", scoring(prompts.HIGH)))
    pieces = {piece for text in (*asked, *said) for piece in text.split(_HOLE) if len(piece) > 1}
    return sorted(pieces, key=lambda piece: (-len(piece), piece))


def turn(text: str) -> Turn:
    """What somebody has said, without a model that said it."""
    return Turn("", "", "", 0, (), Completion(text), text=text)
