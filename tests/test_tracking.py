import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from marti_ext.errors import UserError
from marti_ext.records import read_rows
from marti_ext.tracking import JsonlTracker, TensorBoardTracker, Trackers, WandbTracker, scalars

Rows = Sequence[Mapping[str, Any]]


def step_rows(step: int) -> list[dict[str, Any]]:
    """Two policies and the timings of one step."""
    return [
        {"step": step, "policy": "a", "reward": step / 10, "kl": None, "scores": {"4": 3, "unparsed": 1}},
        {"step": step, "policy": "b", "reward": -step / 10, "kl": 0.5, "skipped": False},
        {"step": step, "rollout_seconds": 2.0},
    ]


class FailingTracker:
    """Fails when it is told to, as a logger of somebody else might."""

    required: ClassVar[bool] = False

    def __init__(self, at: str) -> None:
        self.at = at
        self.calls: list[str] = []

    def start(self) -> None:
        self._reach("start")

    def log(self, rows: Rows) -> None:
        self._reach("log")

    def close(self) -> None:
        self._reach("close")

    def _reach(self, call: str) -> None:
        self.calls.append(call)
        if call == self.at:
            raise ConnectionError("no route\nto host")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_jsonl_keeps_wall_clock_times_apart_from_the_metrics(tmp_path: Path) -> None:
    trackers = Trackers([JsonlTracker(tmp_path)])
    trackers.log(step_rows(1))
    trackers.log(step_rows(2))
    trackers.close()
    metrics, timings = read_rows(tmp_path / "metrics.jsonl"), read_rows(tmp_path / "timings.jsonl")
    assert [(row["step"], row["policy"]) for row in metrics] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert timings == [{"schema": 1, "step": step, "rollout_seconds": 2.0} for step in (1, 2)]


@pytest.mark.parametrize(
    ("at", "calls"), [("start", ["start"]), ("log", ["start", "log"]), ("close", ["start", "log", "log", "close"])]
)
def test_a_tracker_that_fails_is_named_once_and_dropped_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: str, calls: list[str]
) -> None:
    failing = FailingTracker(at)
    trackers = Trackers([failing, JsonlTracker(tmp_path)])
    trackers.log(step_rows(1))
    trackers.log(step_rows(2))
    trackers.close()
    trackers.close()
    assert failing.calls == calls
    assert warnings_of(caplog) == ["FailingTracker failed and is off from here on (ConnectionError: no route to host)"]
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 4


def test_jsonl_that_cannot_be_written_stops_the_run_before_its_first_step(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot write the metrics of the run to .*run: "):
        Trackers([JsonlTracker(tmp_path / "run")])


def test_names_are_policy_slash_metric_and_nested_counts_are_flattened() -> None:
    row = {"schema": 1, "step": 3, "policy": "a", "reward": 0.5, "kl": None, "scores": {"4": 3, "unparsed": 1}}
    assert scalars(row) == {"a/reward": 0.5, "a/scores/4": 3.0, "a/scores/unparsed": 1.0}
    assert scalars({"step": 3, "rollout_seconds": np.float32(2.5), "note": "x"}) == {"timing/rollout_seconds": 2.5}
    assert scalars({"step": 3, "policy": "a", "skipped": True}) == {"a/skipped": 1.0}
    assert math.isnan(scalars({"step": 3, "policy": "a", "loss": math.nan})["a/loss"])


def tensorboard_points(folder: Path, name: str) -> list[tuple[int, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]


def test_tensorboard_reads_back_what_was_logged_and_a_resumed_run_replaces_its_tail(tmp_path: Path) -> None:
    first = Trackers([TensorBoardTracker(tmp_path)])
    for step in (1, 2, 3):
        first.log(step_rows(step))
    first.close()
    assert tensorboard_points(tmp_path, "a/reward") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert tensorboard_points(tmp_path, "a/scores/unparsed") == [(1, 1.0), (2, 1.0), (3, 1.0)]
    resumed = Trackers([TensorBoardTracker(tmp_path)])
    resumed.log(step_rows(2))
    resumed.close()
    assert tensorboard_points(tmp_path, "a/reward") == [(1, 0.1), (2, 0.2)]


def test_wandb_works_offline_without_a_key_and_keeps_its_files_in_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    trackers = Trackers([WandbTracker(tmp_path / "run", "project", "name", "offline")])
    trackers.log(step_rows(1))
    trackers.log(step_rows(2))
    trackers.close()
    assert warnings_of(caplog) == []
    (log,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    names = {b"a/reward", b"b/kl", b"a/scores/unparsed", b"timing/rollout_seconds"}
    deadline = time.monotonic() + 20  # seconds; wandb's own process writes on for a moment after finish()
    while (found := {name for name in names if name in log.read_bytes()}) != names:
        assert time.monotonic() < deadline, f"only {found} were written"
        time.sleep(0.05)


def test_wandb_that_is_disabled_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trackers = Trackers([WandbTracker(tmp_path, "project", "name", "disabled")])
    trackers.log(step_rows(1))
    trackers.close()
    assert warnings_of(caplog) == []
    assert list(tmp_path.iterdir()) == []


def test_wandb_online_without_a_key_warns_and_never_waits_at_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    trackers = Trackers([WandbTracker(tmp_path, "project", "name", "online")])
    trackers.log(step_rows(1))
    assert warnings_of(caplog) == [
        "WandbTracker failed and is off from here on (RuntimeError: no API key: run `wandb login`, or track offline)"
    ]
