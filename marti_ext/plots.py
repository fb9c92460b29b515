"""The plots of a training run: few files of small multiples, a policy in the same colour on all of them.

matplotlib is imported where it is used, and its object API leaves the caller's pyplot state alone.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from marti_ext.episode_metrics import UNSCORED
from marti_ext.types import ScoreStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Look = dict[str, Any]
Floats = NDArray[np.float64]

# Okabe and Ito's colours for all kinds of colour vision, without their yellow (too pale on white). A shape per policy
# says it once more.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
MARKERS = "os^Dv<>P"
STAGES = {  # stage -> look, in colours that no policy has
    "rollout": {"color": "#332288", "marker": "o"},
    "experience": {"color": "#DDCC77", "marker": "s"},
    "training": {"color": "#44AA99", "marker": "^"},
    "checkpoint": {"color": "#882255", "marker": "D"},
}
RATE_LOOK: Look = {"color": "#D55E00", "marker": "o", "markeredgecolor": "white"}  # seen on grey and on every score
JUDGES = {
    "judge_accuracy": ("judges: accuracy", "share of scorings"),
    "judge_precision": ("judges: precision", "right among those called correct"),
    "judge_recall": ("judges: recall", "called correct among the right"),
}
MOST_SCORES = 9  # shown apart; what was said more rarely is "other"
OTHER = "other"
LONG = 40  # steps; a longer line is smoothed over a twentieth of its length


def draw_plots(
    metrics: Sequence[Row], timings: Sequence[Row], folder: Path, evaluations: Sequence[Row] = ()
) -> list[Path]:
    """Write the PNGs and return their paths. A panel whose numbers are missing says "not recorded".

    `metrics` are rows of metrics.jsonl (at least one); `timings` are rows of timings.jsonl with
    `rollout_tokens_per_second` and `training_tokens_per_second` added; `evaluations` are rows of evaluation.jsonl.
    """
    length = {
        "response_length": ("response length", "tokens per reply (mean)"),
        "truncated_rate": ("truncated replies", "share of replies"),
    }
    judgements = {
        "objection_rate": ("objections", "share of evaluations"),
        "invalid_score_rate": ("invalid scores", "share of scorings"),
    }
    training = {
        "kl": ("KL of the step", "nats"),
        "clip_fraction": ("clip fraction", "share of tokens"),
        "grad_norm": ("gradient norm", "L2 norm"),
    }
    figures = {
        "reward": _rewards(metrics),
        "scores": _scores(metrics),
        "judgements": _lines(metrics, judgements),
        "length": _lines(metrics, length),
        "training": _lines(metrics, training),
        "speed": _speed(timings),
    }
    if evaluations:
        figures["accuracy"] = _lines(evaluations, {"held_out_accuracy": ("held-out accuracy", "share of answers")})
    if any("judged" in row for row in metrics):
        figures["judges"] = _lines(metrics, JUDGES)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        figure.savefig(paths[name], dpi=130)
    return list(paths.values())


# One file each


def _rewards(metrics: Sequence[Row]) -> "Figure":
    keys = sorted({key for row in metrics for key in row if key.startswith("reward/")}) or ["reward"]
    return _lines(metrics, {key: (key.removeprefix("reward/"), "reward per turn (mean)") for key in keys})


def _lines(metrics: Sequence[Row], panels: Mapping[str, tuple[str, str]]) -> "Figure":
    """One panel per metric (its title and y label), one line per policy."""
    figure, axes = grid(len(panels))
    policies = _policies(metrics)
    for axis, (key, (title, unit)) in zip(axes, panels.items(), strict=True):
        frame(axis, title, unit, [row["step"] for row in metrics])
        drawn = [_draw_line(axis, look, _of(metrics, name), key) for name, look in policies.items()]
        if not any(drawn):
            _not_recorded(axis)
        elif key.startswith("reward"):
            axis.axhline(0, color="#777777", linewidth=0.8, zorder=1)
        elif key not in ("response_length", "kl"):  # an estimate of the KL may lie below zero
            axis.set_ylim(bottom=0)
    _legend(figure, policies)
    return figure


def _scores(metrics: Sequence[Row]) -> "Figure":
    """One panel per scoring policy: score shares, stacked, the invalid ones lowest so that the rate tops them."""
    scorers = [name for name in _policies(metrics) if any(row.get("scores") for row in _of(metrics, name))]
    figure, axes = grid(max(1, len(scorers)))
    steps = [row["step"] for row in metrics]
    if not scorers:
        frame(axes[0], "scores", "share of scorings", steps)
        _not_recorded(axes[0])
        return figure
    colours = _score_colours(metrics)
    for axis, name in zip(axes, scorers, strict=True):
        rows = _of(metrics, name)
        frame(axis, name, "share of scorings", steps)
        _draw_stack(axis, {row["step"]: _score_shares(row, colours) for row in rows}, colours)
        _draw_line(axis, RATE_LOOK, rows, "invalid_score_rate", long=math.inf)  # the exact edge of the stack
        axis.set_ylim(0, 1)
    squares: dict[str, Look] = {
        score: {"color": colour, "marker": "s", "linestyle": ""} for score, colour in colours.items()
    }
    _legend(figure, squares | {"invalid-score rate": RATE_LOOK})
    return figure


def _score_shares(row: Row, shown: Collection[str]) -> dict[str, float]:
    """Score or status -> its share of the scorings of one step; what is not shown apart is gathered under "other"."""
    counts: Counter[str] = Counter()
    for score, count in (row.get("scores") or {}).items():
        counts[score if score in shown else OTHER] += count
    return {score: count / counts.total() for score, count in counts.items()}


def _speed(timings: Sequence[Row]) -> "Figure":
    figure, (speed, seconds) = grid(2)
    steps = [row["step"] for row in timings]
    frame(speed, "speed", "tokens per second", steps)
    frame(seconds, "where the time goes", "seconds per step", steps)
    lines = [_draw_line(speed, STAGES[name], timings, f"{name}_tokens_per_second") for name in ("rollout", "training")]
    spent = {row["step"]: {stage: row.get(f"{stage}_seconds") or 0.0 for stage in STAGES} for row in timings}
    _draw_stack(seconds, spent, {stage: look["color"] for stage, look in STAGES.items()})
    for axis, drawn in ((speed, any(lines)), (seconds, any(any(stages.values()) for stages in spent.values()))):
        if drawn:
            axis.set_ylim(bottom=0)
        else:
            _not_recorded(axis)
    _legend(figure, STAGES)
    return figure


# Looks


def _policies(metrics: Sequence[Row]) -> dict[str, Look]:
    """Policy -> its colour and marker, by the order of all names, so that every figure agrees."""
    names = sorted({row["policy"] for row in metrics})
    return {
        name: {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "linestyle": "--" if i >= 8 else "-"}
        for i, name in enumerate(names)
    }


def _score_colours(metrics: Sequence[Row]) -> dict[str, Any]:
    """Score or status -> colour, from the bottom of the stack up: invalid ones grey, then low to high scores."""
    import matplotlib

    counts = sum((Counter[str](row.get("scores") or {}) for row in metrics), Counter[str]())
    statuses = [status for status in (*get_args(ScoreStatus), UNSCORED) if status != "ok"]
    invalid = {status: str(0.2 + 0.7 * i / len(statuses)) for i, status in enumerate(statuses) if status in counts}
    valid = [score for score, _ in counts.most_common() if score not in invalid]
    shown = sorted(valid[:MOST_SCORES], key=_by_number)
    shades = matplotlib.colormaps["viridis"]
    shaded = {score: shades(0.1 + 0.88 * i / max(1, len(shown) - 1)) for i, score in enumerate(shown)}
    return {**invalid, **shaded, **({OTHER: "#CC79A7"} if len(valid) > len(shown) else {})}


def _by_number(score: str) -> tuple[float, str]:
    try:
        return (float(score), score)
    except ValueError:
        return (math.inf, score)


# Panels


def grid(panels: int) -> "tuple[Figure, list[Axes]]":
    """A figure of `panels` panels, at most three in a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(panels, 3)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(max(6.5, 4.2 * columns), 3.0 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def frame(axis: "Axes", title: str, unit: str, steps: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_title(title, loc="left", fontsize=11, parse_math=False)
    axis.set_xlabel("step")
    axis.set_ylabel(unit)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    if steps:
        margin = max(0.6, 0.02 * (max(steps) - min(steps)))
        axis.set_xlim(min(steps) - margin, max(steps) + margin)
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _draw_line(axis: "Axes", look: Look, rows: Sequence[Row], key: str, long: float = LONG) -> bool:
    """Draw one metric over the steps, broken where it was not recorded; False if it never was.

    A line of more than `long` steps is drawn as its running mean, the steps themselves faint behind it.
    """
    steps, values = [row["step"] for row in rows], np.array([_value(row, key) for row in rows])
    if np.isnan(values).all():
        return False
    if len(values) > long:
        reach = len(values) // 40  # to either side
        axis.plot(steps, values, color=look["color"], linewidth=0.8, alpha=0.25)
        axis.set_xlabel(f"step (mean of {2 * reach + 1}; faint: every step)")
        values = _running_mean(values, reach)
    axis.plot(steps, values, linewidth=1.6, markersize=5, markevery=max(1, len(values) // 20), **look)
    return True


def _running_mean(values: Floats, reach: int) -> Floats:
    """The mean of what is recorded up to `reach` steps to either side; NaN where the step itself has nothing."""
    spans = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return np.array([math.nan if math.isnan(values[i]) else np.nanmean(span) for i, span in enumerate(spans)])


def _draw_stack(axis: "Axes", parts: Mapping[int, Mapping[str, float]], colours: Mapping[str, Any]) -> None:
    """Step -> part -> height, drawn as one column per step, the parts stacked with the first colour lowest."""
    steps = range(min(parts, default=0), max(parts, default=0) + 1)
    edges = np.arange(steps.start, steps.stop + 1) - 0.5
    bottom = np.zeros(len(steps))
    for part, colour in colours.items():
        top = bottom + [parts.get(step, {}).get(part, 0.0) for step in steps]
        axis.stairs(top, edges, baseline=bottom, fill=True, color=colour)  # one shape a part: fast for long runs
        bottom = top


def _not_recorded(axis: "Axes") -> None:
    axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", va="center", color="#777777")
    axis.set_yticks([])


def _legend(figure: "Figure", looks: Mapping[str, Look]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **look) for look in looks.values()]
    columns = min(len(looks), int(figure.get_figwidth() // 2))  # two inches hold a name of some 15 letters
    legend = figure.legend(handles, list(looks), loc="outside lower center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _of(metrics: Sequence[Row], policy: str) -> list[Row]:
    return [row for row in metrics if row["policy"] == policy]


def _value(row: Row, key: str) -> float:
    value = row.get(key)
    return math.nan if value is None else float(value)
