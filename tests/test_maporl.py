"""MAPoRL by hand: verdicts, what they do to later rounds, and MARTI's shaping (arXiv:2502.18439)."""

import asyncio
import re
from typing import Any

import pytest

from marti_ext.agent import Agent
from marti_ext.backends.base import Request
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.errors import UserError
from marti_ext.rewards.maporl import MAPoRLReward, discounted
from marti_ext.rollout import run_episode
from marti_ext.types import Completion, Episode, FinishReason, Task, Turn
from marti_ext.workflows.debate import Debate

TASK = Task("t", "What is 2 + 2? Put the answer in \\boxed{}.", "4")
NAMES = ("ada", "bob", "cai", "dee")


def debate(*rounds: str, task: Task = TASK) -> Episode:
    """By round one sign for each agent: r right, w wrong, n nothing, e a failed call."""
    texts = {"r": "\\boxed{4}", "w": "\\boxed{5}", "n": "", "e": ""}
    turns = []
    for number, signs in enumerate(rounds):
        for name, sign in zip(NAMES, signs, strict=False):
            finish: FinishReason = "error" if sign == "e" else "stop"
            turns.append(Turn(name, name, "solution", number, (), Completion(texts[sign], finish)))
    return Episode(task, turns=turns)


def rewards(episode: Episode, **options: Any) -> list[float | None]:
    MAPoRLReward(**options).assign([episode])
    return [None if turn.reward is None else pytest.approx(turn.reward) for turn in episode.turns]


def test_without_influence_every_turn_earns_its_verdict() -> None:
    assert rewards(debate("rwnr", "rrww")) == [1, 0, 0, 1, 1, 1, 0, 0]


def test_influence_shares_in_the_means_of_later_rounds() -> None:
    # Round 0: right, wrong. Round 1: 3 of 4 right, mean 0.75. gamma 1: (1 + 0.75) / 2 = 0.875, (0 + 0.75) / 2 = 0.375.
    assert rewards(debate("rwww", "rrrw"), influence="discounted") == [0.875, 0.375, 0.375, 0.375, 1, 1, 1, 0]


def test_a_discount_weighs_a_round_by_its_distance() -> None:
    # gamma 0.5, three rounds of two agents; means of rounds 1 and 2: 0.5 and 1.
    # Round 0, right: (1 + 0.5 * 0.5 + 0.25 * 1) / (1 + 0.5 + 0.25) = 1.5 / 1.75; wrong: 0.5 / 1.75.
    # Round 1, wrong: (0 + 0.5 * 1) / 1.5 = 1/3; right: 1.5 / 1.5 = 1. Round 2: V.
    given = rewards(debate("rw", "wr", "rr"), influence="discounted", gamma=0.5)
    assert given == [1.5 / 1.75, 0.5 / 1.75, 1 / 3, 1, 1, 1]
    assert discounted(1.0, {1: 0.5, 2: 1.0}, 0.5) == pytest.approx(1.5 / 1.75)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_rewards_that_are_all_equal_stay_equal_under_influence(gamma: float) -> None:
    assert rewards(debate("rrrr", "rrrr"), influence="discounted", gamma=gamma) == [1] * 8
    assert rewards(debate("ww", "ww"), influence="discounted", gamma=gamma) == [0] * 4


def test_with_gamma_0_only_the_turn_itself_counts() -> None:
    assert rewards(debate("rw", "wr"), influence="discounted", gamma=0.0) == [1, 0, 0, 1]


def test_margin_is_against_the_mean_of_all_earlier_verdicts() -> None:
    # Round 0: V. Q of round 1 = 1/4; right 1 + 0.5 * 0.75 = 1.375, wrong 0 - 0.5 * 0.25 = -0.125.
    assert rewards(debate("rwww", "rrww"), shaping="margin") == [1, 0, 0, 0, 1.375, 1.375, -0.125, -0.125]
    # Q of round 2 is over both earlier rounds: (1 + 0 + 1 + 1) / 4 = 0.75; right 1 + 0.25 alpha, wrong -0.75 alpha.
    assert rewards(debate("rw", "rr", "rw"), shaping="margin", alpha=1.0)[4:] == [1.25, -0.75]


def test_quality_pays_being_right_with_the_right_and_fines_being_wrong_with_the_wrong() -> None:
    # Q = 1/4, alpha 0.5: right 1 + 0.5 * 0.25 = 1.125, wrong 0 - 0.5 * 0.75 = -0.375.
    assert rewards(debate("rwww", "rwww"), shaping="quality") == [1, 0, 0, 0, 1.125, -0.375, -0.375, -0.375]


def test_an_outcome_is_added_to_each_turn_of_the_agent() -> None:
    # beta 0.5. ada ends right: 0 + 0.5, 1 + 0.5; bob ends wrong: 1 + 0, 0 + 0.
    assert rewards(debate("wr", "rw"), beta=0.5) == [0.5, 1, 1.5, 0]
    # With margin: Q = 0.5, ada 1 + 0.25 + 0.5, bob 0 - 0.25.
    assert rewards(debate("wr", "rw"), shaping="margin", beta=0.5) == [0.5, 1, 1.75, -0.25]


def test_a_turn_that_failed_is_in_no_mean_and_earns_nothing() -> None:
    # Round 1 of three: one failed, so that the mean is 1/2, not 1/3.
    assert rewards(debate("rww", "rwe"), influence="discounted") == [0.75, 0.25, 0.25, 1, 0, None]
    assert rewards(debate("rwe", "rrr"), shaping="margin") == [1, 0, None, 1.25, 1.25, 1.25]  # Q = 1/2


def test_a_round_in_which_all_failed_leaves_both_sums() -> None:
    # gamma 0.5; round 1 failed, round 2 is right: (0 + 0.25 * 1) / (1 + 0.25) = 0.2.
    assert rewards(debate("ww", "ee", "rr"), influence="discounted", gamma=0.5) == [0.2, 0.2, None, None, 1, 1]
    assert rewards(debate("rw", "ee"), influence="discounted") == [1, 0, None, None]


def test_an_agent_whose_end_failed_has_no_outcome() -> None:
    assert rewards(debate("rr", "re"), beta=0.5) == [1.5, None, 1.5, None]


def test_without_a_usable_label_nothing_is_earned() -> None:
    episode = debate("rw", "rw", task=Task("t", "?", ""))
    assert rewards(episode, influence="discounted") == [None] * 4


def test_one_agent_alone_is_its_own_influence() -> None:
    # Wrong, then right: (0 + 1) / 2.
    assert rewards(debate("w", "r"), influence="discounted") == [0.5, 1]


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UserError, match=r"reward\.gamma is 1\.5"):
        MAPoRLReward(gamma=1.5)
    for options in ({"shaping": "margin"}, {"beta": 0.5}):
        with pytest.raises(UserError, match="use one of the two"):
            MAPoRLReward(influence="discounted", **options)


# The debate that it is used with


def numbered(request: Request) -> str:
    """A reply that is its own name, by its seed."""
    return f"R{request.seed}"


def paper_debate(seed: int = 0, **options: Any) -> Episode:
    team = [Agent(name, ScriptedBackend(numbered), name, trainable=False) for name in NAMES]
    workflow = Debate(**{"debaters": 4, "rounds": 2, "others": 2, "aggregate": False, **options})
    episode = asyncio.run(run_episode(workflow, TASK, team, seed=seed))
    assert episode.status == "ok", episode.error
    return episode


def test_the_papers_debate_is_eight_turns_and_each_reads_two_of_the_other_three() -> None:
    episode = paper_debate()
    assert [(t.agent, t.round) for t in episode.turns] == [(name, round) for round in (0, 1) for name in NAMES]
    first = {turn.text for turn in episode.turns[:4]}
    for before, after in zip(episode.turns[:4], episode.turns[4:], strict=True):
        read = re.findall(r"^R\d+$", after.messages[-1].content, re.MULTILINE)
        assert len(set(read)) == 2
        assert set(read) <= first - {before.text}
        assert after.messages[1].content == before.text  # its own reply stands as its own
    assert episode.answer == episode.turns[4].text


def test_whom_one_reads_is_drawn_by_the_seed() -> None:
    drawn = [[t.messages[-1].content for t in paper_debate(seed, rounds=4).turns] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("others", [0, 4])
def test_more_others_than_there_are_is_refused(others: int) -> None:
    with pytest.raises(UserError, match=f"others is {others}, use 1 to 3"):
        Debate(debaters=4, others=others)
