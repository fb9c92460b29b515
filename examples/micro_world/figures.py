"""The laboratory's results as a table and as a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from marti_ext.plots import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]  # one for each variant, seed and step that was measured

PANELS = {
    "sampled": "accuracy of solutions, sampled",
    "greedy": "accuracy of solutions, greedy",
    "solver_reward": "reward of solutions (mean)",
    "objection_rate": "objections (share of critiques)",
    "exam": "score and truth agree, same solutions",
    "judge_truth": "score and truth agree, own solutions",
    "judge_critic": "score and critique agree",
    "critic_truth": "critique and truth agree",
    "invalid_rate": "scores that cannot be read (share)",
}


def variants_in(rows: Rows) -> list[str]:
    """In the order in which they come."""
    return list(dict.fromkeys(row["variant"] for row in rows))


def over_seeds(rows: Rows, variant: str, key: str) -> dict[int, list[float]]:
    """{step: the values of all seeds}, of the steps that every seed of the variant has reached, in order."""
    own = [row for row in rows if row["variant"] == variant]
    seeds = {row["seed"] for row in own}
    by_step: dict[int, list[float]] = {}
    for row in own:
        if row.get(key) is not None:
            by_step.setdefault(row["step"], []).append(row[key])
    return {step: by_step[step] for step in sorted(by_step) if len(by_step[step]) == len(seeds)}


def spread(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation; the mean alone of a single value."""
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def table(rows: Rows) -> Table:
    """Before and after of what the panels show, mean ± standard deviation over the seeds after."""
    keys = ("sampled", "greedy", "solver_reward", "objection_rate", "exam", "judge_critic")
    made = Table("variant", "seeds", "steps", *(PANELS[key] for key in keys))
    for variant in variants_in(rows):
        seeds = {row["seed"] for row in rows if row["variant"] == variant}
        measured = {key: over_seeds(rows, variant, key) for key in keys}
        last = max(measured["sampled"])
        made.add_row(variant, str(len(seeds)), str(last), *map(_before_after, measured.values()))
    return made


def _before_after(by_step: Mapping[int, Sequence[float]]) -> str:
    if not by_step:
        return "-"
    return f"{np.mean(by_step[min(by_step)]):.2f} → {spread(by_step[max(by_step)])}"


def draw(rows: Rows, path: Path) -> None:
    """One panel for each measure, one line for each variant: the mean over seeds, in a band from lowest to highest."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (key, title) in zip(figure.subplots(3, 3).flatten(), PANELS.items(), strict=True):
        axis.set_title(title, loc="left", fontsize=10)
        axis.set(xlabel="training steps", ylim=(-0.02, 1.02))
        axis.grid(axis="y", color="#DDDDDD")
        axis.spines[["top", "right"]].set_visible(False)
        for place, variant in enumerate(variants_in(rows)):
            _line(axis, over_seeds(rows, variant, key), variant, place)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=90)


def _line(axis: "Axes", by_step: Mapping[int, Sequence[float]], label: str, place: int) -> None:
    steps = list(by_step)
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    axis.plot(steps, [np.mean(v) for v in by_step.values()], color=colour, marker=marker, markersize=4, label=label)
    axis.fill_between(
        steps, [min(v) for v in by_step.values()], [max(v) for v in by_step.values()], color=colour, alpha=0.2, lw=0
    )
