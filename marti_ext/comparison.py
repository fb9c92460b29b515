"""Runs beside each other: runs that differ in their seed alone are one line, with a band over the seeds.

A row is one step of one run: `line`, `seed`, `step` and its numbers.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from marti_ext.errors import UserError
from marti_ext.plots import COLOURS, MARKERS, frame, grid
from marti_ext.progress import say, show_table
from marti_ext.records import EVALUATION_FILE, METRICS_FILE, read_rows
from marti_ext.run_folder import CONFIG_FILE, FREE_KEYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]
Panels = Mapping[str, str]  # number of a row -> how it is called

PANELS: Panels = {
    "held_out_accuracy": "held-out accuracy",
    "reward": "reward",
    "reward/solution": "reward of solutions",
    "reward/evaluation": "reward of evaluations",
    "invalid_score_rate": "invalid scores (share)",
    "objection_rate": "objections (share)",
    "judge_accuracy": "judges' accuracy",
    "response_length": "reply length (tokens)",
    "truncated_rate": "truncated replies (share)",
    "grad_norm": "gradient norm",
}


def compare(runs: Sequence[Path], figure: Path, console: Console) -> None:
    """Print a table of all runs and draw them into one figure. Raises UserError for a folder without a run."""
    rows = run_rows(runs)
    panels = {key: title for key, title in PANELS.items() if any(row.get(key) is not None for row in rows)}
    draw(rows, panels, figure)
    show_table(console, table(rows, panels))
    say(console, f"figure  {figure} (means of policies; line: mean over seeds, band: from lowest to highest)")


def run_rows(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """A row for each run and step: means over its policies. Lines are called after folders."""
    groups: dict[str, list[tuple[Path, int]]] = {}
    for run in runs:
        config = _config(run)
        kind = json.dumps({k: v for k, v in config.items() if k not in {*FREE_KEYS, "seed"}}, sort_keys=True)
        groups.setdefault(kind, []).append((run, config.get("seed", 0)))
    rows = []
    for group in groups.values():
        name = _name([run for run, _ in group])
        for run, seed in group:
            rows += [{"line": name, "seed": seed, **row} for row in _means(run)]
    return rows


def _config(run: Path) -> dict[str, Any]:
    if not (run / METRICS_FILE).is_file() or not (run / CONFIG_FILE).is_file():
        raise UserError(f"{run} holds no {METRICS_FILE} with its {CONFIG_FILE}: give the folders of training runs")
    config: dict[str, Any] = yaml.safe_load((run / CONFIG_FILE).read_text(encoding="utf-8"))
    return config


def _name(runs: Sequence[Path]) -> str:
    """The folder's name; of several what their names begin with, or else their parent's."""
    first, *others = [run.resolve().name for run in runs]
    shared = first
    for other in others:
        while not other.startswith(shared):
            shared = shared[:-1]
    shared = shared.rstrip("0123456789-_. ") if others else shared
    return shared if shared and shared != "seed" else runs[0].resolve().parent.name


def _means(run: Path) -> list[dict[str, Any]]:
    recorded = read_rows(run / METRICS_FILE)
    file = run / EVALUATION_FILE
    # What was measured after n steps stands with the n-th one's row: the weights are the same.
    recorded += [{**row, "step": row["step"] - 1} for row in (read_rows(file) if file.exists() else [])]
    means = []
    for step in sorted({row["step"] for row in recorded}):
        own = [row for row in recorded if row["step"] == step]
        numbers = {key: [row[key] for row in own if row.get(key) is not None] for key in PANELS}
        means.append({"step": step, **{key: float(np.mean(values)) for key, values in numbers.items() if values}})
    return means


def lines_in(rows: Rows) -> list[str]:
    """In the order in which they come."""
    return list(dict.fromkeys(row["line"] for row in rows))


def over_seeds(rows: Rows, line: str, key: str) -> dict[int, list[float]]:
    """{step: the values of all seeds}, of the steps at which every seed of the line has the number, in order."""
    own = [row for row in rows if row["line"] == line]
    seeds = {row["seed"] for row in own}
    by_step: dict[int, list[float]] = {}
    for row in own:
        if row.get(key) is not None:
            by_step.setdefault(row["step"], []).append(row[key])
    return {step: by_step[step] for step in sorted(by_step) if len(by_step[step]) == len(seeds)}


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation; the mean alone of a single value."""
    mean = f"{np.mean(values):.3g}"
    return f"{mean} ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else mean


def table(rows: Rows, panels: Panels) -> Table:
    """First and last of each number, the last as mean ± standard deviation over the seeds."""
    made = Table("run", "seeds", "last step", *(Column(title) for title in panels.values()))
    for line in lines_in(rows):
        own = [row for row in rows if row["line"] == line]
        measured = [over_seeds(rows, line, key) for key in panels]
        last = max((step for by_step in measured for step in by_step), default=0)
        made.add_row(Text(line), str(len({row["seed"] for row in own})), str(last), *map(_first_last, measured))
    return made


def _first_last(by_step: Mapping[int, Sequence[float]]) -> str:
    if not by_step:
        return "–"
    return f"{np.mean(by_step[min(by_step)]):.3g} → {spread(by_step[max(by_step)])}"


def draw(rows: Rows, panels: Panels, path: Path) -> None:
    """One panel for each number, one line for each run: the mean over seeds, in a band from lowest to highest."""
    figure, axes = grid(len(panels))
    lines = lines_in(rows)
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        frame(axis, title, "", [row["step"] for row in rows])
        for place, line in enumerate(lines):
            _draw_line(axis, over_seeds(rows, line, key), line, place)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(lines)), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_line(axis: "Axes", by_step: Mapping[int, Sequence[float]], label: str, place: int) -> None:
    steps = list(by_step)
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    means = [float(np.mean(values)) for values in by_step.values()]
    axis.plot(steps, means, color=colour, marker=marker, markersize=4, label=label)
    low, high = ([edge(values) for values in by_step.values()] for edge in (min, max))
    axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
