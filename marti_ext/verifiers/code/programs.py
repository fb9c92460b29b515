"""Which program of a reply counts, and what it needs to run."""

import ast
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from marti_ext.verifiers.code.fences import Block
from marti_ext.verifiers.code.syntax import (
    bound,
    defines,
    is_body,
    lines_of,
    missing,
    parse,
    under,
    without_futures,
)

_KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


@dataclass(frozen=True)
class Programs:
    """The programs that a reply holds, for a task that asks for `entry_point` ("" for a whole program).

    `prelude` ends with the signature that the body of a function goes under. `tests` use names, too.
    """

    blocks: Sequence[Block]
    entry_point: str = ""
    prelude: str = ""
    tests: str = ""

    def last(self) -> Block | None:
        """The last block that defines the entry point, with what it uses of earlier blocks; else the last body of a
        function, under its signature; else the last block."""
        if not self.blocks:
            return None
        defining = self._defining()
        if defining:
            block = _levelled(self.blocks[defining[-1]])
            return block if block.cut else with_earlier(block, self.blocks[: defining[-1]], missing(self.tests))
        bodies = (body for block in reversed(self.blocks) if (body := self._completed(block)) is not block)
        return next(bodies, _levelled(self.blocks[-1]))

    def first(self) -> Block | None:
        """The first block that defines the entry point, by itself; else the first block."""
        defining = self._defining()
        if defining:
            return _levelled(self.blocks[defining[0]])
        return _levelled(self._completed(self.blocks[0])) if self.blocks else None

    def each(self, limit: int) -> list[Block]:
        """Every block that is not cut, by itself, the last ones first and at most `limit`."""
        whole = [block for block in reversed(self.blocks) if not block.cut][:limit]
        return [_levelled(block) for block in (whole if self._defining() else map(self._completed, whole))]

    def _defining(self) -> list[int]:
        if not self.entry_point:
            return []
        return [place for place, block in enumerate(self.blocks) if defines(block.text, self.entry_point)]

    def _completed(self, block: Block) -> Block:
        """The block under the prompt's signature if it is the body of a function, else itself."""
        header = self.prelude.rstrip()
        if not header or not self.entry_point or (parse(block.text) and not is_body(block.text)):
            return block
        for once in (False, True):
            source = under(header, block.text, self._indent(), first_line_only=once)
            tree = parse(source)
            function = tree.body[-1] if tree and tree.body else None
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name == self.entry_point:
                return replace(block, text=source)
        return block

    def _indent(self) -> str:
        """How the signature's docstring is indented."""
        last = self.prelude.rstrip().rpartition("\n")[2]
        return last[: len(last) - len(last.lstrip())] or "    "


def with_earlier(block: Block, earlier: Sequence[Block], tested: Collection[str] = ()) -> Block:
    """The block below the definitions of earlier blocks that it or its tests use and it does not make itself,
    transitively."""
    tree = parse(block.text)
    wanted = missing(block.text) | (set(tested) - bound(tree.body) if tree else set())
    if not wanted or not earlier:
        return block
    home: dict[str, tuple[int, int]] = {}  # the last statement that binds a name, by block and place
    sources: dict[tuple[int, int], str] = {}
    for number, other in enumerate(earlier):
        tree = parse(other.text)
        for place, node in enumerate(tree.body if tree else []):
            if isinstance(node, _KEPT):
                home |= dict.fromkeys(bound([node]), (number, place))
                sources[number, place] = lines_of(other.text, node)
    taken: set[tuple[int, int]] = set()
    left, seen = list(wanted), set(wanted)
    while left:
        where = home.get(left.pop())
        if where and where not in taken:
            taken.add(where)
            further = missing(sources[where]) - seen
            left += further
            seen |= further
    parts = [sources[where] for where in sorted(taken)]
    return replace(block, text=joined("\n\n".join(parts), block.text))


def _levelled(block: Block) -> Block:
    """The block without an indent that all of it has."""
    level = textwrap.dedent(block.text)
    return replace(block, text=level) if level != block.text and not parse(block.text) and parse(level) else block


def joined(prefix: str, program: str) -> str:
    """The program below its prefix, `from __future__` first."""
    if not prefix.strip():
        return program
    head, early = without_futures(prefix)
    body, late = without_futures(program)
    return "\n".join([*dict.fromkeys([*early, *late]), head.strip("\n"), body])
