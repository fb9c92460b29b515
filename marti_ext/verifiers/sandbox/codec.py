"""Values on their way between the tests and the program: data only, as JSON with the type beside the value.

Nothing that is read can run code, and no object of the program's own classes ever reaches the tests: a value is
written down as the built-in type below it, and whatever is no data stays where it is, under a number.
"""

import builtins
import collections
import datetime
import decimal
import fractions
import json
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 200  # nested containers
Plain = Any  # what json.dumps takes


class NotDataError(TypeError):
    """The value cannot be written down, and nobody keeps it."""


class BrokenMessageError(ValueError):
    """The other side sent what no honest one sends."""


def encode(value: Any, keep: Callable[[Any], int], depth: int = 0) -> Plain:
    """The value as JSON values; `keep` takes what is no data and gives its number (or raises NotDataError)."""
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        raise NotDataError("nested too deeply")

    def inner(item: Any) -> Plain:
        return encode(item, keep, depth + 1)

    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value, inner)
    if isinstance(value, type) and _built_in_types.get(value.__name__) is value:
        return {"type": value.__name__}
    if numpy := sys.modules.get("numpy"):
        if isinstance(value, numpy.generic):
            return inner(value.item())
        if isinstance(value, numpy.ndarray):
            return {"array": inner(value.tolist())}
    return {"kept": keep(value)}


def decode(plain: Plain, kept: Callable[[int], Any]) -> Any:
    """The value of JSON values. Raises BrokenMessageError for anything that `encode` does not write."""
    if plain is None or isinstance(plain, bool):
        return plain
    if not isinstance(plain, dict) or len(plain) != 1:
        raise BrokenMessageError("no value")
    [(tag, content)] = plain.items()
    if tag == "kept":
        return kept(content)
    if tag not in _READERS:
        raise BrokenMessageError(f"no type {tag!r:.40}")
    try:
        return _READERS[tag](content, lambda item: decode(item, kept))
    except BrokenMessageError:
        raise
    except Exception as error:  # whatever a constructor makes of wrong parts
        raise BrokenMessageError(f"no {tag}: {type(error).__name__}") from error


def encode_error(error: BaseException) -> list[str]:
    """The nearest built-in class of an error, and its words."""
    kind = next(c.__name__ for c in type(error).__mro__ if vars(builtins).get(c.__name__) is c)
    return [kind, f"{type(error).__name__}: {error}"[:500] if kind != type(error).__name__ else str(error)[:500]]


def decode_error(plain: Plain) -> Exception:
    """An error to raise. SystemExit and the like become RuntimeError: they must not end the tests."""
    try:
        kind, words = plain
        found = vars(builtins).get(kind)
        if isinstance(found, type) and issubclass(found, Exception):
            return found(str(words))
        return RuntimeError(f"{kind}: {words}")
    except (TypeError, ValueError):
        return RuntimeError("an error that cannot be read")


def write_message(descriptor: int, plain: Plain) -> None:
    """Raises OSError."""
    data = json.dumps(plain).encode()
    data = struct.pack("!I", len(data)) + data
    while data:
        data = data[os.write(descriptor, data) :]


def read_message(read: Callable[[int], bytes], limit: int) -> Plain:
    """`read` gives so many bytes. Raises EOFError, or BrokenMessageError for one longer than `limit` or no JSON."""
    [length] = struct.unpack("!I", read(4))
    if length > limit:
        raise BrokenMessageError(f"a message of {length} bytes")
    try:
        return json.loads(read(length))
    except (ValueError, RecursionError) as error:
        raise BrokenMessageError("no JSON") from error


def _sequence(tag: str, kind: Any) -> tuple[Any, Any]:
    return kind, lambda value, inner: {tag: [inner(item) for item in kind.__iter__(value)]}


def _mapping(tag: str, kind: Any) -> tuple[Any, Any]:
    return kind, lambda value, inner: {tag: [[inner(k), inner(v)] for k, v in kind.items(value)]}


# In this order: subclasses before their bases. An instance of a class of the program's own is written by the methods
# of the built-in class below it, so that what it overrides does not count.
_WRITERS: list[tuple[Any, Callable[[Any, Callable[[Any], Plain]], Plain]]] = [
    (int, lambda value, inner: {"int": hex(int.__index__(value))}),
    (float, lambda value, inner: {"float": float.hex(float.__pos__(value))}),
    (str, lambda value, inner: {"str": str.__getitem__(value, slice(None))}),
    (complex, lambda value, inner: {"complex": [complex.__pos__(value).real, complex.__pos__(value).imag]}),
    (bytes, lambda value, inner: {"bytes": bytes.hex(value)}),
    (bytearray, lambda value, inner: {"bytearray": bytearray.hex(value)}),
    _sequence("list", list),
    _sequence("tuple", tuple),
    _sequence("set", set),
    _sequence("frozenset", frozenset),
    _sequence("deque", collections.deque),
    _mapping("Counter", collections.Counter),
    _mapping("OrderedDict", collections.OrderedDict),
    _mapping("dict", dict),
    (range, lambda value, inner: {"range": [hex(part) for part in (value.start, value.stop, value.step)]}),
    (decimal.Decimal, lambda value, inner: {"Decimal": decimal.Decimal.__str__(value)}),
    (fractions.Fraction, lambda value, inner: {"Fraction": [hex(value.numerator), hex(value.denominator)]}),
    (datetime.datetime, lambda value, inner: {"datetime": datetime.datetime.isoformat(value)}),
    (datetime.date, lambda value, inner: {"date": datetime.date.isoformat(value)}),
    (datetime.time, lambda value, inner: {"time": datetime.time.isoformat(value)}),
    (datetime.timedelta, lambda value, inner: {"timedelta": [value.days, value.seconds, value.microseconds]}),
]


_built_in_types = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}


def _array(content: Any, inner: Callable[[Any], Any]) -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.array(inner(content)) if numpy else inner(content)


_READERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "int": lambda c, inner: int(c, 16),
    "float": lambda c, inner: float.fromhex(c),
    "str": lambda c, inner: str.__getitem__(c, slice(None)),
    "complex": lambda c, inner: complex(float(c[0]), float(c[1])),
    "bytes": lambda c, inner: bytes.fromhex(c),
    "bytearray": lambda c, inner: bytearray.fromhex(c),
    "list": lambda c, inner: [inner(item) for item in c],
    "tuple": lambda c, inner: tuple(inner(item) for item in c),
    "set": lambda c, inner: {inner(item) for item in c},
    "frozenset": lambda c, inner: frozenset(inner(item) for item in c),
    "deque": lambda c, inner: collections.deque(inner(item) for item in c),
    "Counter": lambda c, inner: collections.Counter({inner(k): inner(v) for k, v in c}),
    "OrderedDict": lambda c, inner: collections.OrderedDict((inner(k), inner(v)) for k, v in c),
    "dict": lambda c, inner: {inner(k): inner(v) for k, v in c},
    "range": lambda c, inner: range(*(int(part, 16) for part in c)),
    "Decimal": lambda c, inner: decimal.Decimal(c),
    "Fraction": lambda c, inner: fractions.Fraction(*(int(part, 16) for part in c)),
    "datetime": lambda c, inner: datetime.datetime.fromisoformat(c),
    "date": lambda c, inner: datetime.date.fromisoformat(c),
    "time": lambda c, inner: datetime.time.fromisoformat(c),
    "timedelta": lambda c, inner: datetime.timedelta(*c),
    "type": lambda c, inner: _built_in_types[c],
    "array": _array,
}
