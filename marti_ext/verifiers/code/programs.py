"""From the blocks of a reply to the program that is run."""

import ast
from collections.abc import Sequence

from marti_ext.verifiers.code.blocks import parses


def defines(code: str, name: str) -> bool:
    """Whether the code defines the name at its top level."""
    return name in _definitions(code)


def chosen(blocks: Sequence[str], entry_point: str, *, last: bool) -> int:
    """The place of the block that counts: the last (or first) that defines the entry point, else the last (first)."""
    order = range(len(blocks) - 1, -1, -1) if last else range(len(blocks))
    return next((place for place in order if entry_point and defines(blocks[place], entry_point)), order[0])


def with_helpers(blocks: Sequence[str], place: int) -> str:
    """The block, behind those definitions of earlier blocks that it uses and does not have itself."""
    code = blocks[place]
    earlier: dict[str, str] = {}
    for block in blocks[:place]:
        earlier.update(_definitions(block))
    needed: dict[str, str] = {}
    missing = _missing(code)
    while names := [name for name in missing if name in earlier and name not in needed]:
        needed.update((name, earlier[name]) for name in names)
        missing = [used for name in names for used in _missing(earlier[name])]
    parts = [text for name, text in earlier.items() if name in needed]
    return "\n\n".join([*dict.fromkeys(parts), code])


def completed(prelude: str, entry_point: str, code: str) -> str:
    """A program for the entry point: what the prompt has before it, then the code; a mere body goes under the prompt's
    signature."""
    if not prelude:
        return code
    if not defines(code, entry_point):
        for body in (code, "\n".join(f"    {line}" for line in code.split("\n"))):
            # A body starts indented, or returns outside of a function, which compiling would refuse.
            if (not parses(code) or _returns(code)) and parses(prelude + body):
                return prelude + body
    return _joined(prelude, code)


def same_program(one: str, other: str) -> bool:
    """Whether two programs differ at most in comments, blanks and docstrings."""
    trees = [_tree(code) for code in (one, other)]
    return one == other if None in trees else trees[0] == trees[1]


def _joined(prelude: str, code: str) -> str:
    """The prompt's imports and helpers before the code, `from __future__` lines first."""
    future = [line for line in code.split("\n") if line.startswith("from __future__")]
    rest = "\n".join(line for line in code.split("\n") if not line.startswith("from __future__"))
    return "\n".join([*future, prelude, rest])


def _definitions(code: str) -> dict[str, str]:
    """{name: source} of what the code defines at its top level."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, str] = {}
    for node in tree.body:
        source = ast.unparse(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = source
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0]: source for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {
                name.id: source for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = source
    return found


def _missing(code: str) -> list[str]:
    """The names that the code uses and gives no value anywhere."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    used = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    own = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return [name for name in dict.fromkeys(used) if name not in own | _definitions(code).keys()]


def _returns(code: str) -> bool:
    """Whether something is returned outside of any function."""
    try:
        compile(code, "<body>", "exec")
    except SyntaxError as error:
        return "outside function" in str(error)
    except (ValueError, RecursionError, MemoryError):
        pass
    return False


def _tree(code: str) -> str | None:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)
