"""The tasks of a benchmark, from the hub or from a local folder."""

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from evaluation.benchmark import Benchmark
from evaluation.benchmarks import BENCHMARKS
from marti_ext.datasets.rows import SUFFIXES, Row, read_rows
from marti_ext.errors import UserError
from marti_ext.rollout import refuse_doubles
from marti_ext.seeds import derive_seed
from marti_ext.types import Task

FIXTURES = Path(__file__).parent / "fixtures"  # five rows of each benchmark, made up for the tests


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tasks, in the order of the data, and where they come from. `sha256` is that of the file, or of hub rows."""

    tasks: list[Task]
    sha256: str
    source: str


def load_benchmark(
    benchmark: Benchmark, *, data_dir: Path | None, sample: int | Literal["paper"] | None, sample_seed: int
) -> Loaded:
    """All tasks, or a random subset of `sample` of them ("paper": as many as the CoMAS paper uses) drawn by the seed.

    Raises UserError where the data is not to be had, a row is broken, or two different tasks have one id.
    """
    file = _file(benchmark, data_dir) if data_dir is not None else None
    if file is not None:
        source, rows = str(file), read_rows(str(file), subset=None, split=benchmark.split).rows
    else:
        source, rows = benchmark.hub, _hub_rows(benchmark)
    tasks = _told_apart(benchmark.task(row) for row in rows if benchmark.has(row))
    if not tasks:
        raise UserError(f"{source} holds no rows of {benchmark.name}: give its {benchmark.split} split")
    refuse_doubles(f"{source}: task", [task.id for task in tasks])
    digest = hashlib.sha256(file.read_bytes() if file is not None and file.is_file() else _canonical(rows))
    return Loaded(_drawn(benchmark, tasks, sample, sample_seed), digest.hexdigest(), source)


def _told_apart(tasks: Iterable[Task]) -> list[Task]:
    """The tasks, with a number behind the id of one that says what another has said: MMLU asks 27 questions twice."""
    said: Counter[tuple[str, str, str]] = Counter()
    apart = []
    for task in tasks:
        said[task.id, task.prompt, task.label] += 1
        count = said[task.id, task.prompt, task.label]
        apart.append(replace(task, id=f"{task.id}-{count}") if count > 1 else task)
    return apart


def _drawn(benchmark: Benchmark, tasks: list[Task], sample: int | str | None, seed: int) -> list[Task]:
    count = benchmark.paper_size if sample == "paper" else sample
    if not isinstance(count, int) or count >= len(tasks):
        return tasks
    places = random.Random(derive_seed(seed, benchmark.name)).sample(range(len(tasks)), count)
    return [tasks[place] for place in sorted(places)]


def _hub_rows(benchmark: Benchmark) -> list[Row]:
    try:
        return read_rows(benchmark.hub, subset=benchmark.subset, split=benchmark.split).rows
    except UserError as error:
        raise UserError(
            f"{error}. Or give --data-dir, a folder with {benchmark.name}.jsonl in the hub's columns"
        ) from error


def _file(benchmark: Benchmark, data_dir: Path) -> Path:
    """The benchmark's file: named after it, or after it and its split, or else the only one that begins so."""
    if not data_dir.is_dir():
        raise UserError(f"--data-dir {data_dir} is no folder")
    files = [p for p in sorted(data_dir.iterdir()) if p.is_dir() or p.suffix.lower() in SUFFIXES]
    exact = [p for p in files if _plain(p) in (benchmark.name, benchmark.name + benchmark.split)]
    begun = [p for p in files if _begins(p, benchmark.name)]
    found = exact or begun
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"--data-dir {data_dir} holds several files of {benchmark.name}: {_names(found)}; leave one")
    wanted = f"{benchmark.name}.jsonl or {benchmark.name}_{benchmark.split}.jsonl (or .json, .parquet, a folder)"
    raise UserError(f"--data-dir {data_dir} has no {wanted}; it holds {_names(files) or 'no data files'}")


def _plain(path: Path) -> str:
    """The name in lower case without punctuation: MATH-500.jsonl is math500, HumanEval+.jsonl humanevalplus."""
    return "".join(_words(path))


def _begins(path: Path, name: str) -> bool:
    """Whether the file's name is the benchmark's and more words behind a sign: mmlu_test_500, aime_2024_I.

    The longest name counts, so that humaneval_plus_164 is no file of HumanEval.
    """
    words = _words(path)
    names = ["".join(words[:count]) for count in range(1, len(words) + 1)]
    return max((n for n in names if n in {*BENCHMARKS, name}), key=len, default="") == name


def _words(path: Path) -> list[str]:
    """The words of a file's or a folder's name in lower case."""
    name = path.name if path.is_dir() else path.stem
    return re.findall(r"[a-z0-9]+", name.lower().replace("+", "plus"))


def _names(files: list[Path]) -> str:
    return ", ".join(file.name for file in files[:20])


def _canonical(rows: list[Row]) -> bytes:
    return "\n".join(json.dumps(row.columns, sort_keys=True, default=str) for row in rows).encode()
