"""The untrusted side: the process that runs a model's program. It is confined before the first line of it runs."""

import atexit
import builtins
import linecache
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from marti_ext.verifiers.sandbox.codec import decode, encode, encode_error, read_message, write_message

MODULE = "solution"
MEMORY_STATUS = 137  # of a script that ran out of memory


class _Kept:
    """What is no data stays here; one number for one object."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._numbers: dict[int, int] = {}  # id of a value, which lives as long as this does

    def keep(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def get(self, number: int) -> Any:
        return self._values[number]


def serve_functions(source: str, channel: int) -> NoReturn:
    """Run the program as a module, then answer calls of its functions until the tests are over."""
    kept = _Kept()

    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = os.read(channel, min(count - len(data), 1 << 20))
            if not chunk:
                os._exit(0)
            data += chunk
        return bytes(data)

    namespace = _module(source, MODULE)
    reply = _reply(lambda: exec(_compiled(source), namespace), kept)
    while True:
        write_message(channel, reply)
        question = read_message(read)
        reply = _reply(lambda question=question: _answer(question, namespace, kept), kept)  # type: ignore[misc]


def _reply(work: Callable[[], Any], kept: _Kept) -> dict[str, Any]:
    try:
        return {"value": encode(work(), kept.keep)}
    except BaseException as error:  # whatever it raises is told to the tests
        return {"error": encode_error(error)}


def _answer(question: dict[str, Any], namespace: dict[str, Any], kept: _Kept) -> Any:
    """What one question of the tests comes to."""

    def value(name: str) -> Any:
        return decode(question[name], kept.get)

    what = question["do"]
    if what == "names":
        return {name: namespace[name] for name in question["names"] if name in namespace}
    target = kept.get(question["on"])
    if what == "call":
        return target(*value("arguments"), **value("options"))
    if what == "get":
        return getattr(target, question["name"])
    if what == "set":
        return setattr(target, question["name"], value("value"))
    if what == "item":
        return target[value("key")]
    if what == "iterate":
        return iter(target)
    return getattr(builtins, what)(target)  # next, len, str, repr, bool


def run_script(source: str) -> NoReturn:
    """Run the program as a script on standard input and output, and end this process with its exit status."""
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__ = sys.stdin, sys.stdout  # type: ignore[misc]
    namespace = _module(source, "__main__")
    status = _status(lambda: exec(_compiled(source), namespace))
    # As at any exit: threads come to their end, then what the program registered runs.
    status = status or _status(threading._shutdown)  # type: ignore[attr-defined]
    _status(atexit._run_exitfuncs)
    status = _status(sys.stdout.flush) or status
    os._exit(status & 0xFF)


def _status(work: Callable[[], Any]) -> int:
    """The exit status that this work would end Python with."""
    try:
        work()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    except MemoryError:
        return MEMORY_STATUS
    except BaseException:
        return 1
    return 0


def _compiled(source: str) -> types.CodeType:
    return compile(source, f"<{MODULE}>", "exec", dont_inherit=True)


def _module(source: str, name: str) -> dict[str, Any]:
    """The namespace of a module that dataclasses, pickle and inspect find again."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.argv = [f"{MODULE}.py"]
    linecache.cache[f"<{MODULE}>"] = (len(source), None, source.splitlines(keepends=True), f"<{MODULE}>")
    return vars(module)
