"""What Python source says about itself, without running it."""

import ast
import builtins
import re
import symtable
import textwrap
import threading
from collections.abc import Iterable, Iterator

MAX_SOURCE = 200_000  # characters; nobody writes a longer answer
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BUILTINS = frozenset(dir(builtins))
# What a parser may make of hostile text.
_BAD_SOURCE = (SyntaxError, ValueError, RecursionError, MemoryError)


# CPython 3.11 has one count of a tree's depth for all threads that parse, and fails with a SystemError if two meet.
_ONE_AT_A_TIME = threading.Lock()


def _tree(source: str) -> ast.Module:
    with _ONE_AT_A_TIME:
        return ast.parse(source)


def parse(source: str) -> ast.Module | None:
    """The syntax tree, None where the text is no Python."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        return _tree(source)
    except _BAD_SOURCE:
        return None


def is_code(text: str) -> bool:
    """Whether the text is Python that does something: a program or the body of a function, no word or number."""
    tree = parse(text) or parse(under("def body():", text)) or parse(under("def body():", text, first_line_only=True))
    return tree is not None and any(_acts(node) for node in _statements(tree.body))


def before_prose(text: str) -> str:
    """The paragraphs before the first line that is no Python, "" where that line starts none."""
    try:
        _tree(text[:MAX_SOURCE])
    except SyntaxError as error:
        lines = text.split("\n")[: error.lineno or 1]
        words = lines.pop()
        return "\n".join(lines) if lines and not lines[-1].strip() and words[:1].strip() else ""
    except _BAD_SOURCE:
        return ""
    return text


def under(header: str, body: str, indent: str = "    ", *, first_line_only: bool = False) -> str:
    """The body below the header of a function. `first_line_only`: only its first line had lost its indent."""
    body = body.strip("\n")
    if first_line_only:
        return f"{header}\n{indent}{body.lstrip()}\n"
    return f"{header}\n{textwrap.indent(textwrap.dedent(body), indent)}\n"


def is_body(source: str) -> bool:
    """Whether a `return` or `yield` stands outside every function: the text is the body of one."""
    tree = parse(source)
    return tree is not None and any(isinstance(node, ast.Return | ast.Yield) for node in _same_scope(tree.body))


def defines(source: str, name: str) -> bool:
    """Whether a module binds the name other than by an import. Broken source is read by its words."""
    tree = parse(source)
    if tree is not None:
        return name in bound(tree.body, imports=False)
    word = re.escape(name)
    return bool(re.search(rf"^[ \t]*(?:(?:async )?def|class)[ \t]+{word}\b|^{word}[ \t]*=[^=]", source, re.MULTILINE))


def bound(nodes: Iterable[ast.AST], *, imports: bool = True) -> set[str]:
    """The names that statements bind in their own scope."""
    names: set[str] = set()
    for node in _same_scope(nodes):
        if isinstance(node, _SCOPES):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif imports and isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def missing(source: str) -> set[str]:
    """The names that a module uses and that neither it nor Python defines; none for broken source."""
    tree = parse(source)
    try:
        table = symtable.symtable(source, "<program>", "exec")
    except _BAD_SOURCE:
        return set()
    used = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    tables = list(table.get_children())
    while tables:
        inner = tables.pop()
        used |= {symbol.get_name() for symbol in inner.get_symbols() if symbol.is_referenced() and symbol.is_global()}
        tables += inner.get_children()
    return used - _BUILTINS - (bound(tree.body) if tree else set())


def lines_of(source: str, node: ast.stmt) -> str:
    """The whole lines of a statement, its decorators included."""
    decorators: list[ast.expr] = node.decorator_list if isinstance(node, _SCOPES) else []
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(source.split("\n")[start - 1 : node.end_lineno])


def without_futures(source: str) -> tuple[str, list[str]]:
    """The source without its `from __future__` imports, and those: they must be a program's first lines."""
    tree = parse(source)
    nodes = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"] if tree else []
    if not nodes:
        return source, []
    lines = source.split("\n")
    for node in nodes:
        end = node.end_lineno or node.lineno
        rest = lines[end - 1].encode()[node.end_col_offset :].decode().lstrip(" \t;")
        lines[node.lineno - 1 : end] = [rest, *[""] * (end - node.lineno)]
    return "\n".join(lines), [ast.unparse(node) for node in nodes]


def same_program(one: str, other: str) -> bool:
    """Whether two sources differ at most in comments, layout, docstrings and annotations of functions."""
    if one.strip() == other.strip():
        return True
    try:
        return _bare_dump(one) == _bare_dump(other)
    except _BAD_SOURCE:
        return False


def _bare_dump(source: str) -> str:
    """Raises what a parser raises."""
    tree = _tree(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _is_text(first.value):
                node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await | ast.Yield)
    return not isinstance(node, ast.AnnAssign) or node.value is not None  # "Answer: yes" is an annotation


def _statements(nodes: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, those of the stand-in function of `is_code` instead of itself."""
    [*_, last] = nodes or [ast.Expr(ast.Constant(0))]
    return last.body if isinstance(last, ast.FunctionDef) and last.name == "body" else nodes


def _same_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and what is in them, but for the insides of functions, classes and comprehensions."""
    left = list(nodes)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            left += ast.iter_child_nodes(node)
