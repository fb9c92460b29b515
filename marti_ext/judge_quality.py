"""What the scores of judges are worth, by the verifier: the CoMAS paper's table 6 (arXiv:2510.08529)."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from marti_ext.types import Episode, Score, Task, Turn
from marti_ext.verifiers.kinds import verifier_for

HIGH = 1.0  # a scoring's value that calls a solution correct: 3 of 1 to 3


def judge_quality(episodes: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """{judging policy: accuracy, precision and recall of its highest score as a verdict "correct"}.

    Taken over scorings that can be read, of solutions whose truth is known: a task without a label, or a solution that
    could not be graded, is left out, and `judged` counts the rest. A rate over nothing is None. (The paper does not
    say how it makes two classes of three scores; the highest against the others is our reading.)
    """
    pairs = [
        (episode.task, turn) for episode in episodes for turn in episode.turns if _is_readable(episode.task, turn)
    ]
    solutions = {turn.about[0]: task for task, turn in pairs}
    with ThreadPoolExecutor() as threads:  # verifiers wait for workers of their own
        scores = threads.map(lambda solution: _verdict(solutions[solution], solution), solutions)
        truth = {s: score.value == 1 for s, score in zip(solutions, scores, strict=True) if _is_known(score)}
    judged: defaultdict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for _, turn in pairs:
        if turn.about[0] in truth:
            assert turn.score is not None
            judged[turn.policy].append((turn.score.value == HIGH, truth[turn.about[0]]))
    return {policy: _rates(own) for policy, own in judged.items()}


def _is_readable(task: Task, turn: Turn) -> bool:
    read = turn.interaction == "scoring" and turn.score is not None and turn.score.status == "ok"
    return bool(read and task.label and turn.about)


def _verdict(task: Task, solution: Turn) -> Score:
    return verifier_for(task.kind).verify(task, solution.completion.text)


def _is_known(score: Score) -> bool:
    return score.status in ("ok", "unparsed", "truncated")


def _rates(judged: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    said = np.array([high for high, _ in judged])
    true = np.array([right for _, right in judged])
    return {
        "judged": len(judged),
        "judge_accuracy": float((said == true).mean()),
        "judge_precision": float(true[said].mean()) if said.any() else None,
        "judge_recall": float(said[true].mean()) if true.any() else None,
    }
