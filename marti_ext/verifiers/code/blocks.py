"""The programs in a reply: fenced blocks, other marks, or the whole reply where it is code."""

import ast
import re
import textwrap
from dataclasses import dataclass

from marti_ext.thinking import spoken

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$")
_PYTHON = {"", "python", "python3", "py", "py3", "python2", "ipython"}
_MARKED = re.compile(r"\[(BEGIN|PYTHON)\][ \t]*\n?(.*?)\n?[ \t]*\[(?:DONE|END|/PYTHON)\]", re.DOTALL)
# What a model stops with, whole or in half, at the very end.
_LEFT_OVER = re.compile(r"\s*(?:<\|?[\w|]{0,20}\|?>?|</s>|```[a-z]*)\s*$")
_CODE_START = re.compile(r"(?:def|import|from|class|async def|@\w|#|[A-Za-z_]\w*\s*(?:=|\())", re.ASCII)
MAX_LENGTH = 200_000  # characters of a reply that is parsed as code


@dataclass(frozen=True, slots=True)
class Blocks:
    """The Python programs of a reply, in order. `cut`: thinking or the last block has no end."""

    programs: tuple[str, ...]
    cut: bool = False


def find_blocks(reply: str) -> Blocks:
    """Fenced blocks of Python, or without a language; else `[BEGIN] ... [DONE]`; else the reply, if it is code.

    Blocks in other languages count only where there is no other.
    """
    said = spoken(reply)
    if said is None:
        return Blocks((), cut=True)
    said = said.replace("\r\n", "\n").replace("\r", "\n")
    fenced, cut = _fenced(said)
    tagged = [code for tag, code in fenced if tag in _PYTHON] or [code for _, code in fenced]
    if tagged:
        return Blocks(tuple(tagged), cut)
    if cut:
        return Blocks((), cut=True)
    if marked := _MARKED.findall(said[:MAX_LENGTH]):
        return Blocks(tuple(_unquoted(code) for _, code, *_ in marked))
    bare = _bare(said)
    return Blocks((bare,) if bare else ())


def parses(code: str) -> bool:
    """Whether Python can read it."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _fenced(text: str) -> tuple[list[tuple[str, str]], bool]:
    """(language, code) of every block that holds something, and whether the last one is never closed."""
    blocks: list[tuple[str, str]] = []
    fence = tag = ""
    lines: list[str] = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            # Only a bare fence at least as long as the opening one closes a block.
            if mark and mark[2].startswith(fence) and not mark[3]:
                blocks.append((tag, textwrap.dedent("\n".join(lines))))
                fence = ""
            else:
                lines.append(line)
        elif mark:
            fence, tag, lines = mark[2], mark[3].lower().strip("{}.:"), []
    if fence and lines and not blocks:
        whole = _without_left_over("\n".join(lines))
        if whole != "\n".join(lines).rstrip() and parses(textwrap.dedent(whole)):
            return [(tag, textwrap.dedent(whole))], False  # ended by a stop word in place of a fence
    return [(tag, code) for tag, code in blocks if code.strip()], bool(fence) and any(map(str.strip, lines))


def _bare(text: str) -> str:
    """The whole reply as code, "" if it is none. Its prompt may have opened the fence that it closes."""
    text = text.strip("\n")
    if len(text) > MAX_LENGTH:
        return ""
    code = _without_left_over(_unquoted(text))
    looks = bool(_CODE_START.match(code)) or code[:1] in (" ", "\t")
    return code if looks and (parses(code) or parses(f"def f():\n{code}")) else ""


def _without_left_over(text: str) -> str:
    text = text.rstrip()
    while (shorter := _LEFT_OVER.sub("", text[-80:])) != text[-80:]:
        text = (text[:-80] + shorter).rstrip()
    return text


def _unquoted(text: str) -> str:
    """Without the quotes that some models put round a whole program."""
    stripped = text.strip()
    for quote in ("'''", '"""', "'", '"', "`"):
        inner = stripped[len(quote) : -len(quote)]
        if len(stripped) > 2 * len(quote) and stripped.startswith(quote) and stripped.endswith(quote):
            return inner.strip("\n") if quote not in inner and parses(inner.strip()) else text
    return text
