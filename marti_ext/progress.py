"""What a person sees while a run goes on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table


def say(console: Console, text: str) -> None:
    """Print a line literally and unbroken: a path that is broken cannot be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_table(console: Console, table: Table) -> None:
    """Print a table at its full width, also where the screen is narrower: a number that is cut says nothing."""
    before = console.width
    console.width = max(before, console.measure(table, options=console.options.update(max_width=1000)).maximum)
    console.print(table)
    console.width = before


class RunProgress:
    """A bar of steps with the latest rewards, and below it one of the stage that is running.

    Every step also leaves a line behind, so that a log file tells the same.
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=12)),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
            console=console,
        )
        self._console = console

    @contextmanager
    def shown(self, total: int, done: int, what: str = "steps") -> Iterator[None]:
        with self._progress:
            self._steps = self._progress.add_task(what, total=total, completed=done, note="")
            self._stage = self._progress.add_task("", total=None, note="", visible=False)
            yield
            self._progress.update(self._stage, visible=False)

    def stage(self, name: str, total: int) -> None:
        """A new stage of the step begins."""
        self._progress.reset(self._stage, description=f"  {name}", total=total, visible=True, note="")

    def advance(self) -> None:
        """One item of the stage is done."""
        self._progress.advance(self._stage)

    def episode_done(self) -> None:
        """One episode of a rollout without training is done."""
        self._progress.advance(self._steps)

    def say(self, text: str) -> None:
        """A line that stays."""
        say(self._console, text)

    def step_done(self, step: int, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """A step is done: its rows of metrics, one per policy."""
        means = (f"{row['policy']} {row['reward']:+.2f}" for row in rows if row["reward"] is not None)
        self._progress.update(self._steps, advance=1, note=f"reward {', '.join(means)}")
        for row in rows:
            say(self._console, f"step {step}, {seconds:.0f} s · {row['policy']}: {_rewards(row)}")


def _rewards(row: Mapping[str, Any]) -> str:
    """reward 0.42 (solution 0.50, evaluation 0.50, scoring -0.12), invalid scores 12 %, 3 updates"""
    parts = ", ".join(
        f"{key.removeprefix('reward/')} {value:.2f}"
        for key, value in row.items()
        if key.startswith("reward/") and value is not None
    )
    text = "no reward" if row["reward"] is None else f"reward {row['reward']:.2f} ({parts})"
    if row["invalid_score_rate"] is not None:
        text += f", invalid scores {row['invalid_score_rate']:.0%}"
    if row["failed_episodes"]:
        text += f", {row['failed_episodes']} of {row['episodes']} episodes FAILED"
    return f"{text}, {row['updates']} updates on {row['samples']} turns"
