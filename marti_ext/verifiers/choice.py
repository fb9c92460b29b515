"""Grade a multiple-choice answer: the last explicit statement counts, and nothing is guessed."""

import re
from collections.abc import Sequence

from marti_ext.thinking import spoken
from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math.extract import find_answer
from marti_ext.verifiers.math.normalise import normalise, plain

LETTERS = "ABCDEFGHIJ"

_LINE = 200  # characters behind "answer:" that may state it, more where an option is longer
# What a letter is dressed in. No quantifier nests in another, so that long texts cost no more than their length.
_BEFORE = r"(?:[\s*_$`\"'({\[]|\\[(\[]|\\(?:text(?:bf|rm)?|math(?:bf|rm)|boxed)(?![A-Za-z])|(?i:option|choice)\b)"
_AFTER = r"(?:[\s*_$`\"').}\]]|\\[)\]])"
_NO_WORD = r"(?![^\W_]|['’]|-\w|_[\w{]|\(|\s{0,2}[=^+<>])"  # a letter, not a word of any script, nor a formula
_LETTER = re.compile(rf"({_BEFORE}{{0,10}})([A-Ja-j]){_NO_WORD}")
_ALONE = re.compile(rf"{_BEFORE}{{0,10}}([A-Ja-j]){_AFTER}{{0,10}}")
_LABELLED = re.compile(r"\(?([A-Ja-j])(?:[).:]+(?![^\W_])|\s{1,2}\((?=[^\W\d_]{2}))")
_MARKER = re.compile(
    r"(?i:(?<![^\W_])(?:answer|antwort|choice|option)"
    r"(?:\s{0,3}[*_`\"']{0,3}\s{0,3}(?::|=|(?<![^\W_])(?:is|ist|lautet)(?![^\W_]|['’]))){1,2})"
)
# "B or C" and "B, C" are two answers; "B, A is wrong" is one.
_SECOND = re.compile(
    rf"{_AFTER}{{0,4}}(?:,?\s{{0,3}}(?:or\b|and\b|/|&)\s{{0,3}}[(*$]{{0,3}}[A-J]{_NO_WORD}"
    rf"|,\s{{0,3}}[(*$]{{0,3}}[A-J][)*$.]{{0,4}}(?:\n|$))"
)
# "a star", "I think", "e to the x": behind a bare letter that is also a word, only these go on with a sentence.
_PROSE = re.compile(r"[ \t]+(?!(?:because|since|as|for|which)\b)[^\W\d_]")

_Stated = str | None  # a letter, "" where it is none of the options or not one, None without a statement


class ChoiceVerifier(Verifier):
    r"""1.0 where the reply's letter is `task.label`.

    The last `\boxed{}` counts; without a box, the last "Answer: B", "the answer is (B)" or last line that is nothing
    but a letter. Each may also hold the text of exactly one option (a letter of the options is read as a letter
    first). Two letters ("B or C") are no answer. `task.metadata["choices"]`, where given, are the texts of the options
    and say how many there are (else ten). Status: "no_label", "truncated" (cut in a box or in thinking), "unparsed"
    (no statement; letters that merely occur are none), "ok".
    """

    def verify(self, task: Task, text: str) -> Score:
        label = task.label.strip().upper()
        if len(label) != 1 or label not in _letters(task):
            return Score(0.0, status="no_label")
        if find_answer(text).source == "cut":
            return Score(0.0, status="truncated")
        letter = self.read(task, text)
        return Score(float(letter == label), letter) if letter else Score(0.0, status="unparsed")

    def read(self, task: Task, text: str) -> str:
        found = find_answer(text)
        if found.source == "cut":
            return ""
        return (_boxed(task, found.boxes[-1]) if found.boxes else _stated(task, spoken(text) or "")) or ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        return one == other


def _boxed(task: Task, box: str) -> _Stated:
    opened = plain(normalise(box))
    for form in (box.strip(), opened):
        if (alone := _ALONE.fullmatch(form)) and _known(task, alone[1]):
            return _known(task, alone[1])
    if option := _option(task, box):
        return option
    labelled = _LABELLED.match(opened)
    if labelled and not _SECOND.match(opened, labelled.end()):
        return _known(task, labelled[1])
    return _stated(task, box)


def _stated(task: Task, text: str) -> _Stated:
    """What the last statement names; the last line counts as one if it is a letter and nothing else."""
    line = text.strip().rpartition("\n")[2].strip()
    if len(line) < 40 and (alone := _ALONE.fullmatch(line)):
        return _known(task, alone[1])
    reach = max([_LINE, *(len(choice) + 40 for choice in _choices(task))])
    for marker in reversed([*_MARKER.finditer(text)]):
        stated = _statement(task, text[marker.end() : marker.end() + reach])
        if stated is not None:
            return stated
    return None


def _statement(task: Task, behind: str) -> _Stated:
    """What stands behind "answer:"."""
    if option := _option(task, behind.strip().partition("\n")[0]):
        return option
    letter = _LETTER.match(behind)
    if not letter:
        return None
    is_bare = not letter[1].strip()
    if is_bare and (letter[2] in "AI" or letter[2].islower()) and _PROSE.match(behind, letter.end()):
        return None
    return "" if _SECOND.match(behind, letter.end()) else _known(task, letter[2])


def _known(task: Task, letter: str) -> str:
    return letter.upper() if letter.upper() in _letters(task) else ""


def _option(task: Task, text: str) -> str:
    """The letter of the only option with this text, else of the only one with it but for dress; "" without one."""
    choices = _choices(task)
    for form in (str.strip, _undressed):
        same = [place for place, choice in enumerate(choices) if form(choice) and form(choice) == form(text)]
        if same:
            return LETTERS[same[0]] if len(same) == 1 and not _is_letter(task, text) else ""
    return ""


def _is_letter(task: Task, text: str) -> bool:
    alone = _ALONE.fullmatch(text.strip())
    return bool(alone and alone[1].upper() in _letters(task))


def _undressed(text: str) -> str:
    return plain(normalise(text.strip())).strip("\"'$* ").rstrip(". ").casefold()


def _choices(task: Task) -> Sequence[str]:
    return [str(choice) for choice in task.metadata.get("choices") or []][: len(LETTERS)]


def _letters(task: Task) -> str:
    return LETTERS[: len(_choices(task))] if _choices(task) else LETTERS
