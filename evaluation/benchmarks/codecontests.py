"""CodeContests: programs that read stdin and write stdout (arXiv:2203.07814)."""

import re

from evaluation.benchmark import ONE_BLOCK, CodeBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task

ASK = "{description}\n\nWrite a Python program that reads the standard input and prints the answer. {one_block}"
PYTHON3 = 3  # in the column `solutions`
PYTHON_FACTOR = 3.0  # the time limits are made for compiled languages
SHORTEST_LIMIT = 5.0  # seconds of CPU time
# "an absolute or relative error of at most 10^{-6}", also 10 - 6, 1e-6, 0.01: only where a problem says so, in the
# same sentence, may numbers differ.
_TOLERANCE = re.compile(
    r"(?:error|precision)[^.]{0,80}?(?:10\s*\^?\s*[{(]?\s*[-−–]\s*(\d{1,2})(?!\d)|(1e[-−–]\d{1,2}|0\.0*1)(?!\d))",
    re.IGNORECASE,
)


class CodeContests(CodeBenchmark):
    """The test split, on its public, private and generated tests."""

    name = "codecontests"
    hub = "deepmind/code_contests"

    def task(self, row: Row) -> Task:
        description = row.text("description").strip()
        cases = [case for kind in ("public", "private", "generated") for case in _cases(row, f"{kind}_tests")]
        if not cases:
            raise UserError(f"{row.place}: there is no test case: remove the row")
        return Task(
            row.text("name"),
            ASK.format(description=description, one_block=ONE_BLOCK),
            _solution(row),
            self.kind,
            {"cases": cases, "tolerance": _tolerance(description), "cpu_seconds": _cpu_seconds(row)},
        )


def _cases(row: Row, column: str) -> list[list[str]]:
    return [[given, wanted] for given, wanted in _pairs(row, column, "input", "output")]


def _solution(row: Row) -> str:
    """The first correct solution in Python 3, "" where there is none."""
    solutions = _pairs(row, "solutions", "language", "solution")
    return next((solution for language, solution in solutions if language == str(PYTHON3)), "")


def _pairs(row: Row, column: str, one: str, other: str) -> list[tuple[str, str]]:
    """The column's two lists side by side; an empty column has none."""
    lists = row.columns.get(column) or {one: [], other: []}
    try:
        return [(str(a), str(b)) for a, b in zip(lists[one], lists[other], strict=True)]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{row.place}: column {column!r} must hold as many of {one!r} as of {other!r}") from None


def _tolerance(description: str) -> float | None:
    match = _TOLERANCE.search(description)
    if not match:
        return None
    return float(match[2].replace("−", "-").replace("–", "-")) if match[2] else float(f"1e-{match[1]}")


def _cpu_seconds(row: Row) -> float:
    limit = row.columns.get("time_limit")
    if not isinstance(limit, dict):
        return SHORTEST_LIMIT
    seconds = float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9
    return max(SHORTEST_LIMIT, PYTHON_FACTOR * seconds)
