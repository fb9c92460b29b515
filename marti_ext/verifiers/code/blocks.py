"""The blocks of Python of a reply, however it marks them."""

import re
from dataclasses import replace

from marti_ext.thinking import spoken
from marti_ext.verifiers.code.fences import Block, fenced, is_python_tag
from marti_ext.verifiers.code.syntax import before_prose, is_code, parse

_MARKERS = {"[BEGIN]": ("[DONE]", "[END]"), "[PYTHON]": ("[/PYTHON]",)}
_CLOSERS = tuple(closer for closers in _MARKERS.values() for closer in closers)
# Marks that are Python, too: a list, and numbers turned over.
_NOT_BARE = re.compile(r"^[ \t]*\[(?:BEGIN|PYTHON|DONE|END)\]|\A\s*~~~", re.MULTILINE)
_QUOTES = ('"""', "'''", '"', "'", "`")
# What ends a reply without being said: whole or half end tokens, and the closing marks that the prompt had opened.
_TOKEN = re.compile(r"(?:<\|[\w-]*\|?>?|<\uff5c[^\s\uff5c]*\uff5c?>?|</s>|<eos>|<end_of_turn>)\Z")
_MARK = re.compile(r"(?:`{3,}|~{3,}|\[DONE\]|\[END\]|\[/PYTHON\])\Z")
_LONGEST_TOKEN = 64
_MAX_LEFT_OVERS = 8


def code_blocks(text: str) -> list[Block] | None:
    """The blocks of a reply in order; None where thinking was opened and never closed.

    Fences, else markers ([BEGIN] ... [DONE]), else the whole reply if it is code. Blocks in other languages count only
    where no block is Python; untagged ones beside a tagged one only if they are code.
    """
    said = spoken(text)
    if said is None:
        return None
    said = said.replace("\r\n", "\n").replace("\r", "\n")
    bare = _bare(said)
    if parse(bare.text) and is_code(bare.text) and not _NOT_BARE.search(said):
        return [bare]
    return _programs([_cleaned(block) for block in fenced(said) or _marked(said) or _unmarked(said)])


def _programs(blocks: list[Block]) -> list[Block]:
    blocks = [block for block in blocks if block.text.strip() or (block.cut and block.language)]
    blocks = [block for block in blocks if not block.text.lstrip().startswith(">>>")]  # a session
    python = [block for block in blocks if block.is_python]
    untagged = [block for block in blocks if not block.language]
    if python:
        return [block for block in blocks if block.is_python or (not block.language and (block.cut or _reads(block)))]
    return [block for block in untagged if block.cut or _reads(block)] or untagged or [b for b in blocks if _reads(b)]


def _reads(block: Block) -> bool:
    return is_code(block.text)


def _marked(text: str) -> list[Block]:
    """What stands between markers; an opening marker may have stood in the prompt."""
    place = min((found for closer in _CLOSERS if (found := text.find(closer)) >= 0), default=-1)
    opener = next((opener for opener in _MARKERS if opener in text), None)
    if place >= 0 and (opener is None or text.find(opener) > place):
        return _unmarked(text[:place])
    blocks: list[Block] = []
    while opener and (start := text.find(opener)) >= 0:
        text = text[start + len(opener) :]
        ends = [place for closer in _MARKERS[opener] if (place := text.find(closer)) >= 0]
        blocks.append(Block(text[: min(ends, default=len(text))].strip("\n"), "python", cut=not ends))
        text = text[min(ends, default=len(text)) :]
    return blocks


def _bare(text: str) -> Block:
    """The text as if it were code, without a language tag that the prompt's fence had left open."""
    first, _, rest = text.partition("\n")
    return _cleaned(Block(rest if is_python_tag(first.strip()) else text))


def _unmarked(text: str) -> list[Block]:
    """The text if it is code, up to the prose behind it."""
    bare = _bare(text)
    if not is_code(bare.text):
        bare = replace(bare, text=before_prose(bare.text))
    return [bare] if is_code(bare.text) else []


def _cleaned(block: Block) -> Block:
    """Without left-overs behind the code and quotes around it. An end token says that the reply ended by itself."""
    text, ended = block.text, False
    for _ in range(_MAX_LEFT_OVERS):
        tail = text.rstrip()[-_LONGEST_TOKEN:]
        left = _TOKEN.search(tail) or _MARK.search(tail)
        if not left:
            break
        ended = ended or bool(_TOKEN.search(tail))
        text = text.rstrip().removesuffix(left[0]).rstrip("`~\n")
    return replace(block, text=_unquoted(text), cut=block.cut and not ended)


def _unquoted(text: str) -> str:
    inner = text.strip()
    for quote in _QUOTES:
        if len(inner) > 2 * len(quote) and inner.startswith(quote) and inner.endswith(quote):
            code = inner[len(quote) : -len(quote)].strip("\n")
            if "\n" not in code:
                code = code.replace("\\n", "\n")
            return code if is_code(code) and not is_code(text) else text
    return text
