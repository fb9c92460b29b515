"""Tasks from a hub data set or a local JSONL, JSON or parquet file, row by row and strictly."""

import random
from collections import Counter

from pydantic import BaseModel, ConfigDict, Field

from marti_ext.datasets.rows import Row, read_rows
from marti_ext.datasets.stream import Pool, TaskStream
from marti_ext.errors import UserError
from marti_ext.seeds import derive_seed
from marti_ext.types import Task


class DataSource(BaseModel):
    """One data set, and which of its columns mean what."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    path: str = Field(min_length=1)
    """A local .jsonl, .json or .parquet file, a local folder, or the name of a data set on the Hugging Face hub."""
    split: str = "train"
    """The split of a hub data set; of a folder, the file with this name (or its only file). A file is read whole."""
    subset: str | None = None
    """The subset (configuration) of a hub data set, such as main."""
    prompt: str = "prompt"
    """The column with the problem's text."""
    label: str | None = "label"
    """The column with the reference answer, text or a number; null where there is none."""
    id: str | None = None
    """The column with the task's id, text or a whole number; null: the data set's name and the row's number."""
    kind: str = "math"
    """The kind of the tasks, which says how answers are verified."""
    kind_column: str | None = None
    """The column with each task's own kind, in place of kind, for files that mix them."""
    prompt_suffix: str = ""
    """Text put behind every prompt, for example how to give the answer."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """This source's part in the mix; only the ratio to the other sources' weights counts."""
    limit: int | None = Field(default=None, ge=1)
    """Take this many rows, drawn by the seed and kept in order; null: all."""
    metadata: list[str] = []
    """Further columns to keep with each task."""


class DataConfig(BaseModel):
    """Where the tasks come from, and how they are mixed."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    sources: list[DataSource] = Field(min_length=1)
    """The data sets, at least one."""
    shuffle: bool = True
    """Give the tasks of each pass in a new order drawn by the seed; false: in the order of the data."""


def load_stream(config: DataConfig, *, needs_label: bool, seed: int) -> TaskStream:
    """The tasks of all sources, mixed by their weights. Raises UserError as `load_tasks` and `TaskStream` do."""
    pools = [Pool(s.path, load_tasks(s, needs_label=needs_label, seed=seed), s.weight) for s in config.sources]
    return TaskStream(pools, seed=seed, shuffle=config.shuffle)


def load_tasks(source: DataSource, *, needs_label: bool, seed: int) -> list[Task]:
    """The tasks of one source, in its order; `seed` draws the rows where `limit` is below their number.

    Raises UserError, naming the row and the fix, where a row has no prompt, a label that is needed is missing or no
    text or number, or an id stands twice.
    """
    if needs_label and source.label is None:
        raise UserError(f"data source {source.path} has label: null, but labels are needed: name the column")
    found = read_rows(source.path, subset=source.subset, split=source.split)
    rows = found.rows
    if source.limit is not None and source.limit < len(rows):
        drawn = random.Random(derive_seed(seed, "rows", found.name)).sample(range(len(rows)), source.limit)
        rows = [rows[index] for index in sorted(drawn)]
    tasks = [_task(row, source, found.name, needs_label) for row in rows]
    _refuse_repeated_ids(tasks, rows)
    return tasks


def _task(row: Row, source: DataSource, name: str, needs_label: bool) -> Task:
    prompt = row.value(source.prompt, "prompt")
    if not isinstance(prompt, str):
        raise UserError(f"{row.place}: the prompt in column {source.prompt!r} must be text, found {prompt!r:.80}")
    if not prompt.isprintable() and any("\ud800" <= c <= "\udfff" for c in prompt):
        raise UserError(f"{row.place}: the prompt in column {source.prompt!r} holds half a character: correct the row")
    if not prompt.strip():
        raise UserError(f"{row.place}: the prompt in column {source.prompt!r} is empty: fill or remove the row")
    return Task(
        id=f"{name}-{row.number}" if source.id is None else row.text(source.id, "id"),
        prompt=prompt + source.prompt_suffix,
        label=_label(row, source.label, needs_label),
        kind=source.kind if source.kind_column is None else row.text(source.kind_column, "kind_column"),
        metadata={column: row.value(column, "metadata") for column in source.metadata},
    )


def _label(row: Row, column: str | None, needed: bool) -> str:
    if column is None or (not needed and row.columns.get(column) is None):
        return ""
    return row.text(column, "label", needed)


def _refuse_repeated_ids(tasks: list[Task], rows: list[Row]) -> None:
    counts = Counter(task.id for task in tasks)
    repeated = next((id_ for id_, count in counts.items() if count > 1), None)
    if repeated is not None:
        first, second, *_ = (row.place for row, task in zip(rows, tasks, strict=True) if task.id == repeated)
        raise UserError(f"{second}: id {repeated!r} stands already in {first}: give each row an id of its own")
