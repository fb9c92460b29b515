"""Grade a multiple-choice answer: the last explicit statement counts, and nothing is guessed."""

import re
from collections.abc import Sequence

from marti_ext.thinking import spoken
from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math.extract import find_answer

LETTERS = "ABCDEFGHIJ"

# A letter, dressed at most in brackets, dollars, stars or \text{}, that no further letter or digit follows.
_DRESS = r"[\s*_$`\"'({\[]|\\(?:text|mathrm|mathbf|textbf)\s*"
_LETTER = rf"(?:{_DRESS}){{0,8}}([A-Ja-j])(?![A-Za-z0-9'’])"
_STATEMENT = re.compile(
    rf"(?:answer|antwort|choice|option)(?:\s+(?:is|lautet|ist))?\s{{0,3}}[*_`\"']{{0,3}}\s{{0,3}}(?::|is\b|=){{1,2}}{_LETTER}",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"{_LETTER}(?:[\s*_$`\"').}}\]]){{0,8}}")
_LABELLED = re.compile(r"\(?([A-Ja-j])[).:](?:\s.*)?", re.DOTALL)


class ChoiceVerifier(Verifier):
    r"""1.0 where the reply's letter is `task.label`.

    A letter is read from the last `\boxed{}`, else from the last "Answer: B" or "the answer is (B)", else from a last
    line that is nothing but a letter; a box may also hold the text of one option. `task.metadata["choices"]`, where
    given, says how many options there are (else ten). Status: "no_label", "truncated" (cut in a box or in thinking),
    "unparsed" (no statement; letters that merely occur are none).
    """

    def verify(self, task: Task, text: str) -> Score:
        label = task.label.strip().upper()
        if len(label) != 1 or label not in _letters(task):
            return Score(0.0, status="no_label")
        if spoken(text) is None or find_answer(text).source == "cut":
            return Score(0.0, status="truncated")
        letter = self.read(task, text)
        return Score(float(letter == label), letter) if letter else Score(0.0, status="unparsed")

    def read(self, task: Task, text: str) -> str:
        said = spoken(text)
        if said is None:
            return ""
        found = find_answer(said)
        if found.source == "cut":
            return ""
        letter = _boxed(found.boxes[-1], _choices(task)) if found.boxes else _stated(said)
        return letter if letter in _letters(task) else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        return one == other


def _boxed(box: str, choices: Sequence[str]) -> str:
    if alone := _ALONE.fullmatch(box.strip()):
        return alone[1].upper()
    same = [place for place, choice in enumerate(choices) if choice.strip() == box.strip()]
    if len(same) == 1:
        return LETTERS[same[0]]
    labelled = _LABELLED.fullmatch(box.strip())
    return labelled[1].upper() if labelled else ""


def _stated(text: str) -> str:
    statements = [match[1] for match in _STATEMENT.finditer(text)]
    if statements:
        return statements[-1].upper()
    lines = text.strip().splitlines()
    alone = _ALONE.fullmatch(lines[-1].strip()) if lines and len(lines[-1]) < 40 else None
    return alone[1].upper() if alone else ""


def _choices(task: Task) -> Sequence[str]:
    return [str(choice) for choice in task.metadata.get("choices") or []]


def _letters(task: Task) -> str:
    return LETTERS[: len(_choices(task))] if _choices(task) else LETTERS
