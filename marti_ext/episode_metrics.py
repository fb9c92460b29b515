"""What the episodes of one step say about one policy: numbers of its turns, the same for the same episodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from marti_ext.types import Episode, Turn

REPEATED_FROM = 8  # tokens; a shorter reply may repeat one token for good reason ("000000")
UNSCORED = "unscored"  # a scoring turn out of which the workflow read nothing at all


def policy_metrics(episodes: Sequence[Episode], policy: str) -> dict[str, Any]:
    """Counts, rates (0 to 1) and means over all turns of `policy`; a rate or mean over nothing is None.

    `episodes` and `failed_episodes` count every episode of the step, those in which the policy never came to speak
    included. The turns of a failed episode are counted too: they were sampled, and they tell why it failed. Lengths
    are in tokens and None where the backend reports no ids.
    """
    turns = [turn for episode in episodes for turn in episode.turns if turn.policy == policy]
    return {
        "episodes": len(episodes),
        "failed_episodes": sum(episode.status != "ok" for episode in episodes),
        "turns": len(turns),
        "unrewarded_turns": sum(turn.reward is None for turn in turns),
        "reward": _mean_reward(turns),
        **_by_interaction(turns),
        **_judgements(turns),
        **_replies(turns),
    }


def _by_interaction(turns: Sequence[Turn]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for interaction in sorted({turn.interaction for turn in turns}):
        own = [turn for turn in turns if turn.interaction == interaction]
        metrics[f"turns/{interaction}"] = len(own)
        metrics[f"reward/{interaction}"] = _mean_reward(own)
    return metrics


def _judgements(turns: Sequence[Turn]) -> dict[str, Any]:
    scores = Counter(_score_name(turn) for turn in turns if turn.interaction == "scoring")
    graded = [turn.score for turn in turns if turn.interaction == "scoring"]
    objections = [turn.score for turn in turns if turn.interaction == "evaluation" and turn.score is not None]
    return {
        "scores": dict(sorted(scores.items())),
        "invalid_score_rate": _mean(score is None or score.status != "ok" for score in graded),
        "objection_rate": _mean(score.value for score in objections if score.status == "ok"),
    }


def _replies(turns: Sequence[Turn]) -> dict[str, Any]:
    def share(test: Callable[[Turn], bool]) -> float | None:
        return _mean(test(turn) for turn in turns)

    lengths = [len(ids) for turn in turns if (ids := turn.completion.token_ids) is not None]
    repeated = [_repeats_one_token(turn) for turn in turns]
    return {
        "response_length": _mean(lengths),
        "truncated_rate": share(lambda turn: turn.completion.finish_reason == "length"),
        "overflow_rate": share(lambda turn: turn.completion.finish_reason == "context_overflow"),
        "error_rate": share(lambda turn: turn.completion.finish_reason == "error"),
        "repeated_token_rate": _mean(found for found in repeated if found is not None),
        "finish_reasons": dict(sorted(Counter(turn.completion.finish_reason for turn in turns).items())),
    }


def _score_name(turn: Turn) -> str:
    if turn.score is None:
        return UNSCORED
    if turn.score.status != "ok":
        return turn.score.status
    return turn.score.extracted or f"{turn.score.value:g}"


def _repeats_one_token(turn: Turn) -> bool | None:
    """Whether the reply is one token over and over, a sign of collapse; None for one too short to tell."""
    ids = turn.completion.token_ids
    if ids is None or len(ids) < REPEATED_FROM:
        return None
    body = ids[:-1] if turn.completion.finish_reason == "stop" else ids  # a stop may add the end token
    return bool((body == body[0]).all())


def _mean_reward(turns: Iterable[Turn]) -> float | None:
    return _mean(turn.reward for turn in turns if turn.reward is not None)


def _mean(values: Iterable[float]) -> float | None:
    collected = list(values)
    return float(np.mean(collected)) if collected else None
