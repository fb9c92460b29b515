r"""Grade a number within a tolerance.

The CoMAS paper grades SciBench so (relative 0.05). SciBench's own scorer has changed over the years; its first version
used an absolute 0.1. `NumericVerifier.version` names the rule used here, for reports.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math.evaluate import TooLargeError
from marti_ext.verifiers.math.extract import find_answer
from marti_ext.verifiers.math.normalise import MAX_DEPTH, MAX_LENGTH, depth, key, normalise, plain
from marti_ext.verifiers.math.number import read_number
from marti_ext.verifiers.math.units import canonical_unit, undress
from marti_ext.verifiers.math.verifier import if_boxed

SAME_VOTE = Fraction(1, 100)  # relative; roundings on the way differ by less, other answers mostly by more
_SAME_SIDE = Fraction(1, 20)  # relative; "F = 9.8 * 2 = 20" is a rounding, "7 = 5" a mistake

_SCALE = re.compile(r"\s*\*?\s*10\s*\^\s*\{?\s*(-?\s*\d{1,3})\s*\}?")
_SIDES = re.compile(r"=|\\(?:approx|simeq|sim|cong)(?![A-Za-z])")
_ABOUT = re.compile(r"^(?:(?:about|approximately|approx\.?|around|roughly)\s+)?\+?\s*", re.IGNORECASE)
_MONEY = re.compile(r"(-?)\s*\\\$\s*(?=[-\d.])")
_POWER_AS_TEXT = re.compile(r"\\text\{\s*(10\s*\^\s*\{?\s*-?\d+\s*\}?)\s*\}")  # SciBench's \mathrm{10^{-4}}
_PLUS_POWER = re.compile(r"\^\s*\+")
_BARE_POWER = re.compile(r"(?<=\d)\s+(?=10\s*\^)")  # "3 10^{5}"
_POWER = r"10\s*\^\s*[{(]?\s*[-+]?\d+\s*[})]?"
_LEADING = re.compile(rf"-?\s*(?:{_POWER}|(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+(?![\d.]))?(?:\s*\*\s*{_POWER})?)")
# What may follow a number and be its unit: no digits but in powers, no operation, no letter that is a variable.
_UNIT_POWER = re.compile(r"\^\s*\{?\s*[-+]?\s*\d+(?:/\d+)?\s*\}?")
_NO_UNIT = re.compile(
    r"\d|[<>|!_=\[\]]|^\s*[-+^(]|[+^]"
    r"|\\(?:pi|sqrt|infty|sin|cos|tan|cot|sec|csc|log|ln|exp|arc[a-z]+|binom|cup|cap|le|ge|ne|in|to)(?![A-Za-z])"
    r"|(?<![A-Za-z\\{])[abijknpqrtvwxyz](?![A-Za-z}])"
)
_REMARK = re.compile(r"\s*(?:\\pm(?![A-Za-z]).*|\((?:[^()\d]*)\))$")  # an uncertainty, a remark
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_FACTOR = re.compile(r"(/|\bper\b)|([A-Za-z°$¢€£]+)(?:\s*\^\s*\{?\s*(-?\d+)\s*\}?)?|[^\s*{}]")
_COHERENT = {
    "newton": "kg m s^-2", "joule": "kg m^2 s^-2", "watt": "kg m^2 s^-3", "pascal": "kg m^-1 s^-2", "hertz": "s^-1",
    "volt": "kg m^2 s^-3 ampere^-1", "ohm": "kg m^2 s^-3 ampere^-2",
}  # fmt: skip


@dataclass(frozen=True)
class NumericVerifier(Verifier):
    r"""1.0 where the reply's number is within `relative_tolerance` of `task.label`, sign included.

    A label of 0 asks for exactly 0. `task.metadata["unit"]`, where given, is the unit that the label is in, in LaTeX.
    A unit may hide a scale (`$10^{3} J$`): right is the number in that unit, and also the number with the scale
    written out. p per cent is p, p% and p/100. A unit in the reply that is known and another than the task's is wrong;
    none is fine. Status: "no_label" (no number), "truncated", "unparsed" (no number, several, a formula), "ok".
    """

    relative_tolerance: float = 0.05
    require_box: bool = True
    """Without a box there is no answer. If False, `math.extract.find_answer` falls back on markers and numbers."""

    @property
    def version(self) -> str:
        """The rule's name, such as "relative-0.05": scores by different rules do not compare."""
        return f"relative-{self.relative_tolerance:g}"

    def verify(self, task: Task, text: str) -> Score:
        gold = number_of(task.label)
        if gold is None:
            return Score(0.0, status="no_label")
        found = find_answer(text, require_box=self.require_box)
        if found.source == "cut":
            return Score(0.0, status="truncated")
        quantity = _read(found.answer)
        if quantity is None:
            return Score(0.0, found.answer, "unparsed")
        unit = _unit(task)
        tolerance = Fraction(str(self.relative_tolerance))
        wanted = {gold, gold * _scale(unit)}
        given = {quantity.value}
        if ("%" in unit) != ("%" in quantity.unit):
            wanted |= {number / 100 for number in wanted if "%" in unit}
            given |= {number / 100 for number in given if "%" in quantity.unit}
        right = any(abs(value - number) <= abs(number) * tolerance for value in given for number in wanted)
        return Score(float(right and not _differ(quantity.unit, _SCALE.sub("", unit))), found.answer)

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        """`accuracy`, and, where boxes are not required, also `boxed`: what it would be if they were."""
        score = self.verify(task, text)
        return {self.measure: score} | ({} if self.require_box else {"boxed": if_boxed(score, text)})

    def read(self, task: Task, text: str) -> str:
        """The answer, boxed or not."""
        answer = find_answer(text, require_box=False).answer
        return answer if number_of(answer) is not None else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        """Within one per cent of each other, in units that do not differ; a hidden scale may be written out in one.

        Closer than the tolerance, so that a vote still tells answers apart.
        """
        first, second = _read(one), _read(other)
        if first is None or second is None or _differ(first.unit, second.unit):
            return False
        scale = _scale(_unit(task))
        ways = [(first.value, second.value), (first.value * scale, second.value), (first.value, second.value * scale)]
        return any(_near(a, b, SAME_VOTE) for a, b in ways)


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A number, and what is written behind it, in normal form."""

    value: Fraction
    unit: str = ""


def number_of(text: str) -> Fraction | None:
    """The number of an answer, whatever stands around it (a name, a sign for "about", a unit), None without one."""
    quantity = _read(text)
    return quantity.value if quantity else None


def _read(text: str) -> _Quantity | None:
    """The last side of an answer such as "x = 9.8 * 2 \\approx 20 N"; the others must be names or come to the same."""
    if len(text) > MAX_LENGTH or depth(text) > MAX_DEPTH:
        return None
    *before, last = (side.strip() for side in _SIDES.split(_normal(text)))
    quantity = _quantity(last)
    if quantity is None or not all(_leads_to(side, quantity) for side in before):
        return None
    return quantity


def _unit(task: Task) -> str:
    return _normal(str(task.metadata.get("unit") or ""))


def _normal(text: str) -> str:
    return _POWER_AS_TEXT.sub(r"\1", normalise(text))


def _leads_to(side: str, quantity: _Quantity) -> bool:
    other = _quantity(side)
    if other is not None:
        return key(other.unit) != key(quantity.unit) or _near(other.value, quantity.value, _SAME_SIDE)
    return not re.match(r"[-+\d.?]", side)  # "2x = 5" and "-x = 5" do not say what x is


def _quantity(side: str) -> _Quantity | None:
    """The number of one side and the unit behind it."""
    if side.startswith(r"\text{") and side.count(r"\text{") == 1:
        side = plain(side)
    side = _MONEY.sub(r"\1", _ABOUT.sub("", side), count=1)
    side = _BARE_POWER.sub("*", _PLUS_POWER.sub("^", side))
    leading = _LEADING.match(side)
    for number in (side, leading[0] if leading else "", undress(side).text):
        unit = side[len(number) :] if side.startswith(number) else None
        value = _value(number)
        if value is not None and unit is not None and _may_be_unit(unit):
            return _Quantity(value, unit.strip())
    return None


def _value(text: str) -> Fraction | None:
    try:
        number = read_number(text.strip()) if text else None
    except TooLargeError:
        return None
    return number.value if number else None


def _may_be_unit(text: str) -> bool:
    return not _NO_UNIT.search(_UNIT_POWER.sub("", _REMARK.sub("", text)))


def _near(one: Fraction, other: Fraction, tolerance: Fraction) -> bool:
    return abs(one - other) <= max(abs(one), abs(other)) * tolerance


def _scale(unit: str) -> Fraction:
    """The power of ten that opens a unit in normal form, else 1."""
    match = _SCALE.match(unit)
    return Fraction(10) ** int(match[1].replace(" ", "")) if match else Fraction(1)


def _differ(one: str, other: str) -> bool:
    """Whether two units are both known and not the same."""
    first, second = (_factors(re.split(r"[,;(]|\\pm", unit)[0]) for unit in (one, other))
    return bool(first and second and first != second)


def _factors(unit: str) -> dict[str, int] | None:
    r"""The powers of a unit ("N/m", `\text{N} \text{m}^{-1}`), derived ones taken apart; None if any is unknown."""
    powers: dict[str, int] = {}
    sign = 1
    for divided, name, power in _FACTOR.findall(_TEXT.sub(r" \1", unit).replace(r"\$", "$").strip(" .")):
        if divided:
            sign = -1
            continue
        # units.py knows no case, but M, S, H, G and D are not m, s, h, g and d, nor is MN mN
        known = "" if name in ("M", "S", "H", "G", "D") or re.fullmatch("M[a-zA-Z]", name) else canonical_unit(name)
        if not known:
            return None
        above, *below = known.split("/")
        parts = _factors(_COHERENT[above]) if above in _COHERENT else {above: 1}
        for part, count in [*(parts or {}).items(), *((part, -1) for part in below)]:
            powers[part] = powers.get(part, 0) + sign * int(power or 1) * count
        sign = 1
    return {name: power for name, power in powers.items() if power}
