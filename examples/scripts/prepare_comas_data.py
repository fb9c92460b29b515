"""The CoMAS paper's training data (arXiv:2510.08529, section 4.1): 600 problems of mathematics, 600 of code, 800 of
science, drawn by a seed and free of every benchmark's problems.

python examples/scripts/prepare_comas_data.py --out data/comas.jsonl

Sources come from the hub, or from JSONL files in the hub's columns (--math, --code, --science). A row is left out
where it is not wanted, stands in a benchmark (word for word, or 13 words in a row), is a repetition, or where the
source's own answer is not right by the verifier that would grade it; the reasons stand beside the output in
*.dropped.jsonl. A run reads the output by

data: {sources: [{path: data/comas.jsonl, id: id, kind_column: kind, metadata: [unit, tests, entry_point]}]}
"""

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.benchmarks import BENCHMARKS, find_benchmark
from evaluation.contamination import NGRAM, BenchmarkIndex
from evaluation.load import load_benchmark
from marti_ext.cli import exit_status
from marti_ext.datasets.comas_sources import SOURCES, Source
from marti_ext.datasets.rows import Row, hub_data, read_rows
from marti_ext.errors import UserError
from marti_ext.seeds import derive_seed
from marti_ext.types import Task
from marti_ext.verifiers.kinds import verifier_for

COLUMNS = ("unit", "tests", "entry_point")  # of metadata, "" where a kind has none


@dataclass
class Draw:
    """What has been taken so far, and what has been left out, by id."""

    index: BenchmarkIndex
    seed: int
    taken: dict[str, Task] = field(default_factory=dict)  # by the problem's words
    dropped: dict[str, str] = field(default_factory=dict)

    def take(self, source: Source, rows: Sequence[tuple[str, Any, int]], count: int) -> None:
        """Draw `count` tasks of one source. Raises UserError where it has too few."""
        order = list(rows)
        random.Random(derive_seed(self.seed, source.kind)).shuffle(order)
        before = len(self.taken)
        for name, data, place in order:
            if len(self.taken) - before == count:
                break
            row = data[place] if isinstance(data, list) else Row(place + 1, f"{name}, row {place + 1}", data[place])
            self._consider(source, row, f"{source.kind}-{name}-{place + 1:05d}")
        if len(self.taken) - before < count:
            raise UserError(f"{source.kind}: {len(self.taken) - before} of {len(order)} rows can be used, not {count}")

    def _consider(self, source: Source, row: Row, id: str) -> None:
        task = source.task(row, id)
        if task is None:
            return
        problem = " ".join(source.question(row).lower().split())
        if problem in self.taken:
            self.dropped[id] = f"a repetition of {self.taken[problem].id}"
        elif reason := self.index.found(problem) or self_contradiction(task):
            self.dropped[id] = reason
        else:
            self.taken[problem] = task


def self_contradiction(task: Task) -> str:
    """Why a task can teach nothing: its own answer is not right by its verifier; else ""."""
    reply = f"```python\n{task.label}\n```" if task.kind == "code" else f"\\boxed{{{task.label}}}"
    score = verifier_for(task.kind).verify(task, reply)
    return "" if score.value == 1.0 else f"its own answer is not right: {score.reason or score.status}"


def rows_of(source: Source, path: Path | None) -> Iterator[tuple[str, Any, int]]:
    """(data set, its rows, place) of every row; those of the hub stay on the disk until they are read."""
    if path is not None:
        found = read_rows(str(path), subset=None, split="train")
        yield from ((found.name, found.rows, place) for place in range(len(found.rows)))
        return
    for subset in source.subsets:
        data = hub_data(source.hub, source.hub, subset=subset, split="train")
        name = source.hub.rpartition("/")[2] + (f"-{subset}" if subset else "")
        yield from ((name, data, place) for place in range(len(data)))


def benchmark_tasks(folder: Path | None, without: Sequence[str]) -> dict[str, list[Task]]:
    """The problems of every benchmark but those that are left out by name."""
    left_out = {find_benchmark(name).name for name in without}
    return {
        name: load_benchmark(benchmark, data_dir=folder, sample=None, sample_seed=0).tasks
        for name, benchmark in BENCHMARKS.items()
        if name not in left_out
    }


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> str:
    """The SHA-256 of the JSONL file that is written."""
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def as_row(task: Task) -> dict[str, str]:
    row = {"id": task.id, "prompt": task.prompt, "label": task.label, "kind": task.kind}
    return row | {column: str(task.metadata.get(column, "")) for column in COLUMNS}


def prepare(options: argparse.Namespace) -> None:
    benchmarks = benchmark_tasks(options.benchmarks, options.without_benchmarks)
    left_out = f" (without {', '.join(options.without_benchmarks)})" if options.without_benchmarks else ""
    print(f"{len(benchmarks)} benchmarks, {sum(map(len, benchmarks.values()))} problems{left_out}")
    draw = Draw(BenchmarkIndex(benchmarks, options.ngram), options.seed)
    files = (options.math, options.code, options.science)
    for source, file, count in zip(SOURCES, files, options.counts, strict=True):
        if count:
            draw.take(source, list(rows_of(source, file)), count)
    digest = write(options.out, [as_row(task) for task in draw.taken.values()])
    dropped = options.out.with_suffix(".dropped.jsonl")
    write(dropped, [{"id": id, "reason": reason} for id, reason in draw.dropped.items()])
    counts = Counter(task.kind for task in draw.taken.values())
    print(f"{options.out}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}; sha256 {digest}")
    print(f"{dropped}: {len(draw.dropped)} left out")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the data: its exit status is that of `marti_ext.cli.exit_status`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--seed", type=int, default=42, help="draws the rows (default 42)")
    for source in SOURCES:
        parser.add_argument(
            f"--{source.kind}", type=Path, help=f"a file in the columns of {source.hub}; default: the hub"
        )
    parser.add_argument(
        "--counts", type=int, nargs=3, metavar="N", default=[source.size for source in SOURCES],
        help="how many of mathematics, code and science (default 600 600 800)",
    )  # fmt: skip
    parser.add_argument("--benchmarks", type=Path, help="a folder with the benchmarks' files; default: the hub")
    parser.add_argument(
        "--without-benchmarks", type=lambda text: text.split(","), default=[], metavar="NAME,...",
        help="benchmarks that cannot be had and are not compared with",
    )  # fmt: skip
    parser.add_argument("--ngram", type=int, default=NGRAM, help=f"words in a row that may not be shared ({NGRAM})")
    options = parser.parse_args(arguments)
    return exit_status("prepare_comas_data", lambda: prepare(options), "nothing was written")


if __name__ == "__main__":
    sys.exit(main())
