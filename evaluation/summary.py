"""The result of a run as tables and a figure: on the screen, summary.md, summary.csv, accuracy.png."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evaluation.benchmarks import BENCHMARKS
from evaluation.metrics import Summary, maj_at_k, summarise
from evaluation.outcome import Outcome
from evaluation.run_file import EvaluationFolder
from marti_ext.errors import UserError
from marti_ext.plots import COLOURS
from marti_ext.progress import say, show_table
from marti_ext.records import write_text_atomically
from marti_ext.types import Task
from marti_ext.verifiers.votes import majority

COLUMNS = (
    "benchmark", "setup", "measure", "tasks", "seeds", "mean %", "s.e.", "95 % interval", "std of seeds", "pass@k",
    "maj@k", "unparsed %", "truncated %", "failed %", "timeout %", "no label", "missing", "calls",
    "prompt tokens", "reply tokens", "tokens/reply", "seconds",
)  # fmt: skip
ON_SCREEN = ("benchmark", "setup", "measure", "tasks", "seeds", "mean %", "s.e.", "95 % interval", "unparsed %",
             "truncated %", "failed %", "timeout %", "no label", "missing", "calls", "tokens/reply")  # fmt: skip


def summarise_folder(folder: EvaluationFolder, console: Console) -> list[Summary]:
    """Print the table of a run and write its files."""
    found = summaries(folder)
    rows = [row for summary in found for row in table_rows(summary)]
    table = Table(*ON_SCREEN)
    for row in rows:
        table.add_row(*(row[column] for column in ON_SCREEN))
    show_table(console, table)
    sandbox = folder.read()["recorded"].get("sandbox") or {}
    notes = ["", "sandbox: " + "; ".join(f"{layer} {state}" for layer, state in sandbox.items())] if sandbox else []
    write_text_atomically(folder.path / "summary.md", "\n".join([markdown(COLUMNS, rows), *notes, ""]))
    write_text_atomically(folder.path / "summary.csv", as_csv(COLUMNS, rows))
    draw(found, folder.path / "accuracy.png")
    say(console, f"{folder.path}/summary.md, summary.csv, accuracy.png · every task: show {folder.path}")
    return found


def summaries(folder: EvaluationFolder) -> list[Summary]:
    """One for each benchmark and set-up of a run, in their order. Raises UserError for a run without results."""
    groups, planned = folder.outcomes_by_setup(), folder.read()["benchmarks"]
    if not groups:
        raise UserError(f"{folder.path} holds no results yet")
    unlabelled: dict[str, set[str]] = {benchmark: set() for benchmark, _ in groups}
    for (benchmark, _), rows in groups.items():
        unlabelled[benchmark] |= {row.task for row in rows if row.score.status == "no_label"}
    return [
        summarise(
            rows,
            _majorities(folder, rows, unlabelled[benchmark]),
            unlabelled[benchmark],
            planned.get(benchmark, {}).get("tasks", 0),
        )
        for (benchmark, _), rows in groups.items()
    ]


def _majorities(folder: EvaluationFolder, rows: Sequence[Outcome], unlabelled: Collection[str]) -> dict[int, float]:
    """{number of seeds: accuracy of the majority over them}, of tasks that have them all; {} for one seed."""
    benchmark, setup, seeds = rows[0].benchmark, rows[0].setup, sorted({row.seed for row in rows})
    if len(seeds) < 2 or benchmark not in BENCHMARKS:
        return {}
    votes: dict[str, tuple[Task, list[str], list[float]]] = {}
    for seed in seeds:
        for episode, outcome in folder.group(benchmark, setup, seed).episodes():
            if outcome.task not in unlabelled:
                _, texts, values = votes.setdefault(outcome.task, (episode.task, [], []))
                texts.append(episode.answer)
                values.append(outcome.score.value)
    winners = [
        None if (place := majority(BENCHMARKS[benchmark].verifier, task, texts)) is None else values[place]
        for task, texts, values in votes.values()
        if len(texts) == len(seeds)
    ]
    return {len(seeds): maj_at_k(winners)} if winners else {}


def table_rows(summary: Summary) -> list[dict[str, str]]:
    """One row for each measure; what does not depend on it stands in the first."""
    rows = []
    for place, (measure, found) in enumerate(summary.measures.items()):
        row = dict.fromkeys(COLUMNS, "") | {
            "benchmark": summary.benchmark,
            "setup": summary.setup,
            "measure": measure,
            "mean %": f"{100 * found.mean:.2f}",
            "s.e.": f"{100 * found.error:.2f}",
            "95 % interval": f"[{100 * found.low:.1f}, {100 * found.high:.1f}]",
            "std of seeds": "" if found.std is None else f"{100 * found.std:.2f}",
        }
        rows.append(row | _common(summary) if place == 0 else row)
    return rows


def _common(summary: Summary) -> dict[str, str]:
    numbers = {"calls": summary.calls, "prompt tokens": summary.prompt_tokens, "reply tokens": summary.reply_tokens,
               "tokens/reply": summary.reply_length, "seconds": summary.seconds}  # fmt: skip
    return {
        "tasks": str(summary.tasks),
        "seeds": str(summary.seeds),
        "pass@k": ", ".join(f"{k}: {100 * value:.2f}" for k, value in summary.pass_at.items()),
        "maj@k": ", ".join(f"{k}: {100 * value:.2f}" for k, value in summary.maj_at.items()),
        **{f"{status} %": f"{100 * rate:.1f}" for status, rate in summary.rates.items()},
        "no label": str(summary.no_label),
        "missing": str(summary.missing),
        **{name: "" if value is None else f"{value:.1f}" for name, value in numbers.items()},
    }


def markdown(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def as_csv(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """A CSV table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def draw(found: Sequence[Summary], path: Path) -> None:
    """Accuracy with its interval, by benchmark and set-up."""
    from matplotlib.figure import Figure

    setups = list(dict.fromkeys(summary.setup for summary in found))
    benchmarks = list(dict.fromkeys(summary.benchmark for summary in found))
    figure = Figure((max(5.0, 1.6 * len(benchmarks) + 2), 4.0), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(setups)
    for place, setup in enumerate(setups):
        mine = [s for s in found if s.setup == setup]
        x = [benchmarks.index(s.benchmark) + (place - (len(setups) - 1) / 2) * width for s in mine]
        heights = [100 * s.accuracy.mean for s in mine]
        errors = [
            [100 * (s.accuracy.mean - s.accuracy.low) for s in mine],
            [100 * (s.accuracy.high - s.accuracy.mean) for s in mine],
        ]
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "capsize": 2, "error_kw": {"linewidth": 1}}
        axes.bar(x, heights, width * 0.9, yerr=errors, label=setup, **look)
    axes.set_xticks(range(len(benchmarks)), benchmarks)
    axes.set_ylabel("%, with 95 % intervals")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=150)
