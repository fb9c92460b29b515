"""Two graders' values for one reply, and how often they agree."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from marti_ext.types import Score

TAIL = 300  # characters of a reply that a disagreement shows


@dataclass(frozen=True, slots=True)
class Verdict:
    """What we and one grader of another harness make of one reply."""

    benchmark: str
    task: str  # its id
    grader: str
    ours: Score
    theirs: float | None
    """In [0, 1]; None where that grader finds no answer in the reply."""
    read: str
    """The answer that it finds; the text that it was given, where it does not say."""
    reply: str

    @property
    def agree(self) -> bool:
        """Whether both give the same value; no answer is worth 0. F1 is rounded to two places, here and there."""
        return abs(self.ours.value - (self.theirs or 0.0)) < 0.005

    def line(self) -> dict[str, Any]:
        """As JSON values, with the end of the reply."""
        ours = {"value": self.ours.value, "extracted": self.ours.extracted, "status": self.ours.status}
        return {
            "benchmark": self.benchmark,
            "task": self.task,
            "grader": self.grader,
            "ours": ours,
            "theirs": self.theirs,
            "read": self.read[-TAIL:],
            "reply_tail": self.reply[-TAIL:],
        }


@dataclass(frozen=True, slots=True)
class Agreement:
    """One grader over all replies of one benchmark; the last three and `agree` add up to `replies`."""

    benchmark: str
    grader: str
    replies: int
    agree: int
    ours_higher: int
    theirs_higher: int
    unread: int
    """Replies in which that grader finds no answer and we find a right one."""


def agreements(verdicts: Iterable[Verdict]) -> list[Agreement]:
    """One for each grader, in the order of the verdicts."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.benchmark, verdict.grader), []).append(verdict)
    return [_agreement(*key, group) for key, group in groups.items()]


def _agreement(benchmark: str, grader: str, verdicts: Sequence[Verdict]) -> Agreement:
    apart = [verdict for verdict in verdicts if not verdict.agree]
    unread = sum(verdict.theirs is None for verdict in apart)
    theirs_higher = sum((verdict.theirs or 0.0) > verdict.ours.value for verdict in apart)
    return Agreement(
        benchmark,
        grader,
        replies=len(verdicts),
        agree=len(verdicts) - len(apart),
        ours_higher=len(apart) - theirs_higher - unread,
        theirs_higher=theirs_higher,
        unread=unread,
    )


def agreement_table(found: Iterable[Agreement]) -> Table:
    table = Table("benchmark", "grader", "replies", "agree", "ours higher", "theirs higher", "only we find an answer")
    for row in found:
        counts = (row.replies, row.agree, row.ours_higher, row.theirs_higher, row.unread)
        table.add_row(row.benchmark, row.grader, *map(str, counts))
    return table
