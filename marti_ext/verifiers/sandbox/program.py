"""The untrusted side: the process that runs a model's program. It is confined before the first line of it runs."""

import builtins
import linecache
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from marti_ext.verifiers.sandbox.codec import NotDataError, decode, encode, encode_error, read_message, write_message

MODULE = "solution"
_BATCH = 100  # items of an iterator that are sent at once


def serve_functions(source: str, channel: int) -> NoReturn:
    """Run the program as a module, then answer calls of its functions until the tests are over."""
    kept: list[Any] = []

    def keep(value: Any) -> int:
        kept.append(value)
        return len(kept) - 1

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = os.read(channel, count - len(data))
            if not chunk:
                os._exit(0)
            data += chunk
        return data

    namespace = _module(source, MODULE)
    try:
        exec(_compiled(source), namespace)
        reply: Any = {"value": None}
    except BaseException as error:  # whatever it raises is told to the tests, which fail by it
        reply = {"error": encode_error(error)}
    while True:
        write_message(channel, reply)
        request = read_message(read, 1 << 31)
        try:
            value = _answer(request, namespace, kept)
            reply = {"value": encode(value, keep)}
        except BaseException as error:
            reply = {"error": encode_error(error)}


def _answer(request: dict[str, Any], namespace: dict[str, Any], kept: list[Any]) -> Any:
    """What one question of the tests comes to."""

    def value(plain: Any) -> Any:
        return decode(plain, kept.__getitem__)

    if request["do"] == "name":
        name = request["name"]
        if name not in namespace:
            raise NameError(f"name {name!r} is not defined")
        return namespace[name]
    target = kept[request["on"]]
    if request["do"] == "call":
        return target(*value(request["arguments"]), **value(request["options"]))
    if request["do"] == "get":
        return getattr(target, request["name"])
    if request["do"] == "set":
        return setattr(target, request["name"], value(request["value"]))
    if request["do"] == "iterate":
        return _Iterator(iter(target))
    if request["do"] == "next":
        return [item for item, _ in zip(target.iterator, range(_BATCH), strict=False)]
    return getattr(builtins, request["do"])(target)  # len, str, repr, bool


class _Iterator:
    """An iterator is no data, and must not be written down as such."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator


def run_script(source: str) -> NoReturn:
    """Run the program as a script on standard input and output, and end this process with its exit status."""
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    namespace = _module(source, "__main__")
    try:
        exec(_compiled(source), namespace)
        threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads, as at any exit
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    except MemoryError:
        status = 137
    except BaseException:
        status = 1
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        status = status or 1
    os._exit(status & 0xFF)


def _compiled(source: str) -> types.CodeType:
    return compile(source, f"<{MODULE}>", "exec", dont_inherit=True)


def _module(source: str, name: str) -> dict[str, Any]:
    """The namespace of a module that dataclasses, pickle and inspect find again."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    linecache.cache[f"<{MODULE}>"] = (len(source), None, source.splitlines(keepends=True), f"<{MODULE}>")
    return module.__dict__


def refuse(value: Any) -> int:
    """For the side that keeps nothing."""
    raise NotDataError(f"{type(value).__name__} cannot be handed to the program")


Keep = Callable[[Any], int]
