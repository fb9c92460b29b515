"""A finished or running training run at a glance: one table in the terminal, and plots in its folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from marti_ext.errors import UserError
from marti_ext.plots import draw_plots
from marti_ext.records import EVALUATION_FILE, METRICS_FILE, TIMINGS_FILE, read_rows

Row = Mapping[str, Any]

POLICY_METRICS = {  # metric of a row -> how the table calls it
    "invalid_score_rate": "invalid scores (share)",
    "objection_rate": "objections (share)",
    "judge_accuracy": "judges' accuracy",
    "response_length": "response length (tokens)",
    "truncated_rate": "truncated replies (share)",
    "kl": "KL of the step (nats)",
    "reference_kl": "KL to the initial policy (nats)",
    "clip_fraction": "clipped tokens (share)",
    "grad_norm": "gradient norm",
}
RUN_METRICS = {
    "rollout_seconds": "rollout (s)",
    "experience_seconds": "experience (s)",
    "training_seconds": "training (s)",
    "checkpoint_seconds": "checkpoint (s)",
    "rollout_tokens_per_second": "rollout (tokens/s)",
    "training_tokens_per_second": "training (tokens/s)",
}


def report(run: Path, console: Console) -> list[Path]:
    """Print the first and last step of every policy, write the plots to `run/plots`, and return their paths.

    Raises UserError where `run` is not the folder of a run that has finished a step.
    """
    metrics, timings = _rows(run)
    console.print(_table(metrics, timings))
    return draw(run)


def draw(run: Path) -> list[Path]:
    """Write the plots to `run/plots`, and return their paths. Raises UserError as `report` does."""
    evaluations = read_rows(run / EVALUATION_FILE) if (run / EVALUATION_FILE).exists() else []
    return draw_plots(*_rows(run), run / "plots", evaluations)


def _rows(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if not (run / METRICS_FILE).is_file():
        raise UserError(f"{run} holds no {METRICS_FILE}: give the folder of a training run")
    metrics = read_rows(run / METRICS_FILE)
    if not metrics:
        raise UserError(f"{run / METRICS_FILE} has no rows yet: wait for the first step to finish")
    timings = read_rows(run / TIMINGS_FILE) if (run / TIMINGS_FILE).exists() else []
    return metrics, [_with_speed(row) for row in timings]


def _with_speed(timing: Row) -> dict[str, Any]:
    """The row and, for rollout and training, tokens per second; None where no time or nothing was recorded."""
    speeds: dict[str, float | None] = {}
    for stage in ("rollout", "training"):
        tokens, seconds = timing.get(f"{stage}_tokens"), timing.get(f"{stage}_seconds")
        speeds[f"{stage}_tokens_per_second"] = tokens / seconds if tokens is not None and seconds else None
    return {**timing, **speeds}


def _table(metrics: Sequence[Row], timings: Sequence[Row]) -> Table:
    recorded = [row["step"] for row in metrics]
    steps = sorted({min(recorded), max(recorded)})  # a run of one step has one column
    table = Table("policy", "metric")
    for step in steps:
        table.add_column(f"step {step}", justify="right")
    for policy in sorted({row["policy"] for row in metrics}):
        rows = [row for row in metrics if row["policy"] == policy]
        interactions = sorted({key for row in rows for key in row if key.startswith("reward/")})
        names = {key: f"reward, {key.removeprefix('reward/')}" for key in interactions}
        _add_section(table, policy, names | POLICY_METRICS, rows, steps)
    _add_section(table, "whole step", RUN_METRICS, timings, steps)
    return table


def _add_section(
    table: Table, title: str, names: Mapping[str, str], rows: Sequence[Row], steps: Sequence[int]
) -> None:
    for index, (key, name) in enumerate(names.items()):
        numbers = [_number(_at(rows, step, key)) for step in steps]
        table.add_row(Text("" if index else title), Text(name), *numbers)  # Text: a name in brackets is no markup
    table.add_section()


def _at(rows: Sequence[Row], step: int, key: str) -> float | None:
    return next((row.get(key) for row in rows if row["step"] == step), None)


def _number(value: float | None) -> str:
    """Four significant digits, or a dash where nothing was recorded."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
