"""The trusted side: the process that runs a benchmark's tests and asks the program's process for every value."""

import ast
import builtins
from collections.abc import Callable, Collection, Iterator
from typing import Any

from marti_ext.verifiers.sandbox.codec import BrokenMessageError, decode, decode_error, encode
from marti_ext.verifiers.sandbox.program import refuse

Ask = Callable[[dict[str, Any]], Any]
"""Sends one question to the program's process and gives its reply, {"value": ...} or {"error": ...}."""


class Remote:
    """Something that lives in the program's process. Equal only to itself: no program decides what == says."""

    __slots__ = ("_ask", "_number")

    def __init__(self, number: int, ask: Ask) -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_ask", ask)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._do("call", arguments=_encoded(arguments), options=_encoded(options))

    def __iter__(self) -> Iterator[Any]:
        remote = self._do("iterate")
        while batch := remote._do("next"):
            yield from batch

    def __getattr__(self, name: str) -> Any:
        return self._do("get", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._do("set", name=name, value=_encoded(value))

    def __len__(self) -> int:
        return int(self._do("len"))

    def __bool__(self) -> bool:
        return bool(self._do("bool"))

    def __str__(self) -> str:
        return str(self._do("str"))

    def __repr__(self) -> str:
        return str(self._do("repr"))

    def _do(self, what: str, **more: Any) -> Any:
        return _value(self._ask({"do": what, "on": self._number, **more}), self._ask)


def judge(tests: str, prelude: str, entry_points: Collection[str], ask: Ask) -> None:
    """Run the tests; they see the program's functions as if they were their own. Raises what the tests raise.

    `prelude` is what the benchmark itself defines. Names that neither it nor the tests nor Python define are the
    program's, and so are `entry_points`, whoever else defines them.
    """
    namespace: dict[str, Any] = {"__name__": "tests"}
    if prelude:
        exec(compile(prelude, "<prelude>", "exec", dont_inherit=True), namespace)
    tree = ast.parse(tests)
    for name in (*_foreign_names(tree, namespace), *entry_points):
        namespace[name] = _value(ask({"do": "name", "name": name}), ask)
    exec(compile(tree, "<tests>", "exec", dont_inherit=True), namespace)


def _foreign_names(tree: ast.AST, namespace: Collection[str]) -> list[str]:
    """The names that tests use and do not define."""
    used: dict[str, None] = {}
    own: set[str] = {*namespace, *vars(builtins)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                used[node.id] = None
            else:
                own.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.alias):
            own.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
    return [name for name in used if name not in own]


def _encoded(value: Any) -> Any:
    if isinstance(value, Remote):
        return {"kept": object.__getattribute__(value, "_number")}
    return encode(value, lambda inner: inner._number if isinstance(inner, Remote) else refuse(inner))


def _value(reply: Any, ask: Ask) -> Any:
    """The value of a reply. Raises the error that it tells of, and BrokenMessageError."""
    if isinstance(reply, dict) and len(reply) == 1:
        if "error" in reply:
            raise decode_error(reply["error"])
        if "value" in reply:
            return decode(reply["value"], lambda number: _remote(number, ask))
    raise BrokenMessageError("no reply")


def _remote(number: Any, ask: Ask) -> Remote:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BrokenMessageError("no number of a kept value")
    return Remote(number, ask)
