"""TTRL by hand: who wins the vote, and what everybody earns (arXiv:2504.16084)."""

import asyncio
from typing import Any

import pytest

from marti_ext.agent import Agent
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.errors import UserError
from marti_ext.registry import build_plugin
from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.ttrl import TTRLReward
from marti_ext.rollout import run_episodes
from marti_ext.types import Completion, Episode, FinishReason, Task, Turn
from marti_ext.workflows.base import Workflow
from marti_ext.workflows.debate import Debate
from marti_ext.workflows.vanilla import Vanilla


def solution(text: str, finish: FinishReason = "stop") -> Turn:
    return Turn("ada", "a", "solution", 0, (), Completion(text, finish), text=text)


def copies(*texts: str, id: str = "t", kind: str = "math", **metadata: str) -> list[Episode]:
    """Episodes of one task, each with one reply; a label is there, wrong on purpose, to be left alone."""
    task = Task(id, "?", "999", kind, metadata)
    return [Episode(task, copy, [solution(text)]) for copy, text in enumerate(texts)]


def rewards(episodes: list[Episode], **options: Any) -> list[float | None]:
    TTRLReward(**options).assign(episodes)
    return [turn.reward for episode in episodes for turn in episode.turns]


def boxed(*answers: str) -> list[str]:
    return [f"So \\boxed{{{answer}}}." for answer in answers]


def test_the_majority_earns_1_and_the_others_0() -> None:
    assert rewards(copies(*boxed("7", "3", "7", "5"))) == [1, 0, 1, 0]


def test_answers_that_are_equivalent_vote_together() -> None:
    # 0.5 and 1/2 are two votes for one answer, and win a tie with the 3s because they come first.
    assert rewards(copies(*boxed("0.5", "\\frac12", "3", "3"))) == [1, 1, 0, 0]


def test_a_tie_goes_to_the_answer_of_the_first_copy_whatever_the_order_of_the_episodes() -> None:
    episodes = copies(*boxed("8", "9", "9", "8"))
    assert rewards(episodes) == [1, 0, 0, 1]
    again = copies(*boxed("8", "9", "9", "8"))
    TTRLReward().assign(again[::-1])
    assert [e.turns[0].reward for e in again] == [1, 0, 0, 1]


def test_no_answer_never_wins_and_earns_0() -> None:
    # Three replies without an answer are no vote; the single 4 is the majority of one.
    assert rewards(copies("I pass.", "", *boxed("4"), "no idea")) == [0, 0, 1, 0]


def test_an_answer_without_the_box_that_the_task_asks_for_has_no_vote() -> None:
    # A lazy "it is 5" would win by two to one if any number counted.
    assert rewards(copies("it is 5", "it is 5", *boxed("4"))) == [0, 0, 1]


def test_a_reply_that_was_cut_in_its_answer_has_no_vote_and_earns_0() -> None:
    episodes = copies("\\boxed{6", *boxed("4"), "<think>\\boxed{6}")
    assert rewards(episodes) == [0, 1, 0]


def test_one_reply_agrees_with_itself() -> None:
    assert rewards(copies(*boxed("4"))) == [1]


def test_where_no_reply_has_an_answer_all_get_the_dummy_or_nothing() -> None:
    assert rewards(copies("?", "", "hm")) == [0.5, 0.5, 0.5]
    assert rewards(copies("?", "", "hm"), dummy_reward=0.2) == [0.2, 0.2, 0.2]
    assert rewards(copies("?", "", "hm"), unvotable="mask") == [None, None, None]


@pytest.mark.parametrize("kind", ["code", "science"])
def test_kinds_that_cannot_be_voted_on_get_the_dummy_or_nothing(kind: str) -> None:
    texts = ["```python\nprint(1)\n```", "\\boxed{1}"]
    assert rewards(copies(*texts, kind=kind)) == [0.5, 0.5]
    assert rewards(copies(*texts, kind=kind), unvotable="mask") == [None, None]


def test_numbers_can_be_voted_on_if_one_says_so() -> None:
    # 9.8 and 9.81 are one answer (within 1 per cent), 12 is another.
    texts = boxed("12", "9.8", "9.81 m/s^2")
    assert rewards(copies(*texts, kind="science"), vote_kinds=("math", "science")) == [0, 1, 1]


@pytest.mark.parametrize("finish", ["error", "context_overflow"])
def test_a_call_that_failed_is_not_wrong_and_has_no_vote(finish: FinishReason) -> None:
    episodes = copies(*boxed("4"))
    episodes[0].turns.insert(0, solution("", finish))
    assert rewards(episodes) == [None, 1]
    alone = [Episode(Task("t", "?"), turns=[solution("", finish)])]
    assert rewards(alone) == [None]


def test_tasks_do_not_vote_on_each_other_and_labels_are_not_looked_at() -> None:
    first, second = copies(*boxed("1", "1", "2"), id="a"), copies(*boxed("2", "2", "999"), id="b")
    assert rewards([*first, *second]) == [1, 1, 0, 1, 1, 0]
    assert all(episode.task.label == "999" for episode in [*first, *second])


def test_only_the_named_interactions_vote() -> None:
    episodes = copies(*boxed("1", "2"))
    episodes[1].turns.append(Turn("ada", "a", "aggregation", 1, (), Completion("\\boxed{2}")))
    assert rewards(episodes) == [1, 0, None]


@pytest.mark.parametrize("workflow", [Vanilla(), Debate(debaters=2, rounds=1, aggregate=False)])
def test_it_runs_with_one_agent_by_itself_or_in_a_debate(workflow: Workflow) -> None:
    replies = boxed("3", "4", "4", "4")
    team = [Agent("ada", ScriptedBackend(replies), trainable=False)]
    tasks = [Task("a", "first?"), Task("b", "second?")]
    episodes = asyncio.run(run_episodes(workflow, tasks, team, copies=2))
    given = rewards(episodes)
    assert given[0] in (0.0, 1.0)
    assert all(reward is not None for reward in given)


def test_an_unknown_kind_is_refused_before_anything_runs() -> None:
    with pytest.raises(UserError, match="grades tasks of kind 'maths'"):
        TTRLReward(vote_kinds=("maths",)).check([])
    with pytest.raises(UserError, match=r"reward\.unvotable"):
        build_plugin("reward", RewardFunction, "ttrl", {"unvotable": "zero"})
