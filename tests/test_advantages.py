"""REINFORCE++ advantages against numbers worked out by hand, and against OpenRLHF's own code."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.errors import UserError
from marti_ext.experience.advantages import normalised, returns
from marti_ext.experience.reinforce_pp import ReinforcePP
from marti_ext.experience.samples import samples_from
from marti_ext.rewards.comas import ZeroSumReward
from marti_ext.types import Completion, Episode, FinishReason, Floats, Sample, Score, Task, Turn
from patches.cpu import activate_training


def completion(prompt: int, reply: int, finish: FinishReason = "stop", log_prob: float = -1.0) -> Completion:
    """`prompt` and `reply` tokens; ids count up, so that rows can be told apart."""
    return Completion(
        "text",
        finish,
        prompt_ids=np.arange(prompt, dtype=np.int64),
        token_ids=np.arange(100, 100 + reply, dtype=np.int64),
        log_probs=np.full(reply, log_prob, np.float32),
    )


def turn(
    reward: float | None, reply: int = 1, *, agent: str = "ann", policy: str = "p", interaction: str = "solution"
) -> Turn:
    return Turn(agent, policy, interaction, 0, (), completion(2, reply), reward=reward)


def episode(*turns: Turn, task: str = "t") -> Episode:
    return Episode(Task(task, "q"), turns=list(turns))


def row(reward: float, reply: int, *, prompt: int = 2, kl: Sequence[float] = (), task: str = "t") -> Sample:
    mask = np.array([False] * prompt + [True] * reply)
    return Sample(
        "p",
        (task, "ann", "solution", 0),
        token_ids=np.arange(prompt + reply, dtype=np.int64),
        action_mask=mask,
        rollout_log_probs=np.where(mask, -1.0, 0.0).astype(np.float32),
        reward=reward,
        kl=np.array([0.0] * prompt + list(kl), np.float32) if kl else np.zeros(0, np.float32),
    )


def no_reference(policy: str, samples: Sequence[Sample]) -> list[Floats]:
    raise AssertionError(f"nobody needs the reference of {policy}")


def actions(sample: Sample) -> list[float]:
    return [float(a) for a in sample.advantages[sample.action_mask]]


def advantages_by_agent(samples: Sequence[Sample]) -> dict[str, float]:
    """Of rows with one action token each."""
    return {sample.group[1]: actions(sample)[0] for sample in samples}


def test_tokens_are_normalised_and_padding_is_not() -> None:
    # Returns [1, 1 | -1]: mean 1/3, variance (2 * (2/3)^2 + (4/3)^2) / 3 = 8/9, deviation 0.942809.
    # (1 - 1/3) / 0.942809 = 0.7071 and (-1 - 1/3) / 0.942809 = -1.4142. Zeros of padding would give 0.8704, -1.2185.
    first, second = normalised([row(1.0, 2), row(-1.0, 1)])
    assert actions(first) == pytest.approx([0.70711, 0.70711], abs=1e-4)
    assert actions(second) == pytest.approx([-1.41421], abs=1e-4)


def test_prompts_and_their_length_do_not_count() -> None:
    short = normalised([row(1.0, 2, prompt=1), row(-1.0, 1, prompt=1)])
    long = normalised([row(1.0, 2, prompt=50), row(-1.0, 1, prompt=7)])
    assert [actions(a) for a in short] == [actions(a) for a in long]
    assert not long[0].advantages[:50].any()
    assert long[0].advantages.shape == long[0].token_ids.shape


@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0]), st.integers(1, 30)), min_size=2, max_size=30))
def test_advantages_of_a_policy_have_mean_0_and_deviation_1(shapes: list[tuple[float, int]]) -> None:
    rows = normalised([row(reward, reply) for reward, reply in shapes])
    tokens = np.concatenate([sample.advantages[sample.action_mask] for sample in rows]).astype(np.float64)
    assert tokens.mean() == pytest.approx(0, abs=1e-6)
    if len({reward for reward, _ in shapes}) > 1:
        assert tokens.std() == pytest.approx(1, abs=1e-6)
    else:
        assert not tokens.any()


@pytest.mark.parametrize("reward", [0.0, 1.0, -1.0, 0.1, 1 / 3])
def test_equal_rewards_give_exact_zeros(reward: float) -> None:
    for sample in normalised([row(reward, 3), row(reward, 5), row(reward, 1)]):
        assert not sample.advantages.any()


def test_one_sample_gives_exact_zeros() -> None:
    [sample] = normalised([row(0.7, 4)])
    assert actions(sample) == [0.0, 0.0, 0.0, 0.0]


def test_one_sample_with_a_penalty_per_token_stays_finite() -> None:
    # Returns with 0.1 * kl: [1 - 0.1 * 0.5, 1 - 0.1 * 0.25] less ...: two values, so advantages are -1 and 1.
    [sample] = normalised([row(1.0, 2, kl=[0.5, 0.25])], kl_coef=0.1)
    assert actions(sample) == pytest.approx([-1.0, 1.0], abs=1e-5)


def test_no_sample_gives_none() -> None:
    assert normalised([]) == []
    assert ReinforcePP().make([], no_reference) == {}


def test_the_reward_stands_on_the_last_action_token() -> None:
    mask = np.array([False, True, True, True])
    assert returns(2.0, mask, np.zeros(0, np.float32), 0.0).tolist() == [0, 2, 2, 2]
    # An action in the middle of others' words: the reward is on the last token that was sampled, not on the last one.
    apart = np.array([False, True, False, True, False])
    assert returns(2.0, apart, np.zeros(0, np.float32), 0.0).tolist() == [0, 2, 0, 2, 0]


def test_a_penalty_per_token_is_summed_from_the_end() -> None:
    # Rewards per token with beta = 0.5: -0.5 * [0.2, -0.4, 0.6] + [0, 0, 1] = [-0.1, 0.2, 0.7];
    # to go: [0.8, 0.9, 0.7]. What stands off the mask counts for nothing.
    mask = np.array([False, False, True, True, True])
    kl = np.array([9.0, 9.0, 0.2, -0.4, 0.6], np.float32)
    assert returns(1.0, mask, kl, 0.5).tolist() == pytest.approx([0, 0, 0.8, 0.9, 0.7], abs=1e-6)


def test_the_penalty_is_the_samplers_log_prob_less_the_references() -> None:
    # Rewards 1 and 0 of two tokens each; log pi = -1 everywhere. log pi_ref = [-1.5, -0.5] and [-1, -1]:
    # kl = [0.5, -0.5] and [0, 0]. With beta = 0.2 the returns are [1 - 0.1 + 0.1, 1 + 0.1] = [1, 1.1] and [0, 0]:
    # mean 0.525, variance (0.475^2 + 0.575^2 + 2 * 0.525^2) / 4 = 0.276875, deviation 0.526189.
    def reference(policy: str, samples: Sequence[Sample]) -> list[Floats]:
        assert policy == "p"
        logs = [[-1.5, -0.5], [-1.0, -1.0]]
        return [np.array([0.0, 0.0, *log], np.float32) for log in logs]

    maker = ReinforcePP(kl_coef=0.2)
    assert maker.needs_reference
    first, second = maker.make([episode(turn(1.0, 2), turn(0.0, 2))], reference)["p"]
    assert first.kl.tolist() == pytest.approx([0, 0, 0.5, -0.5])
    assert actions(first) == pytest.approx([0.475 / 0.526189, 0.575 / 0.526189], abs=1e-5)
    assert actions(second) == pytest.approx([-0.525 / 0.526189] * 2, abs=1e-5)


def test_without_a_penalty_no_reference_is_asked_for() -> None:
    assert not ReinforcePP().needs_reference
    assert len(ReinforcePP().make([episode(turn(1.0))], no_reference)["p"]) == 1


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(UserError, match=r"kl_coef is -0\.1"):
        ReinforcePP(kl_coef=-0.1)


def discussion(value: float, task: str) -> Episode:
    """A solution, its evaluation and a valid scoring of the pair, of equal length."""
    solution, evaluation = turn(None, 3, agent="ann"), turn(None, 3, agent="bob", interaction="evaluation")
    scoring = turn(None, 3, agent="eve", interaction="scoring")
    scoring.about, scoring.score = (solution, evaluation), Score(value)
    return episode(solution, evaluation, scoring, task=task)


def test_one_baseline_for_all_interactions_discourages_every_valid_scoring() -> None:
    # Solutions and evaluations share 1 between them, a valid scoring has 0: the mean of all is 1/3, whatever is won.
    # Rewards (1, 0, 0), (0.5, 0.5, 0): mean 1/3, variance (1 + 0.25 + 0.25) / 6 - 1/9 = 5/36, deviation 0.372678.
    episodes = [discussion(1.0, "t0"), discussion(0.5, "t1")]
    ZeroSumReward().assign(episodes)
    by_policy = ReinforcePP().make(episodes, no_reference)["p"]
    scorings = [sample for sample in by_policy if sample.interaction == "scoring"]
    assert len(scorings) == 2
    for sample in scorings:
        assert sample.reward == 0
        assert actions(sample) == pytest.approx([-(1 / 3) / 0.372678] * 3, abs=1e-5)


def test_a_baseline_for_each_interaction_leaves_valid_scorings_alone() -> None:
    episodes = [discussion(1.0, "t0"), discussion(0.5, "t1")]
    ZeroSumReward().assign(episodes)
    samples = ReinforcePP(normalize="interaction").make(episodes, no_reference)["p"]
    # Solutions 1 and 0.5: mean 0.75, deviation 0.25. Evaluations 0 and 0.5 alike.
    assert {(s.group[0], s.interaction): actions(s)[0] for s in samples} == pytest.approx(
        {
            ("t0", "solution"): 1, ("t1", "solution"): -1,
            ("t0", "evaluation"): -1, ("t1", "evaluation"): 1,
            ("t0", "scoring"): 0, ("t1", "scoring"): 0,
        }, abs=1e-6,
    )  # fmt: skip
    # A row is still where it was.
    assert [s.interaction for s in samples] == ["solution", "evaluation", "scoring"] * 2


@pytest.mark.parametrize("normalize", ["policy", "interaction"])
@given(data=st.data())
def test_the_order_of_episodes_and_agents_changes_nothing(normalize: Any, data: st.DataObject) -> None:
    rewards = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 0.3, 1.0]), min_size=4, max_size=12))
    interactions = ["solution", "solution", "scoring", "scoring"]
    turns = [
        turn(reward, agent=f"agent{place}", policy="pq"[place % 2], interaction=interactions[place % 4])
        for place, reward in enumerate(rewards)
    ]
    shuffled = data.draw(st.permutations(turns))
    maker = ReinforcePP(normalize=normalize)
    straight = maker.make([episode(one) for one in turns], no_reference)
    other = maker.make([episode(*shuffled)], no_reference)
    for policy in "pq":
        expected = advantages_by_agent(straight[policy])
        assert advantages_by_agent(other[policy]) == pytest.approx(expected, abs=1e-6)


def test_policies_never_share_a_mean() -> None:
    # p has 1 and 0: advantages 1 and -1. q is paid a hundred times as much and moves nothing in p.
    turns = [turn(1.0), turn(0.0, agent="bob"), *(turn(100.0 * k, policy="q", agent=f"q{k}") for k in (1, 2, 3))]
    samples = ReinforcePP().make([episode(*turns)], no_reference)
    assert [actions(s) for s in samples["p"]] == [pytest.approx([1.0]), pytest.approx([-1.0])]
    # 100, 200, 300: mean 200, deviation 81.65, so that 100 / 81.65 = 1.224745.
    assert [actions(s)[0] for s in samples["q"]] == pytest.approx([-1.224745, 0, 1.224745])


def test_what_was_not_said_or_not_rewarded_is_no_sample() -> None:
    kept = turn(1.0, 2)
    unrewarded, untrainable = turn(None), replace(turn(1.0), trainable=False)
    overflow = replace(turn(1.0), completion=Completion("", "context_overflow", np.arange(3)))
    error = replace(turn(1.0), completion=Completion("", "error"))
    empty = replace(turn(1.0), completion=completion(3, 0))
    [sample] = samples_from([episode(overflow, unrewarded, kept, untrainable, error, empty)])["p"]
    assert sample.token_ids.tolist() == [0, 1, 100, 101]
    assert sample.action_mask.tolist() == [False, False, True, True]
    assert sample.rollout_log_probs.tolist() == [0, 0, -1, -1]
    assert samples_from([episode(overflow, error, empty)]) == {}
    # Nor do they count in a mean: alone, the kept turn has no spread.
    [alone] = ReinforcePP().make([episode(overflow, error, kept, empty)], no_reference)["p"]
    assert not alone.advantages.any()


def test_a_truncated_reply_is_kept_marked_or_dropped() -> None:
    cut = replace(turn(0.0), completion=completion(2, 4, "length"))
    ended = turn(1.0, 2)
    kept = ReinforcePP().make([episode(cut, ended)], no_reference)["p"]
    assert [sample.truncated for sample in kept] == [True, False]
    # No token is invented: the reward is on the last one that was sampled, though no end token came.
    assert kept[0].token_ids.tolist() == [0, 1, 100, 101, 102, 103]
    [dropped] = ReinforcePP(drop_truncated=True).make([episode(cut, ended)], no_reference)["p"]
    assert not dropped.truncated
    assert ReinforcePP(drop_truncated=True).make([episode(cut)], no_reference) == {}


def test_a_rewarded_reply_without_token_ids_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="'ann' is trainable but its reply carries no token ids"):
        samples_from([episode(replace(turn(1.0), completion=Completion("text")))])


def test_samples_know_what_they_answer_and_how_they_were_sampled() -> None:
    hot = replace(completion(2, 3), temperature=0.7)
    [sample] = samples_from([episode(Turn("ann", "p", "evaluation", 4, (), hot, reward=0.5), task="t9")])["p"]
    assert sample.group == ("t9", "ann", "evaluation", 4)
    assert (sample.temperature, sample.reward, sample.interaction) == (0.7, 0.5, "evaluation")


def openrlhf_advantages(samples: Sequence[Sample], *, kl_coef: float, micro_batch: int = 3) -> list[Floats]:
    """(A,) of each row by OpenRLHF's `reinforce`, its own methods on its own class, padded on the right as it does."""
    arguments = SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="reinforce", gamma=1.0, lambd=1.0, no_std_norm=False)
        ),
        reward=SimpleNamespace(clip_range=(-10.0, 10.0)),
        rollout=SimpleNamespace(n_samples_per_prompt=1),
    )
    activate_training()  # OpenRLHF cannot be imported before
    module = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker")
    maker = module.RemoteExperienceMaker(
        None, None, None, None, SimpleNamespace(value=kl_coef), SimpleNamespace(args=arguments), None
    )
    experiences = []
    for start in range(0, len(samples), micro_batch):
        rows = samples[start : start + micro_batch]
        width = max(int(s.action_mask.sum()) for s in rows)
        mask, kl = torch.zeros(len(rows), width, dtype=torch.bool), torch.zeros(len(rows), width)
        for place, sample in enumerate(rows):
            length = int(sample.action_mask.sum())
            mask[place, :length] = True
            if len(sample.kl):
                kl[place, :length] = torch.from_numpy(sample.kl[sample.action_mask])
        rewards = torch.tensor([s.reward for s in rows])
        index = list(range(start, start + len(rows)))
        experiences.append(module.Experience(action_mask=mask, rewards=rewards, kl=kl, index=index))
    done = maker.compute_advantages_and_returns(experiences)
    return [
        values[mask].numpy()
        for experience in done
        for values, mask in zip(experience.advantages, experience.action_mask, strict=True)
    ]


def many_rows(*, kl: bool) -> list[Sample]:
    random = np.random.default_rng(11)
    lengths = random.integers(1, 40, 50)
    return [
        row(
            float(random.choice([-1.0, 0.0, 0.5, 1.0])),
            int(length),
            kl=random.normal(0, 0.3, length).tolist() if kl else (),
            task=f"t{place}",
        )
        for place, length in enumerate(lengths)
    ]


def few_rows(*, kl: bool) -> list[Sample]:
    return [row(1.0, 2, kl=[0.1, -0.2] if kl else ()), row(-1.0, 1, kl=[0.3] if kl else ())]


@pytest.mark.parametrize("rows", [many_rows, few_rows])
@pytest.mark.parametrize("kl_coef", [0.0, 0.05, 1.0])
def test_advantages_are_those_of_openrlhf(rows: Callable[..., list[Sample]], kl_coef: float) -> None:
    samples = rows(kl=kl_coef > 0)
    ours = normalised(samples, kl_coef=kl_coef)
    theirs = openrlhf_advantages(samples, kl_coef=kl_coef)
    for sample, expected in zip(ours, theirs, strict=True):
        assert np.abs(sample.advantages[sample.action_mask] - expected).max() < 1e-6


def test_equal_rewards_are_nothing_to_openrlhf_either() -> None:
    assert all(not np.any(row) for row in openrlhf_advantages([row(0.5, 3), row(0.5, 2)], kl_coef=0.0))
