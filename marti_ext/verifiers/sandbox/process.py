"""The program's process as the judge sees it: how it is started, waited for, and how it ended."""

import os
import resource
import select
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import marti_ext.verifiers.sandbox.kernel as kernel
from marti_ext.verifiers.sandbox.confine import Confinement, confine, own_namespaces
from marti_ext.verifiers.sandbox.limits import Limits, ProgramFailure
from marti_ext.verifiers.sandbox.program import MEMORY_STATUS

_CONFINE_FAILED = 213  # exit status
_NANO = 1e9
_MOST = 0.5  # of a limit of CPU time: the kernel's two ways to count it differ
_LOOK = 0.05  # seconds between looks at the size of a folder that no file system limits
_JUDGE_MEMORY = 4 << 30  # bytes of address space: an endless iterator must not fill the machine by way of the tests


class ProgramProcess:
    """Started at once; killed by whoever ends the judge."""

    def __init__(
        self, made: Confinement, limits: Limits, folder: str, keep: Collection[int], run: Callable[[], NoReturn]
    ) -> None:
        """Fork a process that keeps these descriptors, confines itself and calls `run`.

        `folder` is "" where namespaces give both sides folders of their own. Raises OSError.
        """
        self.limits = limits
        self._folder = folder and f"{folder}/program"
        own_namespaces(made, limits)
        self.pid = os.fork()
        if self.pid == 0:
            _become_program(made, limits, self._folder, keep, run)
        made.leave_namespaces()
        _work_in(f"{folder}/judge" if folder else made.desk)
        seconds = limits.judge_cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (_JUDGE_MEMORY, _JUDGE_MEMORY))
        self.watch = os.pidfd_open(self.pid)  # readable once it has ended
        self._deadline = time.monotonic() + limits.wall_seconds
        self._next_look = 0.0

    def wait_for(self, events: Mapping[int, int]) -> set[int]:
        """The descriptors on which something happened.

        Raises ProgramFailure once the program has had its time or filled its folder. Waiting for a CPU does not count.
        """
        poller = select.poll()
        for descriptor, event in events.items():
            poller.register(descriptor, event)
        while True:
            now = time.monotonic()
            if self._folder and now >= self._next_look:
                self._next_look = now + _LOOK
                if _size(self._folder) > self.limits.folder_bytes:
                    raise ProgramFailure(f"more than {self.limits.folder_bytes} bytes of files")
            left = self._deadline - now
            if left <= 0:
                left += _starved(self.pid) + _starved(os.getpid())
            if left <= 0:
                raise ProgramFailure(f"over the wall-clock limit of {self.limits.wall_seconds:g} s")
            if happened := poller.poll((min(left, _LOOK) if self._folder else left) * 1000 + 1):
                return {descriptor for descriptor, _ in happened}

    def ended(self) -> str:
        """Why it ended, once it has: "" for an exit with status 0. Raises ProgramFailure as `wait_for` does."""
        self.wait_for({self.watch: select.POLLIN})
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and used.ru_utime + used.ru_stime >= self.limits.cpu_seconds * _MOST:
            return f"over the CPU limit of {self.limits.cpu_seconds:g} s"
        if code == _CONFINE_FAILED:
            raise ProgramFailure("the program's process could not be confined", graded=False)
        if code == MEMORY_STATUS:
            return "over the memory limit"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}" if code else ""


def _become_program(
    made: Confinement, limits: Limits, folder: str, keep: Collection[int], run: Callable[[], NoReturn]
) -> NoReturn:
    try:
        kernel.close_all_but({0, 1, 2, *keep})
        confine(made, limits, folder)
    except BaseException:
        os._exit(_CONFINE_FAILED)
    try:
        run()
    except MemoryError:
        os._exit(MEMORY_STATUS)
    except BaseException:
        os._exit(1)


def _work_in(folder: str) -> None:
    """Have files of the tests in a folder that goes away."""
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def _starved(pid: int) -> float:
    """Seconds that a process was ready to run and no CPU was free."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / _NANO
    except (OSError, IndexError, ValueError):
        return 0.0


def _size(folder: str) -> int:
    """Bytes that the files below take."""
    total, folders = 0, [folder]
    for current in folders:
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # gone meanwhile
            continue
    return total
