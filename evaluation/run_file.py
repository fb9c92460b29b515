"""The folder of one evaluation: run.json says what was asked for, BENCHMARK/SETUP/seed-N.jsonl how each task went."""

import fcntl
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluation.outcome import Outcome
from marti_ext.errors import UserError
from marti_ext.records import append_rows, episode_from_json, episode_to_json, read_rows, write_text_atomically
from marti_ext.run_folder import writable
from marti_ext.types import Episode

RUN_FILE = "run.json"
_GROUP_FILE = re.compile(r"seed-(0|[1-9][0-9]*)\.jsonl")
_OUTCOME = TypeAdapter(Outcome)


class EvaluationFolder:
    """What an evaluation leaves behind, and resumes from."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder for one process. Raises UserError if it cannot be written or is in use."""
        with (writable(self.path) / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"--out {str(self.path)!r} is in use by another process") from error
            yield

    def accept(
        self,
        identity: Mapping[str, Any],
        benchmarks: Mapping[str, Mapping[str, Any]],
        setups: Mapping[str, str],
        recorded: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write down what is asked for. A run that is there may gain benchmarks, set-ups and seeds, not change;
        what is only `recorded` may.

        Raises UserError naming what differs.
        """
        now = _as_json({"identity": identity, "benchmarks": benchmarks, "recorded": {**recorded, "setups": setups}})
        if not (self.path / RUN_FILE).exists() and (groups := self.groups()):
            raise UserError(
                f"--out {str(self.path)!r} holds {groups[0].path} but no {RUN_FILE}: choose another folder"
            )
        before = self.read() if (self.path / RUN_FILE).exists() else now
        self._compare(before["identity"], now["identity"], "")
        for name, facts in now["benchmarks"].items():
            self._compare(before["benchmarks"].get(name, facts), facts, f"{name} ")
        known = before["recorded"]["setups"]
        self._compare({name: known.get(name, text) for name, text in setups.items()}, setups, "set-up ")
        merged = {
            "identity": now["identity"],
            "benchmarks": {**before["benchmarks"], **now["benchmarks"]},
            "recorded": {key: {**before["recorded"].get(key, {}), **v} for key, v in now["recorded"].items()},
        }
        write_text_atomically(self.path / RUN_FILE, json.dumps(merged, indent=1, sort_keys=True) + "\n")

    def read(self) -> dict[str, Any]:
        """run.json. Raises UserError where it is missing or broken."""
        file = self.path / RUN_FILE
        try:
            values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if not all(isinstance(values[key], dict) for key in ("identity", "benchmarks", "recorded")):
                raise TypeError("no mapping")
            if not all(isinstance(v, dict) for v in (values["recorded"]["setups"], *values["benchmarks"].values())):
                raise TypeError("no mapping")
        except OSError as error:
            raise UserError(f"{file} cannot be read: give the --out folder of an evaluation") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is not what an evaluation wrote: choose another folder") from error
        return values

    def group(self, benchmark: str, setup: str, seed: int) -> "Group":
        return Group(self.path / benchmark / setup / f"seed-{seed}.jsonl", benchmark, setup, seed)

    def groups(self) -> list["Group"]:
        """All that have results, by name and seed."""
        found = ((p, _GROUP_FILE.fullmatch(p.name)) for p in self.path.glob("*/*/seed-*.jsonl"))
        groups = [self.group(p.parts[-3], p.parts[-2], int(name[1])) for p, name in found if name]
        return sorted(groups, key=lambda g: (g.benchmark, g.setup, g.seed))

    def outcomes(self) -> list[Outcome]:
        return [outcome for group in self.groups() for outcome in group.outcomes()]

    def outcomes_by_setup(self) -> dict[tuple[str, str], list[Outcome]]:
        """{(benchmark, set-up): its outcomes}."""
        found: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in self.outcomes():
            found.setdefault((outcome.benchmark, outcome.setup), []).append(outcome)
        return found

    def _compare(self, before: Mapping[str, Any], now: Mapping[str, Any], what: str) -> None:
        for key in sorted({*before, *now}):
            if key != "data" and before.get(key) != now.get(key):  # the same bytes may lie elsewhere
                raise UserError(
                    f"--out {str(self.path)!r} holds an evaluation with {what}{key} = {before.get(key)!r}, not "
                    f"{now.get(key)!r}: choose another folder"
                )


class Group:
    """The results of one (benchmark, set-up, seed): one line a task; of two lines for one task the later counts."""

    def __init__(self, path: Path, benchmark: str, setup: str, seed: int) -> None:
        self.path, self.benchmark, self.setup, self.seed = path, benchmark, setup, seed
        self.journal_path = path.with_name(f"seed-{seed}.calls.jsonl")

    def append(self, episode: Episode, outcome: Outcome) -> None:
        scores = [{"measure": measure, **asdict(score)} for measure, score in outcome.scores.items()]
        append_rows(self.path, [{**asdict(outcome), "scores": scores, "episode": episode_to_json(episode)}])

    def rows(self) -> dict[str, dict[str, Any]]:
        """Task id -> its line. Raises UserError for a line of another group."""
        if not self.path.exists():
            return {}
        rows = {}
        for row in read_rows(self.path):
            place = row.get("benchmark"), row.get("setup"), row.get("seed")
            if place != (self.benchmark, self.setup, self.seed) or not isinstance(row.get("task"), str):
                raise UserError(f"{self.path} holds a line of another run: {place}; remove the file or choose another")
            rows[row["task"]] = row
        return rows

    def outcomes(self) -> list[Outcome]:
        return [_outcome(row, self.path) for row in self.rows().values()]

    def episodes(self) -> Iterator[tuple[Episode, Outcome]]:
        """Every task's episode with its outcome. Raises UserError for a line that holds none."""
        for row in self.rows().values():
            outcome = _outcome(row, self.path)
            try:
                yield episode_from_json(row["episode"]), outcome
            except (KeyError, IndexError, TypeError) as error:
                raise UserError(f"{self.path}: task {outcome.task!r} has no episode ({error!r})") from error


def _outcome(row: Mapping[str, Any], path: Path) -> Outcome:
    try:
        scores = {score["measure"]: {k: v for k, v in score.items() if k != "measure"} for score in row["scores"]}
        values = {field.name: row[field.name] for field in fields(Outcome) if field.name != "scores"}
        outcome = _OUTCOME.validate_python({**values, "scores": scores})
        if not scores or not all(0 <= score.value <= 1 for score in outcome.scores.values()):
            raise ValueError("scores must be there and from 0 to 1")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: the line of task {row.get('task')!r} is no result ({reason}); remove it") from error
    return outcome


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
