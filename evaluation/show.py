"""`python -m evaluation show`: every prompt, reply, extracted answer and verdict."""

from pathlib import Path

from rich.console import Console

from evaluation.outcome import Outcome
from evaluation.run_file import EvaluationFolder
from marti_ext.errors import UserError
from marti_ext.progress import say
from marti_ext.registry import nearest
from marti_ext.transcript import show_episode
from marti_ext.types import Episode

STATUSES = ("right", "wrong", "unparsed", "truncated", "failed", "timeout", "no_label")


def show(
    run: Path,
    console: Console,
    benchmark: str | None,
    setup: str | None,
    task: str | None,
    status: str | None,
    count: int,
) -> None:
    """Print the first `count` episodes of a run that fit. Raises UserError where none does."""
    if status is not None and status not in STATUSES:
        raise UserError(f"--status {status!r}: {nearest(status, STATUSES)}")
    folder = EvaluationFolder(run)
    folder.read()
    groups = folder.groups()
    for option, wanted, known in (
        ("benchmark", benchmark, {group.benchmark for group in groups}),
        ("setup", setup, {group.setup for group in groups}),
    ):
        if wanted is not None and wanted not in known:
            raise UserError(f"{run} has no {option} {wanted!r}: {nearest(wanted, known)}")
    shown = 0
    for group in groups:
        if benchmark in (None, group.benchmark) and setup in (None, group.setup):
            for episode, outcome in group.episodes():
                if task in (None, outcome.task) and status in (None, _verdict(outcome)):
                    _print(episode, outcome, console)
                    shown += 1
                    if shown == count:
                        return
    if not shown:
        raise UserError(f"{run} holds no such episode: ask for another task or status")


def _print(episode: Episode, outcome: Outcome, console: Console) -> None:
    console.print(show_episode(episode, prompts=True))
    for measure, score in outcome.scores.items():
        why = f" · {score.reason}" if score.reason else ""
        say(console, f"{measure}: {score.value:g} ({score.status}) · extracted: {score.extracted!r}{why}")


def _verdict(outcome: Outcome) -> str:
    if outcome.score.status != "ok":
        return outcome.score.status
    return "right" if outcome.score.value == 1 else "wrong"
