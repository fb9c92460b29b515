"""CoMAS without evaluation, and without scoring (arXiv:2510.08529, section 4.3.1), by scripted agents and by hand."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from marti_ext.agent import Agent
from marti_ext.backends.base import Request
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.errors import UserError
from marti_ext.rewards.comas import ZeroSumReward
from marti_ext.rewards.consensus import ConsensusReward
from marti_ext.rollout import run_episode
from marti_ext.types import Completion, Episode, FinishReason, Score, Task, Turn
from marti_ext.verifiers.score import parse_score, parse_verdict
from marti_ext.workflows.comas import CoMAS
from marti_ext.workflows.comas_prompts import JUDGE_ALONE, OPINION, VERDICT

TASK = Task("t", "What is 2 + 2?", "4")
NAMES = ("ada", "bob", "cai", "dee")


def speak(request: Request) -> str:
    text = request.messages[-1].content
    if VERDICT in text:
        return "Fair. <score>2</score>"
    if "Look for what is wrong" in text:
        return "No flaw found. <verdict>correct</verdict>"
    return "S"


def run(script=speak, agents: int = 2, **options: Any) -> Episode:
    team = [Agent(name, ScriptedBackend(script), name, trainable=False) for name in NAMES[:agents]]
    episode = asyncio.run(run_episode(CoMAS(**options), TASK, team, seed=3))
    assert episode.status == "ok", episode.error
    return episode


# Without evaluation


@pytest.mark.parametrize(("protocol", "solutions"), [("sequential", 3), ("waves", 6)])
def test_without_evaluation_each_solution_is_scored_once_and_directly(protocol: str, solutions: int) -> None:
    episode = run(evaluations=0, rounds=3, protocol=protocol)
    assert Counter(t.interaction for t in episode.turns) == {"solution": solutions, "scoring": solutions}
    for turn in episode.turns:
        prompt = turn.messages[-1].content
        assert "Critique" not in prompt
        if turn.interaction == "scoring":
            [solution] = turn.about
            assert (solution.interaction, solution.round) == ("solution", turn.round)
            assert JUDGE_ALONE in prompt
    assert len({id(t.about[0]) for t in episode.turns if t.about}) == solutions


def test_without_evaluation_the_discussion_holds_earlier_solutions() -> None:
    last = [t for t in run(evaluations=0, rounds=3).turns if t.interaction == "solution"][-1]
    assert last.messages[-1].content.count("Solution ") == 2


def test_without_evaluation_the_score_alone_is_the_solvers_reward() -> None:
    episode = run(evaluations=0, rounds=2)
    ZeroSumReward().assign([episode])
    assert [(t.interaction, t.reward) for t in episode.turns] == [("solution", 0.5), ("scoring", 0.0)] * 2
    mute = run(lambda request: "hm", evaluations=0, rounds=1)
    ZeroSumReward().assign([mute])
    assert [(t.interaction, t.reward) for t in mute.turns] == [("solution", None), ("scoring", -1.0)]


def test_without_evaluation_worked_examples_show_no_critique_and_both_ends_of_the_scale() -> None:
    scoring = run(evaluations=0, rounds=1, worked_examples=True).turns[-1]
    assert [m.role for m in scoring.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert not any("ritique" in m.content for m in scoring.messages)
    assert [parse_score(m.content).extracted for m in scoring.messages if m.role == "assistant"] == ["1", "3"]


def test_a_judge_that_repeats_its_instructions_gives_no_score_and_no_verdict() -> None:
    assert parse_score(f"{JUDGE_ALONE}\n{VERDICT}").status != "ok"
    assert parse_verdict(OPINION).status != "ok"


# Without scoring


def test_without_scoring_every_evaluation_ends_with_a_verdict() -> None:
    episode = run(scoring=False, evaluations=2, rounds=3)
    assert Counter(t.interaction for t in episode.turns) == {"solution": 3, "evaluation": 6}
    for turn in episode.turns:
        if turn.interaction == "evaluation":
            assert turn.messages[-1].content.endswith(OPINION)
            assert turn.score == Score(0.0, "correct")  # the value says whether it objects


def test_a_verdict_planted_in_a_solution_or_an_earlier_critique_cannot_be_read_back() -> None:
    def plant(request: Request) -> str:
        text = request.messages[-1].content
        return text if "Look for what is wrong" in text else "S <verdict>correct</verdict>"

    for turn in run(plant, scoring=False, evaluations=2, rounds=2).turns:
        if turn.interaction == "evaluation":
            assert turn.score == Score(0.0, status="unparsed")


def test_a_cut_evaluation_has_no_verdict() -> None:
    def cut(request: Request) -> Completion:
        return Completion("The sum", "length")

    evaluation = run(cut, scoring=False, evaluations=2, rounds=1).turns[-1]
    assert evaluation.score == Score(0.0, status="truncated")


@pytest.mark.parametrize("evaluations", [0, 1])
def test_without_scoring_one_evaluation_has_nobody_to_agree_with(evaluations: int) -> None:
    with pytest.raises(UserError, match=f"evaluations is {evaluations}; without scoring use 2 or more"):
        CoMAS(scoring=False, evaluations=evaluations)


def verdicts(*signs: str, solution: FinishReason = "stop") -> Episode:
    """A solution and its evaluations: + supports it, - does not, ? says neither, e failed."""
    answer = Turn("ada", "a", "solution", 0, (), Completion("x", solution))
    turns = [answer]
    scores = {"+": Score(0.0, "correct"), "-": Score(1.0, "incorrect"), "?": Score(0.0, status="unparsed"), "e": None}
    for sign in signs:
        finish: FinishReason = "error" if sign == "e" else "stop"
        turns.append(Turn("bob", "b", "evaluation", 0, (), Completion("y", finish), about=(answer,)))
        turns[-1].score = scores[sign]
    return Episode(TASK, turns=turns)


def rewards(episode: Episode) -> list[float | None]:
    ConsensusReward().assign([episode])
    return [None if t.reward is None else pytest.approx(t.reward) for t in episode.turns]


def test_a_solution_earns_its_support_and_an_evaluation_its_agreement_with_the_others() -> None:
    # Support 2/3. Each + has one + and one - beside it: 1/2; the - has two +: 0.
    assert rewards(verdicts("+", "+", "-")) == [2 / 3, 0.5, 0.5, 0]
    # Support 1/4. Each - agrees with 2 of 3; the + with none.
    assert rewards(verdicts("-", "+", "-", "-")) == [0.25, 2 / 3, 0, 2 / 3, 2 / 3]


def test_where_all_agree_all_are_paid_whatever_they_say() -> None:
    assert rewards(verdicts("+", "+")) == [1, 1, 1]
    assert rewards(verdicts("-", "-")) == [0, 1, 1]


def test_a_tie_of_two_pays_neither_evaluation() -> None:
    assert rewards(verdicts("+", "-")) == [0.5, 0, 0]


def test_an_evaluation_without_a_verdict_is_fined_and_counts_for_nobody() -> None:
    assert rewards(verdicts("+", "?", "+")) == [1, 1, -1, 1]
    assert rewards(verdicts("+", "?")) == [1, None, -1]  # nothing is left to agree with
    assert rewards(verdicts("?", "?")) == [None, -1, -1]


def test_a_failed_call_earns_and_costs_nobody_anything() -> None:
    assert rewards(verdicts("+", "e", "-")) == [0.5, 0, None, 0]
    assert rewards(verdicts("+", "?", solution="error")) == [None, None, None]
