"""Fenced blocks of a Markdown text, closed as models close them. In linear time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.verifiers.code.syntax import is_code, parse

_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*(.*)")
_TAG = re.compile(r"[{.]*([\w+#-]*(?:\.\d+)?)\}?")
_PYTHON = re.compile(r"i?python[\d.]*|py[\d.]*", re.IGNORECASE)
_CODE_START = re.compile(r"(?:def|class|import|from|async)\s|@\w|print\(|#")
_MARKDOWN = ("", "markdown", "md")
_MAX_DEPTH = 2  # blocks that show blocks


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of code of a reply. `cut`: the reply ended before the block did."""

    text: str
    language: str = ""
    cut: bool = False

    @property
    def is_python(self) -> bool:
        return is_python_tag(self.language)


@dataclass(frozen=True, slots=True)
class _Opening:
    indent: int
    marks: str
    info: str

    @property
    def one_line(self) -> bool:
        return self.info.endswith(self.marks)


def is_python_tag(word: str) -> bool:
    return bool(_PYTHON.fullmatch(word))


def fenced(text: str, depth: int = 0) -> list[Block]:
    """The fenced blocks in order, without the indent of their fences.

    A bare fence after code closes a block that the prompt had opened. In a string of three quotes no fence counts. A
    block that is not closed ends before the next tagged fence, or at a fence behind its last words, or is cut.
    """
    lines = text.split("\n")
    found: list[Block] = []
    place, seen = 0, False
    while place < len(lines):
        opening = _opening(lines[place])
        if opening is None:
            place += 1
            continue
        if not seen and not depth and not opening.info and is_code("\n".join(lines[:place])):
            found.append(Block("\n".join(lines[:place])))
            place += 1
        elif opening.one_line:
            language, code = _tagged(opening.info.removesuffix(opening.marks), one_line=True)
            found.append(Block(code, language))
            place += 1
        else:
            blocks, place = _block(lines, place, opening, depth)
            found += blocks
        seen = True
    return found


def _opening(line: str) -> _Opening | None:
    mark = _FENCE.match(line)
    if not mark:
        return None
    info = mark[3].rstrip()
    if mark[2][0] == "`" and "`" in info and ("`" in info.removesuffix(mark[2]) or not info.endswith(mark[2])):
        return None  # code within a line of prose
    return _Opening(len(mark[1]), mark[2], info)


def _block(lines: Sequence[str], place: int, opening: _Opening, depth: int) -> tuple[list[Block], int]:
    """The block that opens at `place` (or those that it shows), and where to read on."""
    language, code = _tagged(opening.info)
    end, after, cut = _end(lines, place + 1, opening)
    inner = [code] if code else []
    inner += [_outdented(line, opening.indent) for line in lines[place + 1 : end]]
    if end < after and _closing(lines[end]) is None:
        inner.append(_outdented(lines[end], opening.indent).rstrip().removesuffix(opening.marks))
    text = "\n".join(inner)
    if language in _MARKDOWN and depth < _MAX_DEPTH and not is_code(text) and (shown := fenced(text, depth + 1)):
        return shown, after
    return [Block(text, language, cut)], after


def _end(lines: Sequence[str], start: int, opening: _Opening) -> tuple[int, int, bool]:
    """The line that ends the block, the line to read on from, and whether the reply ends first."""
    in_text, within = set[str](), None
    for place in range(start, len(lines)):
        line = lines[place]
        marks = _closing(line)
        if marks is not None and marks.startswith(opening.marks):
            if not in_text and (within is None or parse("\n".join(lines[start:place]))):
                return place, place + 1, False
            within = place if within is None else within
        elif not in_text and (other := _opening(line)) and other.info and other.marks.startswith(opening.marks):
            return place, place, False
        in_text ^= {quote for quote in ('"""', "'''") if line.count(quote) % 2}
    if within is not None:
        return within, within + 1, False
    for place in range(start, len(lines)):
        if lines[place].rstrip().endswith(opening.marks):
            return place, place + 1, False
    return len(lines), len(lines), True


def _closing(line: str) -> str | None:
    """The marks of a bare fence."""
    mark = line.strip()
    return mark if len(mark) >= 3 and (not mark.strip("`") or not mark.strip("~")) else None


def _tagged(info: str, *, one_line: bool = False) -> tuple[str, str]:
    """(language, code that stands on the line of the fence)."""
    if _CODE_START.match(info):
        return "", info
    tag = _TAG.match(info)
    language = tag[1].lower() if tag else ""
    rest = info[tag.end() :].strip() if tag else info
    if one_line:
        return (language, rest) if is_python_tag(language) else ("", info)
    return language, rest if _CODE_START.match(rest) else ""


def _outdented(line: str, indent: int) -> str:
    blank = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, blank) :]
