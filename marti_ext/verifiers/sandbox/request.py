"""A request on its way from the server to the processes that it forks.

What the tests expect must never lie in the memory of a program that could look for it there. A request is one line of
JSON whose parts can be found without reading the rest. The server keeps the line in memory of its own, apart from
Python's objects, and reads only the head; the judge reads the program, forks the program's process, which gives that
memory back, and only then reads the tests.
"""

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

_FIRST_SIZE = 1 << 20


def request_parts(head: Mapping[str, Any], program: str, secrets: Sequence[Any]) -> dict[str, Any]:
    """What to write with json.dumps: the order and the separators matter. One secret for each run of the program."""
    return {"head": head, "program": program, **{f"secret {n}": s for n, s in enumerate(secrets)}, "end": 0}


class RequestLine:
    """The last line read from a pipe. Raises EOFError when the other end is closed."""

    def __init__(self, descriptor: int) -> None:
        self._buffer = mmap.mmap(-1, _FIRST_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._size = 0
        while self._buffer[max(self._size - 1, 0)] != ord("\n"):  # the parent sends one line, then waits
            if self._size == len(self._buffer):
                self._buffer.resize(2 * self._size)
            with memoryview(self._buffer) as whole, whole[self._size :] as rest:
                count = os.readv(descriptor, [rest])
            if not count:
                raise EOFError
            self._size += count

    def head(self) -> dict[str, Any]:
        head: dict[str, Any] = json.loads(self._between(b'{"head": ', b', "program": '))
        return head

    def program(self) -> str:
        return str(json.loads(self._between(b', "program": ', b', "secret 0": ')))

    def secret(self, number: int, count: int) -> Any:
        """That of one run, of `count`."""
        following = b', "end": ' if number == count - 1 else b', "secret %d": ' % (number + 1)
        return json.loads(self._between(b', "secret %d": ' % number, following))

    def forget(self) -> None:
        """Give the memory back."""
        self._buffer.close()

    def _between(self, before: bytes, after: bytes) -> bytes:
        # Inside a JSON string every quote has a backslash before it: these marks only stand between the parts.
        start = self._buffer.find(before, 0, self._size) + len(before)
        return self._buffer[start : self._buffer.find(after, start, self._size)]
