"""What a person sees while an evaluation runs: rate, tokens or cost, and time left."""

from threading import Lock
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from evaluation.outcome import Outcome
from marti_ext.progress import say


class GroupProgress:
    """A bar for each (benchmark, set-up, seed). `price` is (prompt, reply) in dollars per million tokens."""

    def __init__(self, console: Console, price: tuple[float, float] | None = None) -> None:
        self._console, self._price = console, price
        self._lock = Lock()
        self._bars = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
            console=console,
        )
        self._bar: TaskID | None = None

    def __enter__(self) -> "GroupProgress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()
        self._bars.stop()

    def group(self, name: str, total: int, done: int) -> None:
        """The next group begins; `done` of its tasks are done already."""
        self._finish()
        self._name, self._before = name, done
        self._right, self._graded, self._failed, self._prompt, self._reply = 0.0, 0, 0, 0, 0
        self._bar = self._bars.add_task(name, total=total, completed=done, rate="", note="")

    def done(self, outcome: Outcome) -> None:
        """One task is graded; from any thread."""
        with self._lock:
            assert self._bar is not None
            self._graded += 1
            self._right += outcome.score.value
            self._failed += outcome.score.status == "failed"
            self._prompt += outcome.prompt_tokens or 0
            self._reply += outcome.reply_tokens or 0
            self._bars.update(self._bar, advance=1, rate=self._rate(), note=self._note())

    def _rate(self) -> str:
        elapsed = self._bars.tasks[-1].elapsed or 0.0
        return f"{self._graded / elapsed:.2f} tasks/s" if elapsed > 0 else ""

    def _note(self) -> str:
        note = f"{100 * self._right / self._graded:.1f} %"
        if self._failed:
            note += f", {self._failed} FAILED"
        if self._price:
            return f"{note}, ${(self._prompt * self._price[0] + self._reply * self._price[1]) / 1e6:.4f}"
        return f"{note}, {self._prompt + self._reply:,} tokens" if self._reply else note

    def _finish(self) -> None:
        """Leave a line behind, so that a log file tells the same."""
        if self._bar is None:
            return
        bar = self._bars.tasks[-1]
        new = f"{self._note()}, {self._rate()}" if self._graded else "nothing to do"
        say(
            self._console,
            f"{self._name}: {bar.completed:.0f} of {bar.total:.0f} tasks ({self._before} before) · {new}",
        )
        self._bars.remove_task(self._bar)
        self._bar = None
