"""A judge's score: the last well-formed `<score>N</score>` of the reply, never a guess."""

import re

from marti_ext.thinking import CLOSE, OPEN, spoken
from marti_ext.types import Score

_TAG = re.compile(r"<[ \t]*(/?)[ \t]*score[ \t]*>", re.IGNORECASE)  # on one line: dropping lines never makes one
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 20  # longer than any range
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")


def parse_score(text: str, *, low: int = 1, high: int = 3) -> Score:
    """Read a judge's integer score in [low, high]; the value is (N - low) / (high - low), `extracted` is N.

    Thinking, blockquotes (lines starting with ">") and fenced code are not read, so a quoted solution cannot set its
    own score. A tag is well formed if it holds one integer; the last such tag counts. Status: "unparsed" without one
    or if its number is out of range (never clamped, no earlier tag stands in), "truncated" if a later tag or thinking
    was opened and not closed.
    Raises ValueError for an empty range.
    """
    if low >= high:
        raise ValueError(f"the score range must grow, got low={low}, high={high}")
    said = spoken(text)
    if said is None:
        return Score(0.0, status="truncated")
    inner, cut = _last_tag(_without_quotes(said))
    if cut:
        return Score(0.0, status="truncated")
    if not inner or len(inner) > _MAX_DIGITS or not low <= int(inner) <= high:
        return Score(0.0, inner, "unparsed")
    number = int(inner)
    return Score((number - low) / (high - low), str(number))


def neutralise(text: str) -> str:
    """The text with every score tag made harmless yet visible: `<score>` becomes `[score]`. Idempotent.

    For solutions and critiques that are quoted to a judge.
    """
    text = _TAG.sub(lambda tag: f"[{tag[1]}score]", text)
    if _TAG.search(spoken(text) or ""):  # a tag with thinking in its middle: <sc<think></think>ore>
        text = text.replace(OPEN, "[think]").replace(CLOSE, "[/think]")
    return text


def _last_tag(text: str) -> tuple[str, bool]:
    """The integer in the last well-formed tag ("" without one), and whether a later tag is left open."""
    number = ""
    start: int | None = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            inner = text[start : tag.start()].strip()
            if _INTEGER.fullmatch(inner):
                number = inner
            start = None
    return number, start is not None


def _without_quotes(text: str) -> str:
    kept: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            # only a bare fence at least as long as the opening one closes a block
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        elif not line.lstrip().startswith(">"):
            kept.append(line)
    return "\n".join(kept)
