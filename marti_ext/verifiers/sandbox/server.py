"""A warm interpreter that forks two processes for each sample: a judge it trusts, and the program.

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
from typing import Any

import marti_ext.verifiers.sandbox.kernel as kernel
from marti_ext.verifiers.sandbox.confine import Confinement, prepare
from marti_ext.verifiers.sandbox.limits import Limits
from marti_ext.verifiers.sandbox.sample import judge_case, judge_tests

# What programs import most: a fork has it at once.
PRELOADED = """
abc array bisect cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq inspect io
itertools json math numbers operator pprint queue random re statistics string struct textwrap threading time traceback
types typing unittest uuid
"""
GRACE = 20.0  # seconds for the judge's own work beside the program's
FOLDER_PREFIX = "marti-sandbox-"


def serve() -> None:
    """The server's loop: one request a line until the parent closes the pipe, also by dying."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    for module in PRELOADED.split():
        importlib.import_module(module)
    kernel.adopt_orphans()
    made = prepare(sys.argv[1].split(","))
    gc.freeze()  # pages that the collector does not touch stay shared
    _send(replies, made.state)
    buffer = b""
    while True:
        while b"\n" not in buffer:
            chunk = os.read(requests, 1 << 20)
            if not chunk:
                return
            buffer += chunk
        line, _, buffer = buffer.partition(b"\n")
        _send(replies, _serve_one(json.loads(line), made, requests))


def _send(descriptor: int, message: object) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _serve_one(request: dict[str, Any], made: Confinement, requests: int) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    if "tests" in request:
        return _sample(request, limits, made, requests)
    for number, (given, expected) in enumerate(request["cases"], start=1):
        case = {**request, "input": given, "expected": expected}
        verdict = _sample(case, limits, made, requests)
        if not verdict["passed"]:
            return verdict | {"reason": f"case {number}: {verdict['reason']}"}
    return {"passed": True, "reason": "", "graded": True}


def _sample(request: dict[str, Any], limits: Limits, made: Confinement, requests: int) -> dict[str, Any]:
    """One program against its tests or one case, with nothing left of it afterwards."""
    folder = "" if made.root else _folder(made)
    result, told = os.pipe()
    judge = os.fork()
    if judge == 0:
        _judge(request, limits, made, folder, told)
    os.close(told)
    try:
        data = _await(result, requests, limits.wall_seconds * 4 + GRACE)
    finally:
        os.close(result)
        _kill_all()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    try:
        verdict: dict[str, Any] = json.loads(data)
    except ValueError:
        return {"passed": False, "reason": "the judge did not come to a verdict", "graded": False}
    return verdict


def _folder(made: Confinement) -> str:
    folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
    if made.changes_user:
        os.chmod(folder, 0o777)
    return folder


def _judge(request: dict[str, Any], limits: Limits, made: Confinement, folder: str, told: int) -> None:
    """In the judge's process."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        kernel.forbid_inspection()
        os.closerange(3, told)
        os.closerange(told + 1, told + 64)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        run = judge_tests if "tests" in request else judge_case
        verdict = run(request, limits, made, folder)
    except BaseException as error:
        verdict = {"passed": False, "reason": f"sandbox: {type(error).__name__}: {error}", "graded": False}
    _send(told, verdict)
    os._exit(0)


def _await(result: int, requests: int, seconds: float) -> bytes:
    """What the judge tells, "" if it tells nothing in time. Ends the server if its parent is gone."""
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
                _kill_all()
                os._exit(0)
    return b""


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
