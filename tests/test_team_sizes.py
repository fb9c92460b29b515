"""Teams of one, two, four and eight: own or shared policies, personas, from the first call to the advantages."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from marti_ext.agent import Agent
from marti_ext.backends.base import Request, TokenBackend
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.experience.reinforce_pp import ReinforcePP
from marti_ext.registry import build_plugin
from marti_ext.rewards.base import RewardFunction
from marti_ext.rollout import run_episodes
from marti_ext.types import Completion, Episode, Floats, Sample, Task
from marti_ext.workflows.base import Workflow

TASKS = [Task(f"t{number}", "What is 2 + 2? Put the answer in \\boxed{}.", "4") for number in range(3)]


class TokenScript(ScriptedBackend, TokenBackend):
    """Fixed replies with ids and log-probs, so that agents on it can be trained."""

    async def complete(self, request: Request) -> Completion:
        text = (await super().complete(request)).text
        ids = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        return Completion(text, "stop", np.arange(3), ids, np.full(len(ids), -1.0, np.float32))


def speak(request: Request) -> str:
    """All that any part is asked for; right or wrong, high or low by the call's seed."""
    odd = request.seed % 2
    answer, score, verdict = 4 + odd, 1 + 2 * odd, "correct" if odd else "incorrect"
    return f"\\boxed{{{answer}}} <score>{score}</score> <verdict>{verdict}</verdict>"


def same(request: Request) -> str:
    return "\\boxed{4} <score>3</score> <verdict>correct</verdict>"


def team(size: int, script=speak, *, shared: bool = False) -> list[Agent]:
    backend = TokenScript(script)
    return [
        Agent(f"a{place}", backend, "one" if shared else f"p{place}", persona=f"You are number {place}.")
        for place in range(size)
    ]


def no_reference(policy: str, samples: Sequence[Sample]) -> list[Floats]:
    raise AssertionError(f"nobody needs the reference of {policy}")


def trained(
    agents: list[Agent], workflow: Mapping[str, Any], reward: Mapping[str, Any]
) -> tuple[list[Episode], Mapping[str, list[Sample]]]:
    """Stages 1 and 2 of two copies of each task."""
    built = [
        build_plugin(slot, base, options["name"], {k: v for k, v in options.items() if k != "name"})
        for slot, base, options in (("workflow", Workflow, workflow), ("reward", RewardFunction, reward))
    ]
    built[0].check(TASKS)
    built[1].check(TASKS)
    episodes = asyncio.run(run_episodes(built[0], TASKS, agents, copies=2))
    assert all(episode.status == "ok" for episode in episodes), episodes[0].error
    built[1].assign(episodes)
    return episodes, ReinforcePP().make(episodes, no_reference)


COMAS = {"name": "comas", "protocol": "waves", "rounds": 2}
METHODS = [
    # workflow, reward, turns of an episode of l agents, of which are rewarded
    (COMAS, {"name": "zero_sum"}, lambda size: 6 * size, lambda size: 6 * size),  # the paper's 6 l
    ({**COMAS, "evaluations": 0}, {"name": "zero_sum"}, lambda size: 4 * size, lambda size: 4 * size),
    (
        {**COMAS, "evaluations": 2, "scoring": False},
        {"name": "consensus"},
        lambda size: 6 * size,
        lambda size: 6 * size,
    ),
    ({"name": "vanilla"}, {"name": "ttrl"}, lambda size: size, lambda size: size),
    ({"name": "vanilla"}, {"name": "verifier"}, lambda size: size, lambda size: size),
    (
        {"name": "debate", "debaters": 8, "rounds": 2, "others": 2, "aggregate": False},
        {"name": "maporl", "influence": "discounted"},
        lambda size: 16,
        lambda size: 16,
    ),
    ({"name": "self_judge"}, {"name": "self_judge"}, lambda size: 4 * size, lambda size: size),
]
NAMES = [f"{workflow['name']}-{reward['name']}" for workflow, reward, *_ in METHODS]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(("workflow", "reward", "turns", "rewarded"), METHODS, ids=NAMES)
def test_every_method_trains_every_agent_of_a_team_of_any_size(workflow, reward, turns, rewarded, size: int) -> None:
    episodes, samples = trained(team(size), workflow, reward)
    assert [len(episode.turns) for episode in episodes] == [turns(size)] * 6
    assert sorted(samples) == [f"p{place}" for place in range(size)]
    assert sum(map(len, samples.values())) == 6 * rewarded(size)
    for policy, rows in samples.items():
        assert {row.group[1] for row in rows} == {policy.replace("p", "a")}  # an agent's own turns, and no others
        assert all(np.isfinite(row.advantages).all() for row in rows)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(("workflow", "reward", "turns", "rewarded"), METHODS, ids=NAMES)
def test_a_shared_policy_trains_on_the_turns_of_all(workflow, reward, turns, rewarded, size: int) -> None:
    _, samples = trained(team(size, shared=True), workflow, reward)
    assert sorted(samples) == ["one"]
    assert len(samples["one"]) == 6 * rewarded(size)
    assert {row.group[1] for row in samples["one"]} == {f"a{place}" for place in range(size)}
    tokens = np.concatenate([row.advantages[row.action_mask] for row in samples["one"]])
    assert abs(tokens.mean()) < 1e-5  # one baseline for all who share it


@pytest.mark.parametrize(("workflow", "reward", "turns", "rewarded"), METHODS, ids=NAMES)
def test_equal_rewards_of_a_part_teach_nothing_and_are_no_nan(workflow, reward, turns, rewarded) -> None:
    episodes, _ = trained(team(2, same), workflow, reward)
    samples = ReinforcePP(normalize="interaction").make(episodes, no_reference)
    assert sum(map(len, samples.values())) == 6 * rewarded(2)
    assert not any(row.advantages.any() for rows in samples.values() for row in rows)


@pytest.mark.parametrize(("workflow", "reward", "turns", "rewarded"), METHODS, ids=NAMES)
def test_every_call_is_made_under_the_persona_of_its_agent(workflow, reward, turns, rewarded) -> None:
    episodes, _ = trained(team(4), workflow, reward)
    for turn in (turn for episode in episodes for turn in episode.turns):
        assert turn.messages[0].role == "system"
        assert turn.messages[0].content.startswith(f"You are number {turn.agent[1:]}.")


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_in_the_papers_sequence_the_agents_of_any_team_speak_equally_often_when_balanced(size: int) -> None:
    workflow = {"name": "comas", "rounds": 2 * size, "speakers": "balanced"}
    episodes, _ = trained(team(size), workflow, {"name": "zero_sum"})
    for episode in episodes:
        counts = Counter((turn.agent, turn.interaction) for turn in episode.turns)
        assert set(counts.values()) == {2}
        assert len(counts) == 3 * size
