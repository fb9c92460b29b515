"""Comparison by computer algebra. Imported by the worker process only: it loads sympy, and may run for ever.

Math-Verify reads the LaTeX. Values are then compared here and not with its `verify`, which rounds to a fixed number of
decimals and so calls any two small numbers equal. Its timeouts are off: they use signals, and the worker is killed
from outside.
"""

import re
import string
from functools import lru_cache
from random import Random

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef

_READER = (
    LatexExtractionConfig(
        boxed_match_priority=0,
        # units are taken off before; the library would take the s of 2s for one
        normalization_config=NormalizationConfig(True, units=False, malformed_operators=True, nits=True, boxed="last"),
    ),
)
_RAISED_BY_SYMPY = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
_DIGITS = 50
_EXACT = sympy.Rational(1, 10**35)  # relative; two closed forms that agree so far are the same number
_DECIMAL = sympy.Rational(1, 10**6)  # relative; where a decimal is written
_ENOUGH_POINTS = 5
_COMMAND_OR_LETTER = re.compile(r"\\[A-Za-z]+|[A-Za-z]")


class UnreadableLabelError(ValueError):
    """The reference expression cannot be parsed."""


def same_expression(gold: str, pred: str) -> bool:
    """Whether two expressions or relations in LaTeX are equal. Raises UnreadableLabelError."""
    gold, pred = _apart_in_case(gold, pred)
    wanted, given = _read(gold), _read(pred)
    if wanted is None:
        raise UnreadableLabelError(gold)
    if given is None:
        return False
    if isinstance(wanted, sympy.Expr) and isinstance(given, sympy.Expr):
        try:
            return _same_value(wanted, given)
        except _RAISED_BY_SYMPY:
            return False
    return bool(verify(wanted, given, timeout_seconds=None))


@lru_cache(maxsize=1024)
def _read(latex: str) -> sympy.Basic | None:
    latex = re.sub(r"(\d+(?:\.\d+)?)\s*°", r"(\\frac{\1\\pi}{180})", latex)
    found = parse(rf"\boxed{{{latex}}}", _READER, fallback_mode="no_fallback", parsing_timeout=None)
    if not found or isinstance(found[0], str):
        return None
    try:
        return _without_calls(found[0]) if isinstance(found[0], sympy.Expr) else found[0]
    except _RAISED_BY_SYMPY:
        return None


def _without_calls(expression: sympy.Expr) -> sympy.Expr:
    """f(x) as a symbol of its own, and i as the imaginary unit: the reader takes it for a variable."""
    calls = {call: sympy.Symbol(str(call)) for call in expression.atoms(AppliedUndef)}
    units = {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    return expression.xreplace(calls | units) if calls or units else expression


def _apart_in_case(gold: str, pred: str) -> tuple[str, str]:
    """R and r of one expression kept apart: the reader lower-cases every letter."""
    letters = [{t for t in _COMMAND_OR_LETTER.findall(text) if len(t) == 1} for text in (gold, pred)]
    both = sorted(c for c in string.ascii_uppercase if any({c, c.lower()} <= found for found in letters))
    if not both:
        return gold, pred
    used = {letter.lower() for letter in letters[0] | letters[1]} | {"e", "i"}
    free = dict(zip(both, (c for c in string.ascii_lowercase if c not in used), strict=False))
    return tuple(  # type: ignore[return-value]
        _COMMAND_OR_LETTER.sub(lambda token: free.get(token[0], token[0]), text) for text in (gold, pred)
    )


def _same_value(gold: sympy.Expr, pred: sympy.Expr) -> bool:
    if gold == pred:
        return True
    has_decimal = bool(gold.atoms(sympy.Float) or pred.atoms(sympy.Float))
    tolerance = _DECIMAL if has_decimal else _EXACT
    symbols = sorted(gold.free_symbols | pred.free_symbols, key=str)
    if not symbols:
        verdict = _close(gold.evalf(_DIGITS), pred.evalf(_DIGITS), tolerance)
    else:
        verdict = _same_function(gold, pred, symbols, tolerance)
    return bool(sympy.simplify(gold - pred) == 0) if verdict is None else verdict


def _same_function(
    gold: sympy.Expr, pred: sympy.Expr, symbols: list[sympy.Symbol], tolerance: sympy.Rational
) -> bool | None:
    """Whether two functions agree wherever both are real, tried at points of both signs; None without enough points.

    Complex expressions are compared as they are.
    """
    is_complex = gold.has(sympy.I) or pred.has(sympy.I)
    partial = [] if is_complex else _partly_defined(gold) + _partly_defined(pred)
    agreed = 0
    for point in _points(symbols):
        if not all(_is_defined(part, point) for part in partial):
            continue
        verdict = _close(gold.evalf(_DIGITS, subs=point), pred.evalf(_DIGITS, subs=point), tolerance)
        if verdict is False:
            return False
        agreed += verdict is True
        if agreed == _ENOUGH_POINTS * 2:
            return True
    return True if agreed >= _ENOUGH_POINTS else None


def _points(symbols: list[sympy.Symbol]) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Values of either sign, fractions and small whole numbers in turn; the same ones every time."""
    random = Random(0)
    points = []
    for turn in range(36):
        below = 1 if turn % 3 == 2 else 97
        sign = (1, 1, -1, 0)[turn % 4]  # 0: each symbol has a sign of its own
        points.append(
            {
                s: sympy.Rational((sign or random.choice((1, -1))) * random.randint(1, 6 * below), below)
                for s in symbols
            }
        )
    return points


def _partly_defined(expression: sympy.Expr) -> list[sympy.Expr]:
    """The powers and logarithms in an expression that are real for some arguments only."""
    powers = [p for p in expression.atoms(sympy.Pow) if not p.exp.is_integer]
    return powers + list(expression.atoms(sympy.log, sympy.asin, sympy.acos))


def _is_defined(part: sympy.Expr, point: dict[sympy.Symbol, sympy.Rational]) -> bool:
    return bool(abs(sympy.im(part.evalf(15, subs=point))) < 1e-9)


def _close(a: sympy.Expr, b: sympy.Expr, tolerance: sympy.Rational) -> bool | None:
    """Whether two evaluated numbers agree; None where they are no numbers, or vanish so that only algebra tells."""
    if not (a.is_number and b.is_number) or a.has(sympy.nan, sympy.zoo) or b.has(sympy.nan, sympy.zoo):
        return None
    if a.is_infinite or b.is_infinite:
        return bool(a == b)
    size = max(abs(a), abs(b))
    if size < _EXACT and a != b:
        return None
    return bool(abs(a - b) <= tolerance * size)
