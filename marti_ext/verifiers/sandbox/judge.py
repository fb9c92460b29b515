"""The trusted side: the process that runs a benchmark's tests and asks the program's process for every value."""

import builtins
import symtable
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from marti_ext.verifiers.sandbox.codec import (
    BrokenMessageError,
    NotDataError,
    decode,
    decode_error,
    encode,
)
from marti_ext.verifiers.sandbox.limits import ProgramFailure

MODULE = "tests"


class Link(Protocol):
    """The way to the program's process."""

    def ask(self, question: dict[str, Any] | None) -> Any:
        """The reply to one question, to None the one that comes unasked. Raises ProgramFailure."""
        ...


class Program:
    """The program's process, asked for values. Once it has failed it stays so, whatever the tests catch."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.failure: ProgramFailure | None = None
        self.used = False
        self.raised: Exception | None = None  # the program's last error that the tests saw

    def load(self) -> None:
        """Wait until the program has run once, so that its functions are there. Raises what it raises."""
        self._ask(None)

    def look_up(self, names: Collection[str]) -> dict[str, Any]:
        """What the program calls by these names, without those that it does not know."""
        found = self._ask({"do": "names", "names": list(names)})
        if type(found) is not dict:
            raise self._broken("no names")
        return {name: found[name] for name in names if name in found}

    def do(self, what: str, number: int, **more: Any) -> Any:
        self.used = True
        return self._ask({"do": what, "on": number, **more})

    def written(self, value: Any) -> Any:
        """A value of the tests as the program's process reads it."""
        try:
            return encode(value, _number_of)
        except NotDataError as error:
            raise self._fail(ProgramFailure(f"the tests hand over what is no data: {error}", graded=False)) from None

    def _ask(self, question: dict[str, Any] | None) -> Any:
        if self.failure:
            raise self.failure
        try:
            reply = self._link.ask(question)
            if type(reply) is dict and len(reply) == 1:
                if "value" in reply:
                    return decode(reply["value"], lambda number: Remote(number, self))
                if "error" in reply:
                    name, words, error = decode_error(reply["error"])
                    self.raised = error
                    raise error or self._fail(ProgramFailure(f"{name}: {words}"))
        except BrokenMessageError as error:
            raise self._broken(str(error)) from None
        except ProgramFailure as failure:
            raise self._fail(failure) from None
        except MemoryError:
            raise self._fail(ProgramFailure("over the memory limit")) from None
        raise self._broken("no reply")

    def _broken(self, words: str) -> ProgramFailure:
        return self._fail(ProgramFailure(f"its results cannot be read: {words}"))

    def _fail(self, failure: ProgramFailure) -> ProgramFailure:
        self.failure = self.failure or failure
        return self.failure


class Remote:
    """Something that lives in the program's process. Equal only to itself: no program decides what == says."""

    __slots__ = ("_number", "_program")

    def __init__(self, number: int, program: Program) -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_program", program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        written = self._program.written
        return self._do("call", arguments=written(arguments), options=written(options))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._do("iterate")
        return iterator if isinstance(iterator, Remote) else iter(iterator)

    def __next__(self) -> Any:
        return self._do("next")

    def __getattr__(self, name: str) -> Any:
        # Others of these would be asked for by code in C, which trusts what it gets: numpy reads memory that
        # __array_interface__ points to.
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return self._do("get", name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._do("set", name=name, value=self._program.written(value))

    def __getitem__(self, key: Any) -> Any:
        return self._do("item", key=self._program.written(key))

    def __len__(self) -> int:
        return int(self._do("len"))

    def __bool__(self) -> bool:
        return bool(self._do("bool"))

    def __str__(self) -> str:
        return str(self._do("str"))

    def __repr__(self) -> str:
        return str(self._do("repr"))

    def _do(self, what: str, **more: Any) -> Any:
        return self._program.do(what, self._number, **more)


def judge(tests: str, prelude: str, entry_points: Collection[str], program: Program) -> None:
    """Run the tests; they see the program's functions as if they were their own. Raises what the tests raise.

    `prelude` is what the benchmark itself defines. Names that neither it nor the tests nor Python define are the
    program's, and so are `entry_points`, whoever else defines them. Raises ProgramFailure where tests use nothing of
    the program.
    """
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    namespace = vars(module)
    try:
        exec(compile(prelude, "<prelude>", "exec", dont_inherit=True), namespace)
        code = compile(tests, f"<{MODULE}>", "exec", dont_inherit=True)
        wanted = dict.fromkeys([*_foreign_names(tests, namespace), *entry_points])
    except BaseException as error:
        raise ProgramFailure(f"the benchmark's own code: {type(error).__name__}: {error}", graded=False) from error
    program.load()
    namespace.update(program.look_up(wanted))
    try:
        exec(code, namespace)
    except ImportError as error:
        if error is program.raised:
            raise
        raise ProgramFailure(f"the tests cannot import what they need: {error}", graded=False) from error
    if program.failure:
        raise program.failure
    if not program.used:
        raise ProgramFailure("the tests use nothing of the program", graded=False)


def _foreign_names(tests: str, namespace: Collection[str]) -> list[str]:
    """The names that tests use and do not define."""
    used: dict[str, None] = {}
    own = {*namespace, *vars(builtins)}
    tables = [symtable.symtable(tests, f"<{MODULE}>", "exec")]
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    own.add(symbol.get_name())
                elif symbol.is_referenced():
                    used[symbol.get_name()] = None
    return [name for name in used if name not in own]


def _number_of(value: Any) -> int:
    if isinstance(value, Remote):
        number: int = value._number
        return number
    raise NotDataError(type(value).__name__)
