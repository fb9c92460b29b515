"""Comparisons that hang, eat memory or are killed cost their own verdict and nothing else."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marti_ext.types import Score, Task
from marti_ext.verifiers.math import MathVerifier
from marti_ext.verifiers.math.worker import MEMORY_LIMIT, MODULE, POOL, compare
from marti_ext.verifiers.workers import WorkerError, WorkerPool

ALGEBRA = Task("t", "a problem", "x^2+1")  # its answer below can only be told by algebra
RIGHT = r"\boxed{x(x+1)-x+1}"
HANGS = r"\log(" * 35 + "x" + ")" * 35  # sympy takes far longer than any limit here
LIMIT = 1.0  # seconds
SLACK = 40.0  # seconds a busy machine may add; without a limit nothing here would end within hours


def gone(pid: int, within: float) -> bool:
    """Whether a process ends within some seconds (a zombie that nobody reaps has ended)."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "answer",
    [
        "10^{10^{10}}",
        "(10^9)!",
        r"\frac{1}{(10^9)!}+x",
        "x^{10^{10^{10}}}",
        r"\binom{10^9}{5}",
        "(" * 500 + "x" + ")" * 500,
        r"\sqrt{" * 300 + "x" + "}" * 300,
        "1+" * 100_000 + "x",
        r"\frac" * 300,
    ],
    ids=["tower", "factorial", "inside", "exponent", "binomial", "deep", "roots", "long", "bare"],
)
def test_an_absurd_answer_is_wrong_at_once(answer: str) -> None:
    started = time.monotonic()
    score = MathVerifier(timeout=LIMIT).verify(ALGEBRA, rf"\boxed{{{answer}}}")
    assert (score.value, score.status) == (0.0, "ok")
    assert time.monotonic() - started < LIMIT + SLACK
    assert MathVerifier().verify(ALGEBRA, RIGHT).value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "a " * 100_000,
        r"\boxed{" * 28_000,
        r"\boxed{" * 20_000 + "}" * 20_000,
        "<think>" * 28_000,
        "$" * 200_000,
        "answer is " * 20_000,
        r"\[" * 100_000,
        r"\boxed{1}" + " " * 200_000 + r"\boxed{2}",
    ],
    ids=["words", "open", "nested", "think", "dollars", "phrases", "displays", "spaces"],
)
def test_a_hostile_text_of_200_000_characters_is_read_at_once(text: str) -> None:
    started = time.monotonic()
    assert MathVerifier(require_box=False, timeout=LIMIT).verify(ALGEBRA, text).value == 0.0
    assert time.monotonic() - started < SLACK


def test_an_answer_that_hangs_times_out_and_the_next_is_graded() -> None:
    started = time.monotonic()
    score = MathVerifier(timeout=LIMIT).verify(ALGEBRA, rf"\boxed{{{HANGS}}}")
    assert score == Score(0.0, HANGS, "timeout")
    assert time.monotonic() - started < LIMIT + SLACK
    assert MathVerifier().verify(ALGEBRA, RIGHT) == Score(1.0, "x(x+1)-x+1")


def test_the_verdict_is_the_same_from_every_kind_of_caller() -> None:
    def grade() -> tuple[float, float]:
        return tuple(MathVerifier().verify(ALGEBRA, text).value for text in (RIGHT, r"\boxed{x^2-1}"))  # type: ignore[return-value]

    async def grade_all() -> list[tuple[float, float]]:
        return list(await asyncio.gather(*(asyncio.to_thread(grade) for _ in range(4))))

    with ThreadPoolExecutor(8) as threads:
        from_threads = [future.result() for future in [threads.submit(grade) for _ in range(16)]]
    assert [grade(), *from_threads, *asyncio.run(grade_all())] == [(1.0, 0.0)] * 21


def _grade_into(results: "multiprocessing.SimpleQueue[float]") -> None:
    results.put(MathVerifier().verify(ALGEBRA, RIGHT).value)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_process_grades_with_workers_of_its_own(method: str) -> None:
    assert MathVerifier().verify(ALGEBRA, RIGHT).value == 1.0  # so that a fork finds a living worker
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    process = context.Process(target=_grade_into, args=(results,), daemon=True)
    process.start()
    assert results.get() == 1.0
    process.join(30)
    assert process.exitcode == 0
    assert MathVerifier().verify(ALGEBRA, RIGHT).value == 1.0


def _in_background(pool: WorkerPool, pred: str, seconds: float) -> tuple[threading.Thread, list[object]]:
    """A comparison in a thread of its own, once its worker is at it."""
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(compare(pool, "x^2+1", pred, seconds))
        except (TimeoutError, WorkerError) as error:
            outcome.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    while not pool.pids():
        time.sleep(0.01)
    return thread, outcome


def _with_pool(test: Callable[[WorkerPool], None], size: int) -> None:
    pool = WorkerPool(MODULE, size=size)
    try:
        test(pool)
    finally:
        pool.close()


def test_a_worker_killed_by_hand_fails_its_answer_only() -> None:
    def test(pool: WorkerPool) -> None:
        thread, outcome = _in_background(pool, HANGS, 30.0)
        os.kill(pool.pids()[0], signal.SIGKILL)
        thread.join(SLACK)
        assert outcome == [WorkerError]
        assert compare(pool, "x^2+1", "1+x^2", 30.0) == "equal"
        (idle,) = pool.pids()
        os.kill(idle, signal.SIGKILL)
        assert gone(idle, SLACK)
        assert compare(pool, "x^2+1", "1+x^2", 30.0) == "equal"  # one killed while idle is replaced unnoticed

    _with_pool(test, 1)


def test_an_answer_that_hangs_does_not_delay_others_while_a_worker_is_free() -> None:
    def test(pool: WorkerPool) -> None:
        assert compare(pool, "x^2+1", "1+x^2", 30.0) == "equal"
        thread, outcome = _in_background(pool, HANGS, 600.0)
        while len(pool.pids()) < 2:  # either of the two threads starts the second worker
            assert compare(pool, "x^2+1", "1+x^2", 30.0) == "equal"
        assert compare(pool, "x^2+1", "1+x^2", 30.0) == "equal"
        assert outcome == []  # the other is still at it
        pool.close()
        thread.join(SLACK)
        assert outcome == [WorkerError]

    _with_pool(test, 2)


def test_with_every_worker_busy_a_caller_waits_and_its_own_limit_starts_later() -> None:
    def test(pool: WorkerPool) -> None:
        thread, outcome = _in_background(pool, HANGS, 6.0)
        assert compare(pool, "x^2+1", "1+x^2", 5.0) == "equal"  # waited longer than its limit
        thread.join(SLACK)
        assert outcome == [TimeoutError]

    _with_pool(test, 1)


def test_an_unreadable_reference_is_told_from_a_wrong_answer() -> None:
    assert compare(POOL, r"\sqrt{x<}+\frac{1}{y}", "y", 30.0) == "no_label"
    assert compare(POOL, "y", r"\sqrt{x<}+\frac{1}{y}", 30.0) == "different"


@pytest.mark.skipif(not Path("/proc").exists(), reason="limits are read from /proc")
def test_the_memory_of_a_worker_is_limited() -> None:
    assert compare(POOL, "x+1", "1+x", 30.0) == "equal"
    limits = Path(f"/proc/{POOL.pids()[0]}/limits").read_text()
    address_space = next(line for line in limits.splitlines() if line.startswith("Max address space"))
    assert address_space.split()[3:5] == [str(MEMORY_LIMIT)] * 2


PROGRAM = """
import os, signal, sys, threading, time
from marti_ext.verifiers.math.worker import POOL, compare
compare(POOL, "x+1", "1+x", 30.0)
if sys.argv[1] != "exit":
    threading.Thread(target=compare, args=(POOL, "x", sys.argv[2], 1.0), daemon=True).start()
    time.sleep(0.3)
print(*POOL.pids(), flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("end", ["exit", "exit while busy", "kill"])
def test_no_worker_outlives_its_program(end: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, end, HANGS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=tmp_path,
    )
    (pid,) = map(int, done.stdout.split())
    assert gone(pid, within=10.0)  # after a kill -9 its own limit of CPU time ends one that is busy
