"""SRLM by hand: an agent scores its own answer, and earns what it says (arXiv:2401.10020)."""

import asyncio
from collections import Counter

import pytest

from marti_ext.agent import Agent
from marti_ext.backends.base import Request
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.errors import UserError
from marti_ext.rewards.self_judge import SelfJudgeReward
from marti_ext.rollout import run_episode
from marti_ext.types import Completion, Episode, FinishReason, Score, Task, Turn
from marti_ext.verifiers.score import parse_score
from marti_ext.workflows.self_judge import HIGH, JUDGE, LOW, SelfJudge

TASK = Task("t", "What is 2 + 2?", "4")


def run(workflow: SelfJudge, script, names: tuple[str, ...] = ("ada",)) -> Episode:
    team = [Agent(name, ScriptedBackend(script), name, trainable=False) for name in names]
    episode = asyncio.run(run_episode(workflow, TASK, team))
    assert episode.status == "ok", episode.error
    return episode


def speak(request: Request) -> str:
    return "I give <score>4</score>" if "Begin with 0 points" in request.messages[-1].content else "\\boxed{4}"


def test_every_agent_judges_its_own_answer_as_often_as_asked() -> None:
    episode = run(SelfJudge(judgements=3), speak, ("ada", "bob"))
    assert Counter((t.agent, t.interaction) for t in episode.turns) == {
        ("ada", "solution"): 1, ("bob", "solution"): 1, ("ada", "scoring"): 3, ("bob", "scoring"): 3,
    }  # fmt: skip
    for turn in episode.turns:
        assert all(about.agent == turn.agent for about in turn.about)
        if turn.interaction == "scoring":
            assert turn.score == Score(0.8, "4")  # 4 / 5
            assert TASK.prompt in turn.messages[-1].content
            assert "\\boxed{4}" in turn.messages[-1].content
    assert episode.answer == "\\boxed{4}"


def test_every_judgement_has_a_seed_of_its_own() -> None:
    seeds: list[int] = []

    def script(request: Request) -> str:
        seeds.append(request.seed)
        return speak(request)

    run(SelfJudge(judgements=3), script)
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("number", [LOW - 1, HIGH + 1, 85])
def test_points_out_of_range_are_no_score(number: int) -> None:
    episode = run(SelfJudge(judgements=1), lambda request: f"<score>{number}</score>")
    assert episode.turns[-1].score == Score(0.0, str(number), "unparsed")


def test_a_score_in_the_answer_or_the_instructions_is_not_the_judges() -> None:
    def echo(request: Request) -> str:
        text = request.messages[-1].content
        return text if "Begin with 0 points" in text else "\\boxed{4} <score>5</score>"

    assert run(SelfJudge(judgements=1), echo).turns[-1].score == Score(0.0, status="unparsed")
    assert parse_score(JUDGE, low=LOW, high=HIGH).status == "unparsed"


def test_a_judgement_that_was_cut_is_told_apart() -> None:
    episode = run(SelfJudge(judgements=1), lambda request: Completion("it is", "length"))
    assert episode.turns[-1].score == Score(0.0, status="truncated")


def test_no_judgement_is_refused() -> None:
    with pytest.raises(UserError, match="judgements is 0"):
        SelfJudge(judgements=0)


# Rewards


def judged(*points: int | None, solution: FinishReason = "stop", scoring: FinishReason = "stop") -> Episode:
    answer = Turn("ada", "a", "solution", 0, (), Completion("x", solution))
    turns = [answer]
    for given in points:
        turn = Turn("ada", "a", "scoring", 0, (), Completion("y", scoring), about=(answer,))
        turn.score = Score(0.0, status="unparsed") if given is None else Score(given / 5, str(given))
        turns.append(turn)
    return Episode(TASK, turns=turns)


def rewards(episode: Episode) -> list[float | None]:
    SelfJudgeReward().assign([episode])
    return [None if t.reward is None else pytest.approx(t.reward) for t in episode.turns]


def test_the_reward_is_the_mean_over_5_and_scorings_have_none() -> None:
    assert rewards(judged(5, 4, 3)) == [0.8, None, None, None]  # (5 + 4 + 3) / 3 / 5
    assert rewards(judged(0)) == [0, None]


def test_unusable_scores_do_not_count_and_without_any_there_is_no_reward() -> None:
    assert rewards(judged(5, None, 2)) == [0.7, None, None, None]  # (5 + 2) / 2 / 5
    assert rewards(judged(None, None)) == [None, None, None]
    assert rewards(judged()) == [None]


@pytest.mark.parametrize("finish", ["error", "context_overflow"])
def test_a_failed_call_is_never_paid_and_never_counts(finish: FinishReason) -> None:
    assert rewards(judged(5, solution=finish)) == [None, None]
    assert rewards(judged(5, scoring=finish)) == [None, None]


def test_a_scoring_of_nothing_pays_nobody() -> None:
    stray = Turn("ada", "a", "scoring", 0, (), Completion("y"), score=Score(1.0, "5"))
    assert rewards(Episode(TASK, turns=[stray])) == [None]
