"""Processes that verifiers hand work to that may hang, eat memory or crash: each can be killed.

A worker speaks JSON, one line a message, over its standard streams. It is started at first use, by `subprocess` and
not by `multiprocessing`: so it never imports the user's main module, uses no signals, and also works from threads,
asyncio programs and daemonic processes.
"""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import marti_ext

START_LIMIT = 60.0  # seconds a worker may take to load


class WorkerError(RuntimeError):
    """A worker died: out of memory, crashed or was killed."""


class WorkerPool:
    """Up to `size` workers (default: one per CPU), started as calls overlap; for any number of threads.

    A worker is `python -m MODULE ARGUMENTS`, which first writes one line of greeting, then one for each request.

    A call waits for a free worker without limit; its own time limit begins when a worker takes it. So an answer that
    hangs holds up one worker for the length of the limit, and delays others only while every worker is busy with such
    answers. A worker that overran its limit or died is replaced at the next call.
    """

    def __init__(
        self, module: str, *arguments: str, size: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.size = size or os.cpu_count() or 1
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._environment = environment  # that of this process by default
        self._idle: list[_Worker] = []  # changed by single appends and pops only, which are atomic
        self._busy: set[_Worker] = set()
        self._slots = threading.BoundedSemaphore(self.size)
        self._closed = False

    def ask(self, request: Mapping[str, object], seconds: float) -> str:
        """A worker's reply. `seconds` is wall-clock time. Raises TimeoutError (the worker is killed), WorkerError."""
        with self._slots:
            idle = self._living()
            try:
                return self._ask(idle or self._start(), request, seconds)
            except WorkerError:
                if idle is None or self._closed:
                    raise
            # It may have died while idle: of a process with several threads that is not seen at once.
            return self._ask(self._start(), request, seconds)

    def greeting(self) -> str:
        """What a worker says of itself when it starts. Raises WorkerError for a pool that is closed."""
        with self._slots:
            worker = self._living() or self._start()
            self._idle.append(worker)
            return worker.greeting

    def _start(self) -> "_Worker":
        return _Worker(self._command, self._environment)

    def _ask(self, worker: "_Worker", request: Mapping[str, object], seconds: float) -> str:
        self._busy.add(worker)
        reply = ""
        try:
            reply = worker.ask(request, seconds)
        finally:  # also on KeyboardInterrupt: a worker with an open question is of no use to others
            self._busy.discard(worker)
            if reply and not self._closed:
                self._idle.append(worker)
            else:
                worker.kill()
        return reply

    def pids(self) -> list[int]:
        """The process ids of the living workers."""
        return [worker.process.pid for worker in (*self._idle, *self._busy)]

    def close(self) -> None:
        """Kill all workers; later calls fail."""
        self._closed = True
        while self._idle:
            self._idle.pop().kill()
        for worker in list(self._busy):
            worker.process.kill()  # the thread that waits for it clears up

    def forget(self) -> None:
        """Start afresh in a forked child: the parent's workers stay the parent's."""
        for worker in (*self._idle, *self._busy):
            worker.disown()
        self._idle, self._busy, self._slots = [], set(), threading.BoundedSemaphore(self.size)

    def _living(self) -> "_Worker | None":
        """An idle worker that nobody has killed meanwhile."""
        if self._closed:
            raise WorkerError("the pool of workers is closed")
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.kill()
        return None


class _Worker:
    """One worker process, used by one thread at a time."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None) -> None:
        path = os.pathsep.join(
            filter(None, [str(Path(marti_ext.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        )
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**(os.environ if environment is None else environment), "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the program, not for its workers
        )
        self.buffer = b""
        try:
            self.greeting = self._receive(START_LIMIT)
        except (TimeoutError, WorkerError) as error:  # no fault of an answer: the installation is broken
            self.kill()
            raise RuntimeError("a verifier's worker process did not start; see its error above") from error
        except BaseException:
            self.kill()
            raise

    def ask(self, request: Mapping[str, object], seconds: float) -> str:
        try:
            self._send(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            raise WorkerError("the worker was gone") from error
        return self._receive(seconds)

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:  # an unbuffered pipe may take a part
            left = left[self._stream(self.process.stdin).write(left) :]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.disown()

    def disown(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                self._stream(stream).close()

    def _receive(self, seconds: float) -> str:
        """The next line of the worker."""
        output = self._stream(self.process.stdout).fileno()
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(output, select.POLLIN)
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                raise TimeoutError(f"no verdict within {seconds} s")
            chunk = os.read(output, 1 << 16)
            if not chunk:
                raise WorkerError(f"the worker died, exit code {self.process.wait()}")
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None  # both ends are pipes
        return stream


def shared_pool(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> WorkerPool:
    """A pool for the life of this process; a forked child starts workers of its own."""
    pool = WorkerPool(module, *arguments, environment=environment)
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.forget)
    return pool
