"""In the judge's process: start the program's process, and come to a verdict about it."""

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from marti_ext.verifiers.sandbox.codec import BrokenMessageError, read_message, write_message
from marti_ext.verifiers.sandbox.confine import Confinement, confine, own_namespaces
from marti_ext.verifiers.sandbox.judge import judge
from marti_ext.verifiers.sandbox.limits import Limits
from marti_ext.verifiers.sandbox.output import same_output
from marti_ext.verifiers.sandbox.program import run_script, serve_functions

Reply = dict[str, Any]
_NANO = 1e9


class OverWallClockError(Exception):
    """The program neither worked nor came to an end."""


class OverOutputError(Exception):
    """The program wrote more than it may."""


@dataclass(slots=True)
class _Process:
    """The program's process, as the judge sees it."""

    pid: int
    limits: Limits
    started: float

    def wait_for(self, events: Mapping[int, int]) -> set[int]:
        """The descriptors on which something happened. Raises OverWallClockError once the program has had its time;
        waiting for a CPU does not count."""
        poller = select.poll()
        for descriptor, event in events.items():
            poller.register(descriptor, event)
        while True:
            left = self.limits.wall_seconds - (time.monotonic() - self.started - self._starved())
            if left <= 0:
                raise OverWallClockError
            if happened := poller.poll(left * 1000 + 1):
                return {descriptor for descriptor, _ in happened}

    def _starved(self) -> float:
        """Seconds that the program was ready to run and no CPU was free."""
        try:
            with open(f"/proc/{self.pid}/schedstat") as file:
                return int(file.read().split()[1]) / _NANO
        except (OSError, IndexError, ValueError):
            return 0.0

    def end(self) -> str:
        """Kill it if need be, and say how it ended: "" for an exit with status 0."""
        os.kill(self.pid, signal.SIGKILL)  # a zombie takes no notice
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and used.ru_utime + used.ru_stime >= self.limits.cpu_seconds * 0.9:
            return f"over the CPU limit of {self.limits.cpu_seconds:g} s"
        if code == _CONFINE_FAILED:
            raise RuntimeError("the program's process could not be confined")
        if code < 0:
            return f"killed by signal {-code}"
        return "over the memory limit" if code == _MEMORY else f"exit status {code}" if code else ""


_CONFINE_FAILED, _MEMORY = 213, 137  # exit statuses


def judge_tests(request: Reply, limits: Limits, made: Confinement, folder: str) -> Reply:
    """A verdict on functions, by tests that call them."""
    ours, theirs = socket.socketpair()
    process = _start(
        made, limits, folder, {theirs.fileno()}, lambda: serve_functions(request["program"], theirs.fileno())
    )
    theirs.close()

    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            process.wait_for({ours.fileno(): select.POLLIN})
            chunk = ours.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def ask(question: Reply) -> Any:
        write_message(ours.fileno(), question)
        return read_message(read, limits.output_bytes)

    reason = ""
    try:
        loaded = read_message(read, limits.output_bytes)
        if "error" in loaded:
            reason = ": ".join(map(str, loaded["error"]))
        else:
            judge(request["tests"], request["prelude"], request["entry_points"], ask)
            return {"passed": True, "reason": "", "graded": True}
    except (EOFError, BrokenPipeError, ConnectionResetError):
        reason = _how_it_ended(process)
    except OverWallClockError:
        reason = f"over the wall-clock limit of {limits.wall_seconds:g} s"
    except BrokenMessageError as error:
        reason = f"its results cannot be read: {error}"
    except BaseException as error:  # tests raise what they like
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return {"passed": False, "reason": _line(reason), "graded": True}


def judge_case(request: Reply, limits: Limits, made: Confinement, folder: str) -> Reply:
    """A verdict on a script, by what it prints for one input."""
    stdin, stdout = os.pipe(), os.pipe()

    def run() -> NoReturn:
        os.dup2(stdin[0], 0)
        os.dup2(stdout[1], 1)
        os.closerange(3, 256)
        run_script(request["program"])

    process = _start(made, limits, folder, {stdin[0], stdout[1]}, run)
    os.close(stdin[0])
    os.close(stdout[1])
    try:
        printed = _converse(process, stdin[1], request["input"].encode(), stdout[0], limits.output_bytes)
        ended = _wait(process)
    except OverWallClockError:
        return {"passed": False, "reason": f"over the wall-clock limit of {limits.wall_seconds:g} s", "graded": True}
    except OverOutputError:
        return {"passed": False, "reason": f"more than {limits.output_bytes} bytes of output", "graded": True}
    if ended:
        return {"passed": False, "reason": ended, "graded": True}
    right = same_output(request["expected"], printed.decode(errors="replace"), request["tolerance"])
    return {"passed": right, "reason": "" if right else "wrong output", "graded": True}


def _start(made: Confinement, limits: Limits, folder: str, keep: set[int], run: Callable[[], NoReturn]) -> _Process:
    """Fork the program's process, which confines itself and then calls `run`."""
    own_namespaces(made, limits)
    seconds = int(limits.wall_seconds * 4) + 60  # the judge's own: what it decodes comes from the program
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    pid = os.fork()
    if pid:
        return _Process(pid, limits, time.monotonic())
    try:
        low = 3
        for descriptor in sorted(keep):
            os.closerange(low, descriptor)
            low = descriptor + 1
        os.closerange(low, 1024)
        confine(made, limits, folder)
    except BaseException:
        os._exit(_CONFINE_FAILED)
    try:
        run()
    except BaseException:
        os._exit(1)


def _converse(process: _Process, stdin: int, data: bytes, stdout: int, limit: int) -> bytes:
    """Everything that the program prints. It is fed at the same time: it need not read all before it writes."""
    os.set_blocking(stdin, False)
    left, printed = memoryview(data), bytearray()
    while True:
        if left:
            try:
                left = left[os.write(stdin, left) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:  # it does not read it all
                left = left[:0]
        if not left and stdin >= 0:
            os.close(stdin)
            stdin = -1
        ready = process.wait_for({stdout: select.POLLIN} | ({stdin: select.POLLOUT} if stdin >= 0 else {}))
        if stdout in ready:
            chunk = os.read(stdout, 1 << 20)
            if not chunk:
                return bytes(printed)
            printed += chunk
        if len(printed) > limit:
            raise OverOutputError


def _wait(process: _Process) -> str:
    """How a program that has closed its output ends."""
    watched = os.pidfd_open(process.pid)
    process.wait_for({watched: select.POLLIN})
    return process.end()


def _how_it_ended(process: _Process) -> str:
    try:
        watched = os.pidfd_open(process.pid)
        process.wait_for({watched: select.POLLIN})
    except OverWallClockError:
        return "it closed its channel"
    return process.end() or "exited before its tests were done"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
