"""What grading mathematics costs. Ratios, measured in one run: `python tests/benchmarks/grading.py [DATA_DIR]`.

1. Answers per second of MathVerifier, with its isolation, over Math-Verify alone called in this process, on right and
   wrong boxed replies to GSM8K and MATH-500 (wanted: at least 1).
2. Seconds by which one answer that hangs delays the others, graded at the same time (wanted: under 1).

Without the benchmarks' files the five fixture rows of each stand in for them.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from math_verify import parse, verify
from rich.console import Console
from rich.table import Table

from evaluation.benchmarks import find_benchmark
from evaluation.gold import gold_reply, wrong_reply
from evaluation.load import FIXTURES, load_benchmark
from marti_ext.types import Task
from marti_ext.verifiers.math import MathVerifier
from marti_ext.verifiers.math.extract import read_label

REPEATS = 3
HANGS = r"\boxed{" + r"\log(" * 35 + "x" + ")" * 35 + "}"  # computer algebra takes far longer than any limit here

Item = tuple[Task, str]


def items(name: str, data_dir: Path, count: int) -> list[Item]:
    """Right and wrong replies in turn."""
    tasks = load_benchmark(find_benchmark(name), data_dir=data_dir, sample=None, sample_seed=0).tasks[:count]
    return [(task, reply(task)) for task in tasks for reply in (gold_reply, wrong_reply)]


def ours(batch: Sequence[Item]) -> None:
    verifier = MathVerifier()
    for task, reply in batch:
        verifier.verify(task, reply)


def math_verify(batch: Sequence[Item]) -> None:
    for task, reply in batch:
        verify(parse(rf"\boxed{{{read_label(task.label)}}}"), parse(reply))


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(batch: Sequence[Item]) -> float:
    """Math-Verify's time over ours, the median of runs in turn."""
    ours(batch[:20])  # starts the workers
    pairs = [(seconds(lambda: math_verify(batch)), seconds(lambda: ours(batch))) for _ in range(REPEATS)]
    return statistics.median(theirs / mine for theirs, mine in pairs)


def delay(batch: Sequence[Item]) -> float:
    """Seconds by which the last of the others is later, with one answer that hangs among them."""

    def graded(hostile: int) -> float:
        verifier = MathVerifier(timeout=5.0)
        ends = []

        def grade(item: Item) -> None:
            verifier.verify(*item)
            ends.append(time.perf_counter())

        hangs = [(Task("hostile", "", r"\sin x + 1"), HANGS)] * hostile
        with ThreadPoolExecutor(8) as threads:
            start = time.perf_counter()
            waiting = [threads.submit(verifier.verify, *item) for item in hangs]
            list(threads.map(grade, batch))
            for hanging in waiting:
                hanging.result()
        return max(ends) - start

    graded(0)
    return statistics.median(graded(1) - graded(0) for _ in range(REPEATS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", nargs="?", type=Path, default=FIXTURES)
    data_dir = parser.parse_args().data_dir
    logging.disable(logging.WARNING)  # Math-Verify's remarks on its own timeouts
    table = Table("measure", "measured", "wanted")
    batches = {name: items(name, data_dir, 300) for name in ("gsm8k", "math500")}
    for name, batch in batches.items():
        table.add_row(f"{name}, {len(batch)} replies: speed / Math-Verify's", f"{ratio(batch):.1f}", ">= 1.0")
    table.add_row("delay of the others by one answer that hangs (s)", f"{delay(batches['math500']):.2f}", "< 1.0")
    Console().print(table)


if __name__ == "__main__":
    main()
