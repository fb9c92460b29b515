"""What the laboratory measures on finished episodes: how often the team is right, and how its judgements relate."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marti_ext.types import Episode, Task, Turn

SCORES = ("1", "2", "3", "invalid")

Truth = Callable[[Task, str], bool]
"""Whether a solution of a task is right."""


@dataclass(frozen=True)
class _Judged:
    """One scoring that can be read: the score on [0, 1], what is true (1 for a right solution), what the critic says
    (1 for no objection; None without a critic)."""

    score: float
    truth: float
    critic: float | None


def measure(episodes: Sequence[Episode], truth: Truth) -> dict[str, Any]:
    """Rates and means over all turns of the episodes; None where there is nothing to take them over.

    Two judgements agree by 1 - |difference|: 1 where they are the same, 1/2 where a score of 2 meets a verdict.
    `judge_truth` is taken over all scores that can be read; `judge_on_right` and `judge_on_wrong` over those of right
    and of wrong solutions. `critic_truth` is the share of critiques that object to a wrong solution, or find no flaw
    in a right one. Lengths are in tokens.
    """
    turns = [(episode.task, turn) for episode in episodes for turn in episode.turns]
    solutions = [(task, turn) for task, turn in turns if turn.interaction == "solution"]
    scorings = [(task, turn) for task, turn in turns if turn.interaction == "scoring"]
    evaluations = [(task, turn) for task, turn in turns if turn.interaction == "evaluation" and _read(turn)]
    judged = [_judged(task, turn, truth) for task, turn in scorings if _read(turn)]
    return {
        "accuracy": _mean(truth(task, turn.text) for task, turn in solutions),
        "solver_reward": _mean_reward(turn for _, turn in solutions),
        "critic_reward": _mean_reward(turn for _, turn in evaluations),
        "scores": _shares(turn for _, turn in scorings),
        "invalid_rate": _mean(not _read(turn) for _, turn in scorings),
        "objection_rate": _mean(1 - _approval(turn) for _, turn in evaluations),
        "critic_truth": _mean(_approval(turn) == truth(task, turn.about[0].text) for task, turn in evaluations),
        "judge_critic": _mean(1 - abs(j.score - j.critic) for j in judged if j.critic is not None),
        "judge_truth": _agreement(judged),
        "judge_on_right": _agreement([j for j in judged if j.truth]),
        "judge_on_wrong": _agreement([j for j in judged if not j.truth]),
        "length": {
            kind: _mean(turn.completion.reply_tokens or 0 for _, turn in turns if turn.interaction == kind)
            for kind in sorted({turn.interaction for _, turn in turns})
        },
    }


def _judged(task: Task, scoring: Turn, truth: Truth) -> _Judged:
    assert scoring.score is not None
    solution, *critiques = scoring.about
    critic = _approval(critiques[0]) if critiques and _read(critiques[0]) else None
    return _Judged(scoring.score.value, float(truth(task, solution.text)), critic)


def _read(turn: Turn) -> bool:
    """Whether the workflow could read the judgement."""
    return turn.score is not None and turn.score.status == "ok"


def _approval(evaluation: Turn) -> float:
    """0 for a critique that objects, else 1."""
    assert evaluation.score is not None
    return 1 - evaluation.score.value


def _shares(scorings: Iterable[Turn]) -> dict[str, float]:
    counts = Counter(turn.score.extracted if turn.score and _read(turn) else "invalid" for turn in scorings)
    return {score: counts[score] / counts.total() for score in SCORES} if counts else {}


def _agreement(judged: Sequence[_Judged]) -> float | None:
    return _mean(1 - abs(j.score - j.truth) for j in judged)


def _mean_reward(turns: Iterable[Turn]) -> float | None:
    return _mean(turn.reward for turn in turns if turn.reward is not None)


def _mean(values: Iterable[float]) -> float | None:
    collected = [float(value) for value in values]
    return float(np.mean(collected)) if collected else None
