"""In the judge's process: one run of a program, and the verdict about it."""

import os
import select
import socket
from typing import Any, NoReturn

from marti_ext.verifiers.sandbox.codec import message, read_message
from marti_ext.verifiers.sandbox.confine import Confinement
from marti_ext.verifiers.sandbox.judge import Program, judge
from marti_ext.verifiers.sandbox.limits import Limits, ProgramFailure
from marti_ext.verifiers.sandbox.output import same_output
from marti_ext.verifiers.sandbox.process import ProgramProcess
from marti_ext.verifiers.sandbox.program import run_script, serve_functions
from marti_ext.verifiers.sandbox.request import RequestLine


class _Link:
    """Questions to the program's process and its replies, over a socket."""

    def __init__(self, process: ProgramProcess, channel: socket.socket) -> None:
        self._process, self._channel = process, channel
        self._budget = process.limits.output_bytes
        channel.setblocking(False)

    def ask(self, question: dict[str, Any] | None) -> Any:
        try:
            if question is not None:
                self._send(message(question))
            return read_message(self._read)
        except (EOFError, ConnectionError):
            raise ProgramFailure(self._process.ended() or "exited before its tests were done") from None

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:  # it need not read: then its time runs out
            try:
                left = left[self._channel.send(left) :]
            except BlockingIOError:
                self._process.wait_for({self._channel.fileno(): select.POLLOUT})

    def _read(self, count: int) -> bytes:
        self._budget -= count
        if self._budget < 0:
            raise ProgramFailure(f"more than {self._process.limits.output_bytes} bytes of results")
        data = bytearray()
        while len(data) < count:
            try:
                chunk = self._channel.recv(min(count - len(data), 1 << 20))
            except BlockingIOError:
                self._process.wait_for({self._channel.fileno(): select.POLLIN})
                continue
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


def judge_tests(request: RequestLine, limits: Limits, made: Confinement, folder: str) -> None:
    """Return if a program's functions pass the tests that call them; otherwise raises ProgramFailure."""
    source = request.program()
    ours, theirs = socket.socketpair()

    def run() -> NoReturn:
        request.forget()
        serve_functions(source, theirs.fileno())

    process = ProgramProcess(made, limits, folder, {theirs.fileno()}, run)
    theirs.close()
    secret = request.secret(0, 1)
    program = Program(_Link(process, ours))
    try:
        judge(secret["tests"], secret["prelude"], secret["entry_points"], program)
    except BaseException as error:  # tests raise what they like
        if program.failure:
            raise program.failure from None
        if isinstance(error, ProgramFailure):
            raise
        raise ProgramFailure(f"{type(error).__name__}: {error}".rstrip(": ")) from None


def judge_case(request: RequestLine, number: int, count: int, limits: Limits, made: Confinement, folder: str) -> None:
    """Return if a script prints for one input what it should; otherwise raises ProgramFailure."""
    source = request.program()
    stdin, stdout = os.pipe(), os.pipe()

    def run() -> NoReturn:
        request.forget()
        os.dup2(stdin[0], 0)
        os.dup2(stdout[1], 1)
        os.close(stdin[0])
        os.close(stdout[1])
        run_script(source)

    process = ProgramProcess(made, limits, folder, {stdin[0], stdout[1]}, run)
    os.close(stdin[0])
    os.close(stdout[1])
    secret = request.secret(number, count)
    printed = _converse(process, stdin[1], secret["given"].encode(errors="surrogatepass"), stdout[0])
    if ended := process.ended():
        raise ProgramFailure(ended)
    if not same_output(secret["expected"], printed.decode(errors="replace"), secret["tolerance"]):
        raise ProgramFailure("wrong output")


def _converse(process: ProgramProcess, stdin: int, data: bytes, stdout: int) -> bytes:
    """Everything that the program prints. It is fed at the same time: it need not read all before it writes."""
    os.set_blocking(stdin, False)
    os.set_blocking(stdout, False)
    left, printed = memoryview(data), bytearray()
    events = {stdin: select.POLLOUT, stdout: select.POLLIN, process.watch: select.POLLIN}
    while True:
        ready = process.wait_for(events)
        if stdin in ready and stdin in events:
            left = _rest(stdin, left)
            if not left:
                os.close(stdin)
                del events[stdin]
        if stdout in ready:
            while chunk := _available(stdout):
                printed += chunk
                if len(printed) > process.limits.output_bytes:
                    raise ProgramFailure(f"more than {process.limits.output_bytes} bytes of output")
            if chunk is not None:
                return bytes(printed)
        elif process.watch in ready:  # it has ended, and whoever else still holds its output does not count
            return bytes(printed)


def _rest(descriptor: int, data: memoryview) -> memoryview:
    """What is left of it after writing what can be written now; nothing if nobody reads any more."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


def _available(descriptor: int) -> bytes | None:
    """What can be read now: None if there is nothing yet, b"" at the end."""
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return None
