r"""Arithmetic on LaTeX: what a text without variables comes to, exactly as long as that is possible.

Reads integers, decimals, `4.2e5`, `0.\overline{6}`, fractions, mixed numbers, sums, products, powers, factorials,
roots and pi. A value is a Fraction while it is exact, else a float. Absurdly many digits are never computed.
"""

import math
import re
from fractions import Fraction

Value = Fraction | float

_MAX_BITS = 200_000
MAX_EXPONENT = 10_000
MAX_FACTORIAL = 2_000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:\\(?:overline|bar|dot)\{?\d+\}?)?(?:[eE][+-]?\d+(?![\d.]))?)"
    r"|(?P<sign>\\frac|\\sqrt|\\pi(?![A-Za-z])|[-+*/^!(){}\[\]]))"
)
_LITERAL = re.compile(r"(\d*)\.?(\d*)(?:\\(?:overline|bar|dot)\{?(\d+)\}?)?(?:[eE]([+-]?\d+))?")


class TooLargeError(ValueError):
    """The number has more digits than anybody should evaluate."""


class NotANumberError(ValueError):
    """The text is not a number that this module reads."""


def evaluate(text: str) -> Value:
    """The value of a normal form. Raises NotANumberError and TooLargeError."""
    reader = _Reader(text)
    try:
        value = reader.sum()
        reader.expect_end()
        if isinstance(value, float) and not math.isfinite(value):
            raise NotANumberError(text)
    except (ZeroDivisionError, OverflowError) as error:
        raise NotANumberError(text) from error
    return value


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.at = 0
        position = 0
        text = text.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise NotANumberError(text)
            self.tokens.append(match["number"] or match["sign"])
            position = match.end()
        if not self.tokens:
            raise NotANumberError(text)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise NotANumberError(token)
        self.at += 1
        return token

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise NotANumberError(self.peek())

    def sum(self) -> Value:
        total = self.product()
        while self.peek() in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
            term = sign * self.product()
            result = total + term
            if isinstance(result, float) and abs(result) < 1e-3 * abs(term):
                raise NotANumberError("too much cancels for a float")
            total = _bounded(result)
        return total

    def product(self) -> Value:
        sign = 1
        while self.peek() in ("+", "-"):
            sign *= -1 if self.take() == "-" else 1
        value: Value = sign * self.power()
        divided = False
        while True:
            operator = self.peek()
            if operator == "*":
                self.take()
                value = _bounded(value * self.signed_power())
            elif operator == "/":
                self.take()
                value = _bounded(value / self.signed_power())
                divided = True
            elif operator in ("(", "\\frac", "\\sqrt", "\\pi"):
                if divided:
                    raise NotANumberError("1/2(3) can be read in two ways")
                value = _bounded(value * self.power())
            else:
                return value

    def signed_power(self) -> Value:
        if self.peek() == "-":
            self.take()
            return -self.power()
        return self.power()

    def power(self) -> Value:
        value = self.atom()
        while self.peek() in ("^", "!"):
            value = _factorial(value) if self.take() == "!" else _power(value, self.exponent())
        return value

    def exponent(self) -> Value:
        sign = -1 if self.peek() == "-" and self.take() else 1
        if self.peek()[:1].isdigit():
            return sign * _literal(self.take())  # never a mixed number
        return sign * self.atom()

    def atom(self) -> Value:
        token = self.take()
        if token in ("(", "{"):
            return self.bracket(")" if token == "(" else "}")
        if token == "\\pi":
            return math.pi
        if token == "\\frac":
            return self.fraction()
        if token == "\\sqrt":
            return self.root()
        if token[0].isdigit() or token[0] == ".":
            return self.mixed(token)
        raise NotANumberError(token)

    def bracket(self, end: str) -> Value:
        value = self.sum()
        self.take(end)
        return value

    def fraction(self) -> Value:
        self.take("{")
        above = self.bracket("}")
        self.take("{")
        return _bounded(above / self.bracket("}"))

    def root(self) -> Value:
        degree: Value = Fraction(2)
        if self.peek() == "[":
            self.take()
            degree = self.bracket("]")
        self.take("{")
        radicand = self.bracket("}")
        if isinstance(degree, float) or degree.denominator != 1 or degree < 1 or radicand < 0:
            raise NotANumberError("a root of this kind")
        return _root(radicand, int(degree))

    def mixed(self, token: str) -> Value:
        """A literal; one followed by a fraction of integers is a mixed number, not a product."""
        value = _literal(token)
        ahead = self.tokens[self.at : self.at + 7]
        if token.isdigit() and len(ahead) == 7 and ahead[0] == "\\frac" and ahead[2].isdigit() and ahead[5].isdigit():
            self.at += 1
            return value + self.fraction()
        return value


def _literal(token: str) -> Fraction:
    match = _LITERAL.fullmatch(token)
    if not match or token == ".":
        raise NotANumberError(token)
    whole, part, repeating, exponent = (group or "" for group in match.groups())
    if abs(int(exponent or 0)) > MAX_EXPONENT:
        raise TooLargeError(token)
    value = Fraction(int(whole + part or "0"), 10 ** len(part))
    if repeating:
        if "." not in token:
            raise NotANumberError(token)
        value += Fraction(int(repeating), (10 ** len(repeating) - 1) * 10 ** len(part))
    return value * Fraction(10) ** int(exponent or 0)


def _bounded(value: Value) -> Value:
    if isinstance(value, Fraction) and value.numerator.bit_length() + value.denominator.bit_length() > _MAX_BITS:
        raise TooLargeError("more digits than the limit")
    return value


def _factorial(value: Value) -> Fraction:
    if isinstance(value, float) or value.denominator != 1 or value < 0:
        raise NotANumberError("a factorial of something else than a whole number")
    if value > MAX_FACTORIAL:
        raise TooLargeError("factorial")
    return Fraction(math.factorial(int(value)))


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        if isinstance(base, Fraction):
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if bits <= 1:  # 0, 1 and -1 stay small
                return Fraction(base ** (int(exponent) % 2)) if base else _zero_to(exponent)
            if abs(exponent) * bits > _MAX_BITS:
                raise TooLargeError("power")
            return Fraction(base ** int(exponent))
        return float(base ** int(exponent))
    if base <= 0:
        raise NotANumberError("a fractional power of a negative number")
    return math.exp(float(exponent) * math.log(base))


def _zero_to(exponent: Fraction) -> Fraction:
    if exponent <= 0:
        raise NotANumberError("a power of zero without a value")
    return Fraction(0)


def _root(radicand: Value, degree: int) -> Value:
    if isinstance(radicand, Fraction) and degree == 2:  # others are rarely whole; the float leads to a proof
        above, below = math.isqrt(radicand.numerator), math.isqrt(radicand.denominator)
        if Fraction(above * above, below * below) == radicand:
            return Fraction(above, below)
    return math.pow(radicand, 1 / degree)
