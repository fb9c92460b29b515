r"""Grade mathematical answers.

The answer of a reply is read (`extract`), brought into one spelling (`normalise`), taken apart (`read`,
`units`, `number`) and compared (`compare`). Only what needs algebra goes to a worker process (`worker`,
`symbolic`), so this module loads no sympy and most answers are graded in microseconds.

Rules where graders disagree: p% is p%, p and p/100. An absent unit or base agrees with any, a different one is wrong.
An interval and an inequality are different answers. A bare list is unordered, a pair is not. Decimals match to 1e-6
relative and to their last digit, everything else exactly. Functions are equal if they agree wherever both are real.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math.compare import count, same
from marti_ext.verifiers.math.extract import find_answer, joined, read_label
from marti_ext.verifiers.math.normalise import normalise
from marti_ext.verifiers.math.worker import POOL, Verdict, compare
from marti_ext.verifiers.workers import WorkerError

Outcome = Verdict | Literal["timeout", "failed"]
DEFAULT_TIMEOUT = 5.0  # seconds


@dataclass(frozen=True)
class MathVerifier(Verifier):
    r"""Grades the boxed answer of a reply: 1.0 for equivalent to `task.label`, 0.0 for not.

    The label is bare LaTeX, a number, a text with `\boxed{...}`, or a rationale ending in `#### 18`. Status of the
    score: "no_label" (empty, prose or unreadable: never rewarded), "truncated" (cut inside the box or in thinking),
    "unparsed" (no answer), "timeout", "failed" (the worker died), else "ok". Works from any thread.
    """

    timeout: float = DEFAULT_TIMEOUT
    """Seconds of wall clock for one comparison, once a worker process is free."""
    require_box: bool = True
    """Without a box there is no answer. If False, `extract.find_answer` falls back on markers and numbers."""

    def verify(self, task: Task, text: str) -> Score:
        """Grade the answer of `text`; `extracted` is that answer as it was written."""
        gold = read_label(task.label)
        if gold is None:
            return Score(0.0, status="no_label")
        found = find_answer(text, require_box=self.require_box)
        if found.source == "cut":
            return Score(0.0, status="truncated")
        answer = joined(found.boxes, count(gold)) or found.answer
        if not normalise(answer):
            return Score(0.0, answer, "unparsed")
        outcome = _outcome(gold, normalise(answer), self.timeout)
        if outcome == "equal" or outcome == "different":
            return Score(float(outcome == "equal"), answer)
        return Score(0.0, answer, outcome)

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        """`accuracy`, and, where boxes are not required, also `boxed`: what it would be if they were."""
        score = self.verify(task, text)
        return {self.measure: score} | ({} if self.require_box else {"boxed": if_boxed(score, text)})

    def read(self, task: Task, text: str) -> str:
        """The answer, boxed or not."""
        answer = find_answer(text, require_box=False).answer
        return answer if normalise(answer) else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        return equivalent(gold=one, pred=other, timeout=self.timeout)


def if_boxed(score: Score, text: str) -> Score:
    """What the score of a text would be if only boxes counted."""
    if score.status == "no_label" or find_answer(text, require_box=False).source in ("box", "cut"):
        return score
    return Score(0.0, status="unparsed")


def equivalent(*, gold: str, pred: str, timeout: float = DEFAULT_TIMEOUT) -> bool:
    """Whether a bare answer is equivalent to a label or to another answer; False also where that stays undecided.

    `timeout` is in seconds of wall clock. For votes: one of the two answers plays the label.
    """
    reference, answer = read_label(gold) or normalise(gold), normalise(pred)
    return bool(reference and answer) and _outcome(reference, answer, timeout) == "equal"


def _outcome(gold: str, pred: str, timeout: float) -> Outcome:
    """The verdict on two normal forms: here if it can be told without algebra, else by a worker."""
    try:
        return "equal" if same(gold, pred, _needs_algebra) else "different"
    except _NeedsAlgebraError:
        pass
    try:
        return compare(POOL, gold, pred, timeout)
    except TimeoutError:
        return "timeout"
    except WorkerError:
        return "failed"


class _NeedsAlgebraError(Exception):
    """Only a worker can tell."""


def _needs_algebra(gold: str, pred: str) -> bool:
    raise _NeedsAlgebraError
