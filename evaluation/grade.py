"""`python -m evaluation grade`: stored replies, graded without a model and without a network."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from evaluation.benchmark import Benchmark
from evaluation.benchmarks import BENCHMARKS, find_benchmark
from evaluation.load import load_benchmark
from marti_ext.datasets.rows import Row, read_rows
from marti_ext.errors import UserError
from marti_ext.progress import say
from marti_ext.records import write_text_atomically
from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.verifiers.math import MathVerifier
from marti_ext.verifiers.numeric import NumericVerifier

Item = tuple[Row, Task, str]  # the row, its task, the reply


def grade_file(
    file: Path, out: Path, kind: str | None, benchmark: str | None, data_dir: Path | None, console: Console
) -> None:
    """Grade every row of `file` into `out`, which is written whole or not at all.

    Rows are {id, gold, pred}; for code {id, task, reply}, `task` holding a benchmark's columns; with a benchmark
    {id, reply}. Raises UserError naming the line and what it lacks.
    """
    if (kind is None) == (benchmark is None):
        raise UserError("give either --verifier or --benchmark")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UserError(f"--out {out} must be a file in a folder that is there")
    if out.resolve() == file.resolve():
        raise UserError(f"--out {out} is the file with the replies: choose another")
    if kind is not None and data_dir is not None:
        raise UserError("--data-dir is for --benchmark: with --verifier the rows hold all there is")
    rows = read_rows(str(file), subset=None, split="").rows
    for row in rows:
        row.value("id")
    items, verifier = _items(rows, kind or "", find_benchmark(benchmark) if benchmark else None, data_dir)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # verifiers wait for workers of their own
        grades = threads.map(lambda item: verifier.grade(item[1], item[2]), items)
        graded = list(track(grades, "grading", len(items), console=console, transient=True))
    lines = list(starmap(_line, zip(rows, graded, strict=True)))
    write_text_atomically(out, "".join(json.dumps(line) + "\n" for line in lines))
    counts = Counter(line["status"] for line in lines)
    labelled = len(lines) - counts["no_label"]
    mean = f"{sum(line['value'] for line in lines) / labelled:.2%} of {labelled}" if labelled else "no usable label"
    say(console, f"{mean}: {', '.join(f'{n} {s}' for s, n in counts.most_common())} · {out}")


def _line(row: Row, scores: Mapping[str, Score]) -> dict[str, Any]:
    main = next(iter(scores.values()))
    line = {"id": row.value("id"), "value": main.value, "extracted": main.extracted, "status": main.status}
    if main.reason:
        line["reason"] = main.reason
    if len(scores) > 1:
        line["measures"] = {name: {"value": score.value, "status": score.status} for name, score in scores.items()}
    return line


def _items(
    rows: list[Row], kind: str, benchmark: Benchmark | None, data_dir: Path | None
) -> tuple[list[Item], Verifier]:
    if benchmark is not None:
        return list(_of_benchmark(rows, benchmark, data_dir)), benchmark.verifier
    make = _code_task if kind == "code" else _plain_task
    replies = ("reply",) if kind == "code" else ("pred",)
    return [(row, make(row, kind), _reply(row, *replies)) for row in rows], _lenient(kind)


def _lenient(kind: str) -> Verifier:
    """Stored answers may be bare: no box is asked for."""
    bare: dict[str, Callable[[], Verifier]] = {
        "math": lambda: MathVerifier(require_box=False),
        "numeric": lambda: NumericVerifier(require_box=False),
    }
    return bare[kind]() if kind in bare else verifier_for(kind)


def _plain_task(row: Row, kind: str) -> Task:
    """The gold answer is text, a number, or a list of alternatives (each a text, or a list of spans)."""
    gold = row.value("gold")
    further = {key: value for key, value in row.columns.items() if key not in ("id", "gold", "pred")}
    answers = gold if isinstance(gold, list) else further.get("answers")
    if answers is not None:
        further["answers"] = _alternatives(row, answers)
    if isinstance(gold, list):
        gold = "|".join(", ".join(spans) for spans in further["answers"])
    if not isinstance(further.get("choices", []), list):
        raise UserError(f"{row.place}: choices is {further['choices']!r:.80}: give a list")
    return Task(str(row.value("id")), "", _plain(row, gold), kind, further)


def _alternatives(row: Row, answers: Any) -> list[list[str]]:
    if not isinstance(answers, list):
        raise UserError(f"{row.place}: answers is {answers!r:.80}: give a list of texts, or of lists of texts")
    return [[_plain(row, span) for span in (spans if isinstance(spans, list) else [spans])] for spans in answers]


def _plain(row: Row, value: Any) -> str:
    """Text or a number as text."""
    finite = isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))
    if isinstance(value, bool) or not finite:
        raise UserError(f"{row.place}: {value!r:.80} is no answer: give text, a number or a list")
    return str(value)


def _code_task(row: Row, kind: str) -> Task:
    """The task that the columns are of: they tell which benchmark's."""
    columns = row.value("task")
    if not isinstance(columns, dict):
        raise UserError(f"{row.place}: task must hold the columns of a benchmark, found {columns!r:.80}")
    inner = Row(row.number, f"{row.place}, task", columns)
    for benchmark in BENCHMARKS.values():
        if benchmark.kind == kind:
            try:
                return benchmark.task(inner)
            except UserError:
                continue
    known = ", ".join(b.name for b in BENCHMARKS.values() if b.kind == kind)
    raise UserError(f"{row.place}: task has the columns of none of {known}: found {', '.join(columns)}")


def _of_benchmark(rows: list[Row], benchmark: Benchmark, data_dir: Path | None) -> Iterator[Item]:
    tasks = {}
    if not all(isinstance(row.columns.get("task"), dict) for row in rows):
        loaded = load_benchmark(benchmark, data_dir=data_dir, sample=None, sample_seed=0)
        tasks = {task.id: task for task in loaded.tasks}
    for row in rows:
        if isinstance(columns := row.columns.get("task"), dict):
            task = benchmark.task(Row(row.number, f"{row.place}, task", columns))
        else:
            id = str(row.value("id"))
            if id not in tasks:
                raise UserError(f"{row.place}: {benchmark.name} has no task {id!r}; its ids look like {min(tasks)!r}")
            task = tasks[id]
        yield row, task, _reply(row, "reply", "pred")


def _reply(row: Row, *names: str) -> str:
    """The stored reply; an empty one is a reply, a missing one is a mistake."""
    for name in names:
        if name in row.columns:
            reply = row.columns[name]
            if not isinstance(reply, str | int | float) or isinstance(reply, bool):
                raise UserError(f"{row.place}: {name} must be text, found {reply!r:.80}")
            return str(reply)
    found = ", ".join(map(repr, row.columns))
    raise UserError(f"{row.place}: no column {names[0]!r}; the row has {found}")
