r"""Numbers, compared exactly where they are written exactly."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from marti_ext.verifiers.math.evaluate import MAX_EXPONENT, MAX_FACTORIAL, NotANumberError, TooLargeError, evaluate

RELATIVE_TOLERANCE = Fraction(1, 10**6)  # only where a decimal is compared
_SURELY_DIFFERENT = Fraction(1, 10**5)  # relative; far above the error of a float or a rounded decimal
_MIXED_PLAIN = re.compile(r"(\d+) +(\d+) ?/ ?(\d+)$")
_DOTS = re.compile(r"\.(\d*?)(\d)\2{2,}(?:\.\.\.|\\(?:l?dots|cdots))$")


@dataclass(frozen=True, slots=True)
class Number:
    """A value; `slack` > 0 where a decimal was written (one unit of its last digit); `exact` is False for a float."""

    value: Fraction
    slack: Fraction = Fraction(0)
    exact: bool = True

    def percent(self) -> "Number":
        return Number(self.value / 100, self.slack / 100, self.exact)


def same_number(a: Number, b: Number) -> bool | None:
    """Whether two numbers are equal; None where only a proof could tell.

    Exact numbers are compared exactly. If a decimal is written on one side, they may differ by 1e-6 relative, and by
    less than one unit of that decimal's last digit (of the shorter one's, if both are decimals).
    """
    gap = abs(a.value - b.value)
    size = max(abs(a.value), abs(b.value))
    if not (a.exact and b.exact):
        return False if gap > size * _SURELY_DIFFERENT else None
    if gap == 0:
        return True
    return gap <= size * RELATIVE_TOLERANCE and gap < max(a.slack, b.slack)


@lru_cache(maxsize=4096)
def read_number(text: str) -> Number | None:
    """The number a normal form denotes, None if it is not one. Raises TooLargeError."""
    text = re.sub(r"(?<![\d.,])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,])", lambda n: n[0].replace(",", ""), text)
    text = _MIXED_PLAIN.sub(r"\1\\frac{\2}{\3}", text)
    text = _DOTS.sub(r".\1\\overline{\2}", text)
    try:
        value = evaluate(text)
    except NotANumberError:
        return None
    return Number(Fraction(value), _slack(text, Fraction(value)), isinstance(value, Fraction))


def _slack(text: str, value: Fraction) -> Fraction:
    if "." not in text or "\\overline" in text or "\\bar" in text or "\\dot" in text:
        return Fraction(0)
    if single := re.fullmatch(r"[+-]? ?\d*\.(\d*)(?:[eE]([+-]?\d+))?", text.strip()):
        return Fraction(10) ** (int(single[2] or 0) - len(single[1]))
    return abs(value) * 2 * RELATIVE_TOLERANCE  # a decimal inside an expression: the relative limit alone counts


def is_too_large(text: str) -> bool:
    """Whether evaluating an expression (with letters, too) would mean a tower of powers or a giant factorial."""
    for power in re.finditer(r"\^", text):
        if _beyond(_operand_after(text, power.end()), MAX_EXPONENT):
            return True
    for factorial in re.finditer("!", text):
        if _beyond(_operand_before(text, factorial.start()), MAX_FACTORIAL):
            return True
    return any(_beyond(top[1], MAX_EXPONENT) for top in re.finditer(r"\\binom\{([^{}]*)\}", text))


def _beyond(operand: str, limit: int) -> bool:
    try:
        number = read_number(operand)
    except TooLargeError:
        return True
    return number is not None and abs(number.value) > limit


def _operand_after(text: str, at: int) -> str:
    rest = text[at:].lstrip()
    if rest[:1] not in ("{", "("):
        digits = re.match(r"\d*", rest)
        return digits[0] if digits else ""
    level = 0
    for i, sign in enumerate(rest):
        level += (sign in "({") - (sign in ")}")
        if level == 0:
            return rest[1:i]
    return rest


def _operand_before(text: str, at: int) -> str:
    rest = text[:at].rstrip()
    if rest.endswith("!"):
        return rest  # n!! and (n!)!: nobody's answer
    if rest[-1:] not in (")", "}"):
        digits = re.search(r"\d*$", rest)
        return digits[0] if digits else ""
    level = 0
    for i in range(len(rest) - 1, -1, -1):
        level += (rest[i] in ")}") - (rest[i] in "({")
        if level == 0:
            return rest[i + 1 : -1]
    return rest
