"""Rows of a data set, each with the place it came from: JSONL, JSON and parquet files, folders, and the hub."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from marti_ext.errors import UserError

SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its number among the rows, from 1, and the place to name in an error."""

    number: int
    place: str
    columns: Mapping[str, Any]

    def value(self, column: str, field: str = "") -> Any:
        """What stands in the column. Raises UserError naming the columns found, and `field`, what it is needed for."""
        if self.columns.get(column) is None:
            empty = f"{self.place}: column {column!r} is empty"
            fault = empty if column in self.columns else self._absent(column)
            setting = f"set the source's {field} to a column that every row has, or " if field else ""
            raise UserError(f"{fault}; {setting}correct the row")
        return self.columns[column]

    def text(self, column: str, field: str = "", needed: bool = True) -> str:
        """The column's text, or its number as text. Raises UserError for anything else, and for "" if `needed`."""
        value = self.value(column, field)
        what = f"the {field} in column {column!r}" if field else f"column {column!r}"
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UserError(f"{self.place}: {what} must be text or a number, found {value!r:.80}")
        empty = not math.isfinite(value) if isinstance(value, float) else not str(value).strip()
        if empty and needed:
            raise UserError(f"{self.place}: {what} is empty ({value!r}): fill or remove the row")
        return "" if empty else str(value)

    def items(self, column: str) -> list[Any]:
        """The column's list. Raises UserError for anything else."""
        value = self.value(column)
        if not isinstance(value, list):
            raise UserError(f"{self.place}: column {column!r} must be a list, found {value!r:.80}")
        return value

    def _absent(self, column: str) -> str:
        near = get_close_matches(column, self.columns, n=1)
        hint = f" (nearest: {near[0]!r})" if near else ""
        return f"{self.place}: no column {column!r}{hint}; the row has {', '.join(map(repr, self.columns)) or 'none'}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one split, and the name that its tasks are called by."""

    name: str
    rows: list[Row]


def read_rows(path: str, *, subset: str | None, split: str) -> Rows:
    """All rows behind `path`: a file, a folder, or else a hub data set.

    Of a folder, the file named after the split is read, or its only file; a folder of other files is left to the
    `datasets` package, as is the hub. Raises UserError where there is nothing to read or a row is broken.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        found = _file_of(local, split)
        return _file_rows(found, subset) if found else _hub_rows(path, str(local), subset, split)
    if local.is_file():
        return _file_rows(local, subset)
    if local.suffix.lower() in SUFFIXES or path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise UserError(f"data file {path} does not exist: correct the path (seen from {Path.cwd()})")
    return _hub_rows(path, path, subset, split)


def _file_of(folder: Path, split: str) -> Path | None:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    named = [file for file in files if file.stem == split]
    if len(named) == 1 or len(files) == 1:
        return (named or files)[0]
    if not files:
        return None
    several = f"several files named {split!r}" if named else f"no file named {split!r}"
    seen = ", ".join(file.name for file in (named or files)[:10])
    raise UserError(f"data folder {folder} holds {several} but {seen}: set path to one file, or split to its stem")


def _file_rows(file: Path, subset: str | None) -> Rows:
    if subset is not None:
        raise UserError(f"subset {subset!r} is set for the file {file}: only hub data sets have subsets; leave it out")
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise UserError(f"data file {file} is of no known type: give a file ending in {', '.join(SUFFIXES)}")
    return Rows(file.stem, _checked(str(file), reader(file)))


def _checked(source: str, values: Iterable[tuple[str, object]]) -> list[Row]:
    rows: list[Row] = []
    for place, columns in values:
        if not isinstance(columns, dict):
            raise UserError(f"{place}: a row must be an object with named columns, found {_kind(columns)}")
        rows.append(Row(len(rows) + 1, place, columns))
    if not rows:
        raise UserError(f"{source} holds no rows: give a file or a split with at least one")
    return rows


def _jsonl(file: Path) -> Iterator[tuple[str, object]]:
    # Split as bytes: some line breaks of Unicode may stand inside a JSON string.
    for number, line in enumerate(file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            place = f"{file}, line {number}"
            yield place, _decoded(line, place)


def _json(file: Path) -> Iterable[tuple[str, object]]:
    text = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not text.lstrip().startswith(b"["):
        return _jsonl(file)  # one object a line is common in .json files too
    rows = _decoded(text, str(file))
    assert isinstance(rows, list)
    return ((f"{file}, row {number}", row) for number, row in enumerate(rows, start=1))


def _decoded(text: bytes, place: str) -> object:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: no UTF-8 (byte {error.start}): save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        line = f" in its line {error.lineno}" if error.lineno > 1 else ""
        raise UserError(f"{place}: broken JSON{line} ({error.msg}, column {error.colno}): correct it") from None


def _parquet(file: Path) -> Iterable[tuple[str, object]]:
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read as parquet ({_line(error)}): write it anew") from None
    return ((f"{file}, row {number}", row) for number, row in enumerate(rows, start=1))


def _hub_rows(path: str, source: str, subset: str | None, split: str) -> Rows:
    data = hub_data(path, source, subset=subset, split=split)
    name = Path(path).name if subset is None else f"{Path(path).name}-{subset}"
    return Rows(name, _checked(path, ((f"{path}, row {number}", row) for number, row in enumerate(data, start=1))))


def hub_data(path: str, source: str, *, subset: str | None, split: str) -> Any:
    """A split of the hub as the `datasets` package has it, on the disk and not in memory; `path` names it in errors.

    Raises UserError where it is not to be had.
    """
    import datasets  # type: ignore[import-untyped]

    try:
        return datasets.load_dataset(source, name=subset, split=split)
    except ConnectionError as error:
        raise UserError(
            f"{path} is no local file, and the hub cannot be reached ({_line(error)}): give a local path"
        ) from None
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise UserError(f"data set {path}, split {split!r}, cannot be loaded: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a truth value"}.get(
        type(value), "nothing" if value is None else f"a {type(value).__name__}"
    )
