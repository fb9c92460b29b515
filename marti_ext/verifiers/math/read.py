"""The structure of an answer: words, a list, a tuple, an interval, a union, a matrix, a relation, an expression."""

import re
from dataclasses import dataclass
from functools import lru_cache

from marti_ext.verifiers.math.evaluate import TooLargeError
from marti_ext.verifiers.math.normalise import MAX_DEPTH, MAX_LENGTH, closing, depth, is_word, plain
from marti_ext.verifiers.math.number import Number, is_too_large, read_number
from marti_ext.verifiers.math.units import Dressed, undress

_LETTERS = re.compile(r"[A-Za-z][A-Za-z' .()-]*")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)")
_RELATION = re.compile(r"=|<|>|\\(?:le|ge|ne|in|approx)(?![A-Za-z])")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)
_ROW_END = re.compile(r"\\\\(?:\[[^\[\]]*\])?")


@dataclass(frozen=True, slots=True)
class Words:
    """A word or a phrase, case-folded, without signs."""

    text: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """One expression, with the exact number it is where that is easily told. `huge`: never to be evaluated."""

    dressed: Dressed
    number: Number | None = None
    huge: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several answers. `kind` is "list", "set", "union", "matrix", "row", ":" or a pair of brackets such as "(]"."""

    kind: str
    items: tuple["Answer", ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of (in)equalities: sides[0] signs[0] sides[1] ..., with its text for the algebra system."""

    sides: tuple["Answer", ...]
    signs: tuple[str, ...]
    names: tuple[str, ...]
    text: str


Answer = Words | Scalar | Group | Relation


@lru_cache(maxsize=4096)
def readings(text: str) -> tuple[Answer, ...]:
    """The structure of a normal form; two where `125,216` can be a number or a list, the number first."""
    if len(text) > MAX_LENGTH or depth(text) > MAX_DEPTH:
        return (Scalar(Dressed(text), huge=True),)
    merged = _without_thousands_commas(text)
    return (_read(merged),) if merged == text else (_read(merged), _read(text))


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between those separators that stand outside all brackets, the separators themselves too."""
    parts: list[str] = []
    level = start = 0
    matches = {match.start(): match for match in separator.finditer(text)}
    for i, sign in enumerate(text):
        if sign in "([{":
            level += 1
        elif sign in ")]}":
            level -= 1
        elif level == 0 and i in matches:
            parts += [text[start:i].strip(), matches[i][0]]
            start = matches[i].end()
    return [*parts, text[start:].strip()]


def _without_thousands_commas(text: str) -> str:
    """Up to the first bracket only: (1,234) is a pair."""
    outside = re.match(r"[^(\[]*", text)
    head = outside[0] if outside else ""
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), head) + text[len(head) :]


def _read(text: str) -> Answer:
    if whole := re.fullmatch(r"\\text\{([^{}]*)\}", text):
        text = whole[1].strip()
    if (words := _words(text)) is not None:
        return words
    items = [item for item in split(text, re.compile("[,;]"))[::2] if item]
    if len(items) > 1:
        return _list("list", items)
    text = items[0] if items else text
    if r"\pm" in text and r"\begin" not in text and not _in_brackets(text):
        return _list("list", [text])
    sides = split(text, _RELATION)
    if len(sides) > 1 and all(sides[::2]):
        return _relation(text, sides)
    parts = split(text, re.compile(r"\\cup(?![A-Za-z])"))[::2]
    if len(parts) > 1 and all(parts):
        return Group("union", tuple(_read(part) for part in parts))
    return _bracketed(text) or _matrix(text) or _ratio(text) or _scalar(text)


def _list(kind: str, items: list[str]) -> Group:
    r"""The items; one with `\pm` counts as two."""
    out: list[Answer] = []
    for item in items:
        if r"\pm" in item:
            upper = re.sub(r"\\pm", "+", re.sub(r"\\mp", "-", item))
            lower = re.sub(r"\\pm", "-", re.sub(r"\\mp", "+", item))
            out += [_read(upper.lstrip("+ ")), _read(lower)]
        else:
            out.append(_read(item))
    return Group(kind, tuple(out))


def _in_brackets(text: str) -> bool:
    opening = 1 if text.startswith("\\{") else 0
    return text[opening : opening + 1] in ("(", "[", "{") and closing(text, opening) == len(text) - 1


def _bracketed(text: str) -> Answer | None:
    if text.startswith("\\{") and text.endswith("\\}") and _in_brackets(text):
        items = [item for item in split(text[2:-2].strip(), re.compile("[,;]"))[::2] if item]
        return _list("set", items) if items else Group("set", ())
    if not _in_brackets(text) or text[0] not in "([" or text[-1] not in ")]":
        return None
    items = [item for item in split(text[1:-1], re.compile("[,;]"))[::2] if item]
    if len(items) > 1:
        return Group(text[0] + text[-1], tuple(_read(item) for item in items))
    return _read(items[0]) if items and text[0] + text[-1] == "()" else None


def _matrix(text: str) -> Answer | None:
    match = _MATRIX.fullmatch(text.strip("()[] ") if "array" in text else text)
    if not match:
        return None
    rows = [row for row in _ROW_END.split(match[2]) if row.strip(" \\hline")]
    return Group("matrix", tuple(Group("row", tuple(_read(c.strip()) for c in row.split("&"))) for row in rows))


def _ratio(text: str) -> Answer | None:
    bare = undress(text)
    parts = split(bare.text, re.compile(":"))[::2]
    if len(parts) < 2 or not all(re.fullmatch(r"[\d.]+|\\frac\{\d+\}\{\d+\}|[a-z]", part) for part in parts):
        return None
    last = Dressed(parts[-1], unit=bare.unit)
    return Group(":", (*(_scalar(part) for part in parts[:-1]), Scalar(last, _number(last.text)[0])))


def _relation(text: str, sides: list[str]) -> Answer:
    signs, parts = sides[1::2], sides[::2]
    if signs[0] == r"\in":
        return _read(parts[1])
    if signs[0] == r"\approx":
        if not re.fullmatch(r"[A-Za-z]", parts[0]):
            return _read(parts[0])  # the exact value, not its approximation
        signs[0] = "="
    return Relation(tuple(_read(part) for part in parts), tuple(signs), tuple(parts), text)


def _words(text: str) -> Words | None:
    bare = plain(text)
    if not _LETTERS.fullmatch(bare):
        return None
    letters = re.sub(r"[^a-z]", "", bare.casefold())
    in_text = r"\text" in text and len(letters) > 1
    is_product = not is_word(letters) or all(len(part) == 1 for part in bare.split())
    has_call = re.search(r"[A-Za-z]\(", bare)  # f(x)
    return Words(letters) if in_text or not (is_product or has_call) else None


def _scalar(text: str) -> Scalar:
    bare = undress(text)
    number, huge = _number(bare.text)
    return Scalar(bare, number, huge or (number is None and is_too_large(bare.text)))


def _number(text: str) -> tuple[Number | None, bool]:
    try:
        return read_number(text), False
    except TooLargeError:
        return None, True
