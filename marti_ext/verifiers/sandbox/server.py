"""A warm interpreter that forks two processes for each run: a judge it trusts, and under that the program.

Speaks JSON, one line a message, over its standard streams, and ends when its parent does. What a program leaves behind
is killed and removed before the verdict is given.
"""

import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, replace
from typing import Any, NoReturn

import marti_ext.verifiers.sandbox.kernel as kernel
from marti_ext.verifiers.sandbox.confine import Confinement, prepare
from marti_ext.verifiers.sandbox.limits import Limits, ProgramFailure, Verdict
from marti_ext.verifiers.sandbox.request import RequestLine
from marti_ext.verifiers.sandbox.sample import judge_case, judge_tests

# What programs import most: a fork has it at once.
PRELOADED = """
abc array bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq
inspect io itertools json math numbers operator pprint queue random re statistics string struct textwrap threading time
traceback types typing unittest uuid
"""


def serve() -> None:
    """The server's loop: one request a line until the parent closes the pipe, also by dying."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    os.environ.pop("PYTHONPATH", None)
    for module in PRELOADED.split():
        importlib.import_module(module)
    kernel.adopt_orphans()
    made = prepare(sys.argv[1].split(","))
    sys.path[:] = [path for path in sys.path if any(path.startswith(root + "/") for root in made.readable)]
    gc.collect()
    gc.freeze()  # pages that the collector does not touch stay shared
    _send(replies, made.state)
    while True:
        try:
            request = RequestLine(requests)
            _send(replies, _serve_one(request, made, requests))
            request.forget()
        except (EOFError, BrokenPipeError):
            return


def _send(descriptor: int, message: object) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _serve_one(request: RequestLine, made: Confinement, requests: int) -> dict[str, Any]:
    head = request.head()
    limits, count = Limits(**head["limits"]), head["runs"]
    for number in range(count):
        verdict = _run(request, number, count if head["script"] else 0, limits, made, requests)
        if not verdict["passed"]:
            return verdict
    return asdict(Verdict(True))


def _run(
    request: RequestLine, number: int, cases: int, limits: Limits, made: Confinement, requests: int
) -> dict[str, Any]:
    """One run of the program, for its tests (`cases` 0) or one case, with nothing left of it afterwards."""
    folder = "" if made.root else _folder(made)
    result, told = os.pipe()
    server = os.getpid()
    judge = os.fork()
    if judge == 0:
        _judge(server, request, number, cases, limits, made, folder, told)
    os.close(told)
    try:
        data = _await(result, requests, limits.patience)
        spent = _spent(judge)
    finally:
        os.close(result)
        _kill_all()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    if data.endswith(b"\n"):
        verdict: dict[str, Any] = json.loads(data)
        return verdict
    if spent >= limits.judge_cpu_seconds * 0.5:  # nothing else ends a judge
        words = f"the tests, with what the program returns, are over the CPU limit of {limits.judge_cpu_seconds} s"
        return asdict(Verdict(False, words))
    return asdict(Verdict(False, "the judge did not come to a verdict", graded=False))


def _folder(made: Confinement) -> str:
    """A folder for files, with one in it for the program and one for the judge."""
    folder = tempfile.mkdtemp(prefix=f"{sys.argv[2]}{os.getpid()}-")
    os.mkdir(f"{folder}/judge", 0o700)
    os.mkdir(f"{folder}/program", 0o700)
    if made.user >= 0:
        os.chmod(folder, 0o711)
        os.chown(f"{folder}/program", made.user, made.user)
    return folder


def _judge(
    server: int,
    request: RequestLine,
    number: int,
    cases: int,
    limits: Limits,
    made: Confinement,
    folder: str,
    told: int,
) -> NoReturn:
    """In the judge's process."""
    verdict = Verdict(True)
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != server:  # it died before that
            os._exit(1)
        kernel.forbid_inspection()
        kernel.close_all_but({0, 1, 2, told, made.own_processes})
        os.dup2(0, 2)
        if cases:
            judge_case(request, number, cases, limits, made, folder)
        else:
            judge_tests(request, limits, made, folder)
    except ProgramFailure as failure:
        verdict = Verdict(False, _line(failure.reason), failure.graded)
    except BaseException as error:
        verdict = Verdict(False, _line(f"the sandbox failed: {type(error).__name__}: {error}"), graded=False)
    if cases and not verdict.passed:
        verdict = replace(verdict, reason=f"{verdict.reason} in case {number + 1}")
    _send(told, asdict(verdict))
    os._exit(0)


def _line(text: str) -> str:
    """Printable, on one line: part of it may come from the program."""
    line = " ".join(text.split())[:300]
    return "".join(c if c.isprintable() else "?" for c in line)


def _await(result: int, requests: int, seconds: float) -> bytes:
    """What the judge tells, "" if it tells nothing in time. Raises EOFError if the server's parent is gone."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    poller.register(result, select.POLLIN)
    poller.register(requests, select.POLLHUP)
    data = b""
    while (left := deadline - time.monotonic()) > 0:
        for descriptor, event in poller.poll(left * 1000):
            if descriptor == result:
                chunk = os.read(result, 1 << 16)
                if not chunk:
                    return data
                data += chunk
            elif event & select.POLLHUP:
                raise EOFError
    return b""


def _spent(judge: int) -> float:
    """Kill the judge; the seconds of CPU time that it used itself."""
    os.kill(judge, signal.SIGKILL)
    _, _, used = os.wait4(judge, 0)
    return used.ru_utime + used.ru_stime


def _kill_all() -> None:
    """Kill every descendant: those whose parents are gone have become this process's children."""
    while True:
        for pid in kernel.children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    serve()
