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
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 200  # nested containers
_PLAIN_INT = 1 << 62  # larger ones are written in base 16, which takes linear time and has no limit of digits
Plain = Any  # what json.dumps takes
Keep = Callable[[Any], int]


class NotDataError(TypeError):
    """The value cannot be written down, and nobody keeps it."""


class BrokenMessageError(ValueError):
    """The other side sent what no honest one sends."""


def encode(value: Any, keep: Keep, depth: int = 0) -> Plain:
    """The value as JSON values; `keep` takes what is no data and gives its number (or raises NotDataError)."""
    kind = type(value)
    if kind in _ATOMS and (kind is not int or -_PLAIN_INT < value < _PLAIN_INT):
        return value
    if depth > MAX_DEPTH:
        raise NotDataError("nested too deeply")

    def inner(item: Any) -> Plain:
        return item if type(item) in _SHORT else encode(item, keep, depth + 1)

    if kind is list:
        return [inner(item) for item in value]
    for base, write in _WRITERS:
        if isinstance(value, base):
            return write(value, inner)
    if isinstance(value, type) and value in _TYPE_NAMES:
        return {"type": _TYPE_NAMES[value]}
    return _encode_array(value, inner) or {"kept": keep(value)}


def _encode_array(value: Any, inner: Callable[[Any], Plain]) -> Plain | None:
    """What numpy has, as Python has it; None for what is not numpy's."""
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.generic):
        return {"scalar": inner(value.item())}
    return {"array": inner(value.tolist())} if numpy and isinstance(value, numpy.ndarray) else None


def decode(plain: Plain, kept: Callable[[int], Any]) -> Any:
    """The value of JSON values. Raises BrokenMessageError for anything that `encode` does not write."""
    kind = type(plain)
    if kind in _ATOMS:
        return plain

    def inner(item: Any) -> Any:
        return item if type(item) in _ATOMS else decode(item, kept)

    if kind is list:
        return [inner(item) for item in plain]
    if kind is not dict or len(plain) != 1:
        raise BrokenMessageError("no value")
    [(tag, content)] = plain.items()
    if tag == "kept":
        if type(content) is not int or content < 0:
            raise BrokenMessageError("no number of a kept value")
        return kept(content)
    if tag not in _READERS:
        raise BrokenMessageError(f"no type {tag!r:.40}")
    try:
        return _READERS[tag](content, inner)
    except BrokenMessageError:
        raise
    except Exception as error:  # whatever a constructor makes of wrong parts
        raise BrokenMessageError(f"no {tag}: {type(error).__name__}") from error


def encode_error(error: BaseException) -> Plain:
    """The nearest built-in class of an error, its arguments if they are data, and its words."""
    kind = next(c.__name__ for c in type(error).__mro__ if _BUILT_IN_TYPES.get(c.__name__) is c)
    try:
        words = str(error)[:500]
    except BaseException:
        words = ""
    try:
        arguments = encode(error.args, _refuse) if kind == type(error).__name__ else None
    except BaseException:
        arguments = None
    return [kind, arguments, words if kind == type(error).__name__ else f"{type(error).__name__}: {words}"]


def decode_error(plain: Plain) -> tuple[str, str, Exception | None]:
    """The name of a built-in class, words, and the error to raise, None for SystemExit and the like.

    Raises BrokenMessageError.
    """
    if type(plain) is not list or len(plain) != 3 or type(plain[0]) is not str or type(plain[2]) is not str:
        raise BrokenMessageError("no error")
    name, arguments, words = plain
    kind = _BUILT_IN_TYPES.get(name)
    if kind is None or not issubclass(kind, BaseException):
        raise BrokenMessageError("no error")
    if not issubclass(kind, Exception):
        return name, words, None
    values = (words,) if arguments is None else decode(arguments, _nothing_kept)
    try:
        return name, words, kind(*values)
    except Exception:  # UnicodeDecodeError and its like want more than words
        return name, words, _bare(kind, words)


def _bare(kind: type[Exception], words: str) -> Exception:
    try:
        error = kind.__new__(kind)
    except TypeError:
        return RuntimeError(f"{kind.__name__}: {words}")
    error.args = (words,)
    return error


def write_message(descriptor: int, plain: Plain) -> None:
    """Raises OSError."""
    data = memoryview(message(plain))
    while data:
        data = data[os.write(descriptor, data) :]


def message(plain: Plain) -> bytes:
    data = json.dumps(plain).encode()
    return struct.pack("!I", len(data)) + data


def read_message(read: Callable[[int], bytes]) -> Plain:
    """`read` gives so many bytes, or raises what it likes. Raises BrokenMessageError for what is no JSON."""
    [length] = struct.unpack("!I", read(4))
    data = read(length)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BrokenMessageError("no JSON") from error


def _refuse(value: Any) -> int:
    raise NotDataError(type(value).__name__)


def _nothing_kept(number: int) -> Any:
    raise BrokenMessageError(f"no kept value is expected here, found {number}")


def _sequence(tag: str, kind: Any) -> tuple[Any, Any]:
    return kind, lambda value, inner: {tag: [inner(item) for item in kind.__iter__(value)]}


def _mapping(tag: str, kind: Any) -> tuple[Any, Any]:
    return kind, lambda value, inner: {tag: [[inner(k), inner(v)] for k, v in kind.items(value)]}


_ATOMS = frozenset({type(None), bool, int, float, str})  # JSON has them; Python's JSON has nan and inf, too
_SHORT = _ATOMS - {int}
_BUILT_IN_TYPES: Mapping[str, Any] = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}
_TYPE_NAMES = {value: name for name, value in _BUILT_IN_TYPES.items()}

# In this order: subclasses before their bases. An instance of a class of the program's own is written by the methods
# of the built-in class below it, so that what it overrides does not count.
_WRITERS: list[tuple[Any, Callable[[Any, Callable[[Any], Plain]], Plain]]] = [
    (int, lambda value, inner: {"int": hex(int.__index__(value))}),
    (float, lambda value, inner: float.__pos__(value)),
    (str, lambda value, inner: str.__str__(value)),
    (complex, lambda value, inner: {"complex": [complex.__pos__(value).real, complex.__pos__(value).imag]}),
    (bytes, lambda value, inner: {"bytes": bytes.hex(value)}),
    (bytearray, lambda value, inner: {"bytearray": bytearray.hex(value)}),
    (list, lambda value, inner: [inner(item) for item in list.__iter__(value)]),
    _sequence("tuple", tuple),
    _sequence("set", set),
    _sequence("frozenset", frozenset),
    _sequence("deque", collections.deque),
    _mapping("Counter", collections.Counter),
    _mapping("OrderedDict", collections.OrderedDict),
    _mapping("dict", dict),
    _sequence("keys", type({}.keys())),
    _sequence("values", type({}.values())),
    _sequence("items", type({}.items())),
    (range, lambda value, inner: {"range": [hex(part) for part in (value.start, value.stop, value.step)]}),
    (decimal.Decimal, lambda value, inner: {"Decimal": decimal.Decimal.__str__(value)}),
    (fractions.Fraction, lambda value, inner: {"Fraction": [hex(value.numerator), hex(value.denominator)]}),
    (datetime.datetime, lambda value, inner: {"datetime": datetime.datetime.isoformat(value)}),
    (datetime.date, lambda value, inner: {"date": datetime.date.isoformat(value)}),
    (datetime.time, lambda value, inner: {"time": datetime.time.isoformat(value)}),
    (datetime.timedelta, lambda value, inner: {"timedelta": [value.days, value.seconds, value.microseconds]}),
]


def _array(content: Any, inner: Callable[[Any], Any]) -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.array(inner(content)) if numpy else inner(content)


_READERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "int": lambda c, inner: int(c, 16),
    "complex": lambda c, inner: complex(float(c[0]), float(c[1])),
    "bytes": lambda c, inner: bytes.fromhex(c),
    "bytearray": lambda c, inner: bytearray.fromhex(c),
    "tuple": lambda c, inner: tuple([inner(item) for item in c]),
    "set": lambda c, inner: {inner(item) for item in c},
    "frozenset": lambda c, inner: frozenset([inner(item) for item in c]),
    "deque": lambda c, inner: collections.deque([inner(item) for item in c]),
    "Counter": lambda c, inner: collections.Counter({inner(k): inner(v) for k, v in c}),
    "OrderedDict": lambda c, inner: collections.OrderedDict([(inner(k), inner(v)) for k, v in c]),
    "dict": lambda c, inner: {inner(k): inner(v) for k, v in c},
    "keys": lambda c, inner: dict.fromkeys([inner(item) for item in c]).keys(),
    "values": lambda c, inner: dict(enumerate([inner(item) for item in c])).values(),
    "items": lambda c, inner: dict([inner(item) for item in c]).items(),
    "range": lambda c, inner: range(*[int(part, 16) for part in c]),
    "Decimal": lambda c, inner: decimal.Decimal(c),
    "Fraction": lambda c, inner: fractions.Fraction(*[int(part, 16) for part in c]),
    "datetime": lambda c, inner: datetime.datetime.fromisoformat(c),
    "date": lambda c, inner: datetime.date.fromisoformat(c),
    "time": lambda c, inner: datetime.time.fromisoformat(c),
    "timedelta": lambda c, inner: datetime.timedelta(*c),
    "type": lambda c, inner: _BUILT_IN_TYPES[c],
    "array": _array,
    "scalar": lambda c, inner: inner(c),
}
