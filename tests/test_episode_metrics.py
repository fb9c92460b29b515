import json

import numpy as np
import pytest

from marti_ext.episode_metrics import policy_metrics
from marti_ext.types import Completion, Episode, FinishReason, Score, Task, Turn


def turn(
    interaction: str,
    reward: float | None = None,
    *,
    score: Score | None = None,
    finish: FinishReason = "stop",
    ids: list[int] | None = None,
    policy: str = "p",
) -> Turn:
    token_ids = None if ids is None else np.array(ids, np.int64)
    completion = Completion("a text of any length", finish, token_ids=token_ids)
    return Turn("agent", policy, interaction, 0, (), completion, score=score, reward=reward)


def episode(*turns: Turn) -> Episode:
    return Episode(Task("t", "question"), turns=list(turns))


def test_rewards_are_means_over_rewarded_turns() -> None:
    metrics = policy_metrics(
        [episode(turn("solution", 1.0), turn("solution", 0.0), turn("solution"), turn("evaluation", -1.0))], "p"
    )
    assert metrics["reward/solution"] == pytest.approx(0.5)  # (1 + 0) / 2, the turn without reward left out
    assert metrics["reward/evaluation"] == -1.0
    assert metrics["reward"] == pytest.approx(0.0)  # (1 + 0 - 1) / 3
    assert (metrics["turns"], metrics["turns/solution"], metrics["turns/evaluation"]) == (4, 3, 1)
    assert metrics["unrewarded_turns"] == 1


def test_only_turns_of_the_policy_count() -> None:
    step = [episode(turn("solution", 1.0), turn("solution", 0.0, policy="q"), turn("scoring", 0.5, policy="q"))]
    assert policy_metrics(step, "p")["reward"] == 1.0
    assert "reward/scoring" not in policy_metrics(step, "p")
    assert policy_metrics(step, "q")["turns"] == 2


def test_scores_are_counted_by_what_was_read_or_why_nothing_was() -> None:
    scores = [
        Score(0.75, "4"),
        Score(0.75, "4"),
        Score(0.0, "1"),
        Score(0.5),  # nothing extracted: its value names it
        Score(0.0, "9", "unparsed"),
        Score(0.0, "", "truncated"),
        None,
        Score(0.25, "2"),
    ]
    metrics = policy_metrics([episode(*(turn("scoring", score=score) for score in scores))], "p")
    assert metrics["scores"] == {"0.5": 1, "1": 1, "2": 1, "4": 2, "truncated": 1, "unparsed": 1, "unscored": 1}
    assert metrics["invalid_score_rate"] == 3 / 8  # unparsed, truncated, unscored


def test_only_scoring_turns_are_counted_as_scores() -> None:
    metrics = policy_metrics([episode(turn("solution", score=Score(1.0, "4")))], "p")
    assert metrics["scores"] == {}
    assert metrics["invalid_score_rate"] is None


def test_objection_rate_is_the_mean_over_evaluations_that_could_be_read() -> None:
    scores = [Score(1.0), Score(0.0), Score(0.0), Score(0.0, status="unparsed"), None]
    turns = [turn("evaluation", score=score) for score in scores] + [turn("scoring", score=Score(1.0))]
    assert policy_metrics([episode(*turns)], "p")["objection_rate"] == pytest.approx(1 / 3)


def test_response_length_is_in_tokens_and_unknown_without_ids() -> None:
    some = [turn("solution", ids=[1, 2]), turn("solution", ids=[1, 2, 3, 4]), turn("solution")]
    assert policy_metrics([episode(*some)], "p")["response_length"] == 3.0  # (2 + 4) / 2
    assert policy_metrics([episode(turn("solution"))], "p")["response_length"] is None


def test_finish_reasons_are_counted_and_give_the_rates() -> None:
    reasons: list[FinishReason] = ["stop", "stop", "stop", "stop", "length", "length", "context_overflow", "error"]
    metrics = policy_metrics([episode(*(turn("solution", finish=reason) for reason in reasons))], "p")
    assert metrics["finish_reasons"] == {"context_overflow": 1, "error": 1, "length": 2, "stop": 4}
    assert (metrics["truncated_rate"], metrics["overflow_rate"], metrics["error_rate"]) == (2 / 8, 1 / 8, 1 / 8)


def test_a_reply_of_one_token_over_and_over_is_found() -> None:
    turns = [
        turn("solution", ids=[0] * 8, finish="length"),  # collapsed
        turn("solution", ids=[0] * 8 + [99]),  # collapsed, then the end token
        turn("solution", ids=[0] * 8 + [99], finish="length"),  # another token, and no end
        turn("solution", ids=[0, 1] * 5),
        turn("solution", ids=[0] * 7, finish="length"),  # too short to tell
        turn("solution"),  # no ids
    ]
    assert policy_metrics([episode(*turns)], "p")["repeated_token_rate"] == 2 / 4


def test_failed_episodes_are_counted_even_where_the_policy_never_spoke() -> None:
    spoken = Episode(Task("t", ""), turns=[turn("solution", finish="error")], status="failed")
    metrics = policy_metrics([episode(turn("solution", 1.0)), spoken, Episode(Task("t", ""), status="timeout")], "p")
    assert (metrics["episodes"], metrics["failed_episodes"], metrics["turns"]) == (3, 2, 2)
    assert metrics["error_rate"] == 1 / 2  # the turn of the failed episode tells why it failed


def test_nothing_gives_none_and_neither_zero_nor_nan() -> None:
    assert policy_metrics([], "p") == {
        "episodes": 0,
        "failed_episodes": 0,
        "turns": 0,
        "unrewarded_turns": 0,
        "reward": None,
        "scores": {},
        "invalid_score_rate": None,
        "objection_rate": None,
        "response_length": None,
        "truncated_rate": None,
        "overflow_rate": None,
        "error_rate": None,
        "repeated_token_rate": None,
        "finish_reasons": {},
    }


def test_the_numbers_are_plain_json_and_the_same_for_the_same_episodes() -> None:
    step = [episode(turn("scoring", 0.1, score=Score(1.0, "5"), ids=[1, 2, 3]), turn("solution", 0.2))]
    assert json.dumps(policy_metrics(step, "p")) == json.dumps(policy_metrics(step, "p"))
