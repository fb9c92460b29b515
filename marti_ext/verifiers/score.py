"""What a judge said: the last well-formed `<score>N</score>` or `<verdict>V</verdict>` of a reply, never a guess."""

import re
from collections.abc import Callable

from marti_ext.thinking import CLOSE, OPEN, spoken
from marti_ext.types import Completion, Score

_TAG = re.compile(
    r"<[ \t]*(/?)[ \t]*(score|verdict)[ \t]*>", re.IGNORECASE
)  # on one line: dropping lines never makes one
_INTEGER = re.compile(r"[+-]?[0-9]+")
_WORD = re.compile("correct|incorrect", re.IGNORECASE)
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
    inner = _last_tag("score", _INTEGER, text)
    if inner is None:
        return Score(0.0, status="truncated")
    if not inner or len(inner) > _MAX_DIGITS or not low <= int(inner) <= high:
        return Score(0.0, inner, "unparsed")
    number = int(inner)
    return Score((number - low) / (high - low), str(number))


def parse_verdict(text: str) -> Score:
    """Read a judge's verdict, `correct` (value 1) or `incorrect` (0), by the rules of `parse_score`."""
    inner = _last_tag("verdict", _WORD, text)
    if not inner:
        return Score(0.0, status="truncated" if inner is None else "unparsed")
    return Score(float(inner.lower() == "correct"), inner.lower())


def read_judgement(reply: Completion, parse: Callable[[str], Score]) -> Score:
    """What `parse` reads in a judge's reply; one that the length limit cut before it said anything is "truncated"."""
    score = parse(reply.text)
    cut = score.status == "unparsed" and reply.finish_reason == "length"
    return Score(0.0, status="truncated") if cut else score


def neutralise(text: str) -> str:
    """The text with every tag of a judge made harmless yet visible: `<score>` becomes `[score]`. Idempotent.

    For solutions and critiques that are quoted to a judge.
    """
    text = _TAG.sub(lambda tag: f"[{tag[1]}{tag[2].lower()}]", text)
    if _TAG.search(spoken(text) or ""):  # a tag with thinking in its middle: <sc<think></think>ore>
        text = text.replace(OPEN, "[think]").replace(CLOSE, "[/think]")
    return text


def _last_tag(name: str, content: re.Pattern[str], text: str) -> str | None:
    """What the last well-formed tag of the name holds, "" without one; None where a later one, or thinking, is cut."""
    said = spoken(text)
    if said is None:
        return None
    said = _without_quotes(said)
    found = ""
    start: int | None = None
    for tag in _TAG.finditer(said):
        if tag[2].lower() != name:
            continue
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            inner = said[start : tag.start()].strip()
            if content.fullmatch(inner):
                found = inner
            start = None
    return None if start is not None else found


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
