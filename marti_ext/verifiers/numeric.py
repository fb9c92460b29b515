r"""Grade a number within a tolerance.

The CoMAS paper grades SciBench so (relative 0.05). SciBench's own scorer has changed over the years; its first version
used an absolute 0.1. Exact equality is asked for where the reference is 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math.evaluate import TooLargeError
from marti_ext.verifiers.math.extract import find_answer
from marti_ext.verifiers.math.normalise import MAX_LENGTH, normalise
from marti_ext.verifiers.math.number import read_number
from marti_ext.verifiers.math.units import canonical_unit, undress

SAME_VOTE = Fraction(1, 100)  # relative; two answers that far apart are two answers in a vote

_SCALE = re.compile(r"^\s*\$?\s*(?:\\times\s*)?10\s*\^\s*\{?\s*([-−]?\s*\d+)\s*\}?")
_NAMED = re.compile(r"^\s*\\?[A-Za-z]\w*(?:_\{?\w+\}?)?\s*(?:=|\\approx|\\simeq|\\sim)\s*")
_ABOUT = re.compile(r"^\s*(?:\\approx|\\simeq|\\sim|~|≈|about|approximately|=)\s*", re.IGNORECASE)
_LETTER_X = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_E_PLUS = re.compile(r"(?<=\d)[eE]\+?(-?\d)")
_LEADING = re.compile(
    r"[-+]?\s*(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:\s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*\{?\s*[-+]?\d+\s*\}?)?"
)


@dataclass(frozen=True)
class NumericVerifier(Verifier):
    r"""1.0 where the reply's number is within `relative_tolerance` of `task.label`, sign included.

    `task.metadata["unit"]`, where given, is the unit that the label is in. A unit may hide a scale (`$10^{3} J$`):
    right is the number in that unit, and also the number with the scale written out. A unit in the reply that is known
    and another than the task's is wrong; none is fine. Status: "no_label" (no number), "truncated", "unparsed", "ok".
    """

    relative_tolerance: float = 0.05
    require_box: bool = True
    """Without a box there is no answer. If False, `math.extract.find_answer` falls back on markers and numbers."""

    def verify(self, task: Task, text: str) -> Score:
        gold = number_of(task.label)
        if gold is None:
            return Score(0.0, status="no_label")
        found = find_answer(text, require_box=self.require_box)
        if found.source == "cut":
            return Score(0.0, status="truncated")
        value = number_of(found.answer)
        if value is None:
            return Score(0.0, found.answer, "unparsed")
        unit = str(task.metadata.get("unit") or "")
        wanted = gold, gold * _scale(unit)
        right = any(_near(value, gold, Fraction(str(self.relative_tolerance))) for gold in wanted)
        return Score(float(right and not _other_unit(found.answer, unit)), found.answer)

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        """`accuracy`, and, where boxes are not required, also `boxed`: what it would be if they were."""
        strict = {} if self.require_box else {"boxed": replace(self, require_box=True).verify(task, text)}
        return {self.measure: self.verify(task, text)} | strict

    def read(self, task: Task, text: str) -> str:
        """The answer, boxed or not."""
        answer = find_answer(text, require_box=False).answer
        return answer if number_of(answer) is not None else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        """Within one per cent of each other: closer than the tolerance, so that a vote still tells answers apart."""
        first, second = number_of(one), number_of(other)
        return first is not None and second is not None and _near(second, first, SAME_VOTE)


def _near(value: Fraction, gold: Fraction, tolerance: Fraction) -> bool:
    return abs(value - gold) <= abs(gold) * tolerance


def number_of(text: str) -> Fraction | None:
    """The number of an answer, whatever stands around it (a name, a sign for "about", a unit), None without one."""
    if len(text) > MAX_LENGTH:
        return None
    text = _ABOUT.sub("", _NAMED.sub("", text.strip().strip("$").strip()))
    normal = normalise(_E_PLUS.sub(r"e\1", _LETTER_X.sub(r"\\times ", text))).lstrip("+").strip()
    leading = _LEADING.match(normal)
    for candidate in (normal, undress(normal).text, leading[0] if leading else ""):
        try:
            number = read_number(candidate) if candidate else None
        except TooLargeError:
            continue
        if number is not None:
            return number.value
    return None


def _scale(unit: str) -> Fraction:
    match = _SCALE.match(unit)
    if not match:
        return Fraction(1)
    exponent = int(match[1].replace("−", "-").replace(" ", ""))
    return Fraction(10) ** exponent if abs(exponent) <= 100 else Fraction(1)


def _other_unit(answer: str, unit: str) -> bool:
    """Whether the answer names a known unit that is not the task's."""
    own = undress(normalise(answer.strip("$ "))).unit
    asked = canonical_unit(normalise(_SCALE.sub("", unit).strip("$ ~")))
    return bool(own and asked and own != asked)
