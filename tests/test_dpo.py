"""Preferences and DPO: pairs and losses by hand, gradients against autograd and finite differences."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from micro_world.character_model import build_model, build_tokenizer
from rich.console import Console

from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import PolicyModel
from marti_ext.config_file import check_config
from marti_ext.errors import UserError
from marti_ext.experience.preference_pairs import PreferencePairs
from marti_ext.records import read_rows
from marti_ext.training.dpo import pairs_of, weighted
from marti_ext.training.local import LocalTrainer
from marti_ext.training.log_probs import collate, row_log_probs, token_log_probs
from marti_ext.training.loop import train
from marti_ext.training.options import TrainingOptions
from marti_ext.types import Completion, Episode, Floats, Sample, Task, Turn

FREE = 1e9  # a gradient norm that clips nothing


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny models: more threads only wait for each other
    yield
    torch.set_num_threads(before)


def no_reference(policy: str, samples: Sequence[Sample]) -> list[Floats]:
    raise AssertionError(f"nobody needs the reference of {policy}")


def copies(*rewards: float | None, task: str = "t", policy: str = "p", prompt: int = 2) -> list[Episode]:
    """Episodes of one task with one reply of one token each, numbered from 100."""
    episodes = []
    for copy, reward in enumerate(rewards):
        ids, reply = np.arange(prompt, dtype=np.int64), np.array([100 + copy], np.int64)
        completion = Completion("x", "stop", ids, reply, np.full(1, -1.0, np.float32))
        turn = Turn("ada", policy, "solution", 0, (), completion, reward=reward)
        episodes.append(Episode(Task(task, "q"), copy, [turn]))
    return episodes


def pairs(*episodes: list[Episode]) -> list[tuple[int, int]]:
    """(chosen, rejected) by copy."""
    made = PreferencePairs().make([one for group in episodes for one in group], no_reference)
    both = list(zip(made["p"][::2], made["p"][1::2], strict=True))
    for chosen, rejected in both:
        assert chosen.pair == rejected.pair
        assert [float(row.advantages.sum()) for row in (chosen, rejected)] == [1, -1]
    return [(int(chosen.token_ids[-1]) - 100, int(rejected.token_ids[-1]) - 100) for chosen, rejected in both]


def test_the_best_copy_is_chosen_and_the_worst_rejected() -> None:
    assert pairs(copies(0.4, 0.8, 0.2, 0.6)) == [(1, 2)]


def test_among_equals_the_first_copy_stands_for_all() -> None:
    assert pairs(copies(0.8, 0.2, 0.8, 0.2)) == [(0, 1)]


@pytest.mark.parametrize("rewards", [(0.5, 0.5, 0.5), (0.5,), (None, 0.5, None), (None, None)])
def test_without_a_difference_there_is_no_pair(rewards: tuple[float | None, ...]) -> None:
    assert PreferencePairs().make(copies(*rewards), no_reference) == {}


def test_tasks_and_policies_are_paired_apart() -> None:
    assert pairs(copies(1, 0), copies(0, 1, task="u"), copies(1, 1, task="v")) == [(0, 1), (1, 0)]
    made = PreferencePairs().make([*copies(1, 0), *copies(0, 1, policy="q", task="u")], no_reference)
    assert {policy: len(rows) for policy, rows in made.items()} == {"p": 2, "q": 2}


def test_replies_to_different_prompts_are_no_pair() -> None:
    longer = replace(copies(0.0, prompt=3)[0], copy=1)
    with pytest.raises(UserError, match="answer different prompts"):
        PreferencePairs().make([*copies(1.0), longer], no_reference)


def made_row(tokens: Sequence[int], actions: int, sign: float, *, pair: int | None = 0, task: str = "t") -> Sample:
    mask = np.arange(len(tokens)) >= len(tokens) - actions
    return Sample(
        "p", (task, "ada", "solution", 0), np.array(tokens, np.int64), mask,
        np.where(mask, -math.log(98), 0.0).astype(np.float32), sign, pair=pair,
        advantages=np.where(mask, sign, 0.0).astype(np.float32),
    )  # fmt: skip


def two_pairs() -> list[Sample]:
    return [
        made_row([5, 6, 7, 8, 9], 3, 1.0, pair=4),
        made_row([5, 6, 11], 1, -1.0, pair=4),
        made_row([20, 21, 22], 2, -1.0, pair=9, task="u"),
        made_row([20, 30, 31, 32], 3, 1.0, pair=9, task="u"),
    ]


def test_pairs_are_found_again_in_any_order_the_chosen_first() -> None:
    rows = two_pairs()
    assert pairs_of(rows) == [[0, 1], [3, 2]]
    assert pairs_of(rows[::-1]) == [[0, 1], [3, 2]]  # rows 3, 2, 1, 0


@pytest.mark.parametrize("rows", [two_pairs()[:3], [made_row([1, 2], 1, 1.0, pair=None)] * 2])
def test_rows_that_are_no_pairs_are_refused(rows: list[Sample]) -> None:
    with pytest.raises(ValueError, match="needs rows in pairs"):
        pairs_of(rows)


def test_loss_margin_and_weights_are_those_worked_out_by_hand() -> None:
    # log-ratios by token: chosen 0.3 + 0.1 = 0.4, rejected -0.6; beta 0.5: m = 0.5 * (0.4 + 0.6) = 0.5.
    # loss = -log sigmoid(0.5) = log(1 + e^-0.5) = 0.474077; w = 0.5 * sigmoid(-0.5) = 0.5 * 0.377541 = 0.188770.
    # 3 action tokens, 1 pair: scaled by 3, since the mean over tokens divides by 3.
    rows = [made_row([1, 2, 3], 2, 1.0), made_row([1, 4], 1, -1.0)]
    policy = [np.array([0, -1.0, -1.0], np.float32), np.array([0, -2.0], np.float32)]
    reference = [np.array([9, -1.3, -1.1], np.float32), np.array([9, -1.4], np.float32)]
    (chosen, rejected), told = weighted(rows, policy, reference, 0.5)
    assert chosen.advantages.tolist() == pytest.approx([0, 3 * 0.188770, 3 * 0.188770], abs=1e-5)
    assert rejected.advantages.tolist() == pytest.approx([0, -3 * 0.188770], abs=1e-5)
    assert told == pytest.approx({"loss": 0.474077, "preference_margin": 0.5, "preference_accuracy": 1.0}, abs=1e-5)


def test_at_the_start_the_loss_is_log_2_and_nobody_is_preferred() -> None:
    rows = [made_row([1, 2, 3], 2, 1.0), made_row([1, 4], 1, -1.0)]
    same = [np.zeros(3, np.float32), np.zeros(2, np.float32)]
    _, told = weighted(rows, same, same, 0.1)
    assert told == pytest.approx({"loss": math.log(2), "preference_margin": 0, "preference_accuracy": 0})


@pytest.mark.parametrize("margin", [-1e6, 1e6])
def test_extreme_margins_stay_finite(margin: float) -> None:
    rows = [made_row([1, 2], 1, 1.0), made_row([1, 4], 1, -1.0)]
    (chosen, _), told = weighted(rows, [np.array([0, margin]), np.zeros(2)], [np.zeros(2)] * 2, 1.0)
    # Far wrong: the full weight beta, times 2 tokens; far right: none.
    assert chosen.advantages[-1] == pytest.approx(2.0 if margin < 0 else 0.0)
    assert told["loss"] == pytest.approx(max(0, -margin))


# The trainer


def tiny_policy() -> PolicyModel:
    return PolicyModel("p", build_model(layers=2, width=32, heads=4, window=96), build_tokenizer())


def move(policy: PolicyModel) -> None:
    """Take the weights a little away from those that the trainer keeps as initial ones."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def trainer_of(policy: PolicyModel, **options: Any) -> LocalTrainer:
    options = {"learning_rate": 1e-3, "max_grad_norm": FREE, "loss": "dpo", "dpo_beta": 0.7, **options}
    return LocalTrainer(HFBackend(policy), TrainingOptions(**options), seed=0, keep_reference=False)


def direct_loss(policy: PolicyModel, rows: Sequence[Sample], reference: Sequence[Floats], beta: float) -> torch.Tensor:
    """DPO as it is written: the mean over pairs of -log sigmoid(beta (x_chosen - x_rejected))."""
    ratios = []
    for row, ref in zip(rows, reference, strict=True):
        batch = collate([row], torch.device("cpu"))
        mask = torch.from_numpy(row.action_mask)[-batch.kept :]
        ratios.append((token_log_probs(policy.model, batch)[0] - torch.from_numpy(ref)[-batch.kept :])[mask].sum())
    margins = [beta * (ratios[chosen] - ratios[rejected]) for chosen, rejected in pairs_of(rows)]
    return torch.stack([-torch.nn.functional.logsigmoid(margin) for margin in margins]).mean()


def gradient(policy: PolicyModel) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


@pytest.mark.parametrize("micro_batch_size", [1, 3, 4])
def test_the_gradient_and_the_loss_are_those_of_dpo_as_it_is_written(micro_batch_size: int) -> None:
    rows, policy = two_pairs(), tiny_policy()
    trainer = trainer_of(policy, micro_batch_size=micro_batch_size)
    reference = trainer.reference_log_probs(rows)
    move(policy)
    loss = direct_loss(policy, rows, reference, 0.7)
    loss.backward()
    expected = gradient(policy).clone()
    metrics = trainer.step(rows, step=0)  # its gradients stay when it has stepped
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert (gradient(policy) - expected).abs().max() < 1e-5
    assert expected.abs().max() > 1e-3


def test_the_gradient_is_that_of_finite_differences() -> None:
    rows, policy = two_pairs(), tiny_policy()
    policy.model.double()
    reference = [np.zeros(len(row.token_ids)) for row in rows]
    parameter = next(iter(policy.parameters()))
    direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def at(step: float) -> float:
        with torch.no_grad():
            parameter.add_(step * direction)
            value = float(direct_loss(policy, rows, reference, 0.7))
            parameter.sub_(step * direction)
        return value

    current = row_log_probs(policy.active, policy, rows, 4)
    order = [place for pair in pairs_of(rows) for place in pair]
    made, told = weighted([rows[p] for p in order], [current[p] for p in order], [reference[p] for p in order], 0.7)
    tokens = sum(int(row.action_mask.sum()) for row in made)
    surrogate = torch.zeros(())
    for row in made:
        batch = collate([row], torch.device("cpu"))
        advantages = torch.from_numpy(row.advantages[-batch.kept :])
        surrogate = surrogate - (token_log_probs(policy.model, batch)[0] * advantages).sum() / tokens
    [slope] = torch.autograd.grad(surrogate, [parameter])
    step = 1e-3
    assert told["loss"] == pytest.approx(at(0.0), abs=1e-5)
    assert float((slope * direction).sum()) == pytest.approx((at(step) - at(-step)) / (2 * step), rel=0.02, abs=1e-4)


def test_a_pair_is_learnt_and_no_pair_moves_nothing() -> None:
    rows, policy = two_pairs(), tiny_policy()
    trainer = trainer_of(policy)
    first = trainer.step(rows, step=0)
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert first["preference_margin"] == pytest.approx(0, abs=1e-5)
    for step in range(1, 20):
        last = trainer.step(rows, step=step)
    assert last["loss"] < first["loss"]
    assert last["preference_accuracy"] == 1.0
    before = [parameter.clone() for parameter in policy.parameters()]
    assert trainer.step([], step=20)["skipped"]
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_a_batch_never_parts_a_pair_and_the_order_of_rows_changes_nothing() -> None:
    metrics = []
    for rows in (two_pairs(), two_pairs()[::-1]):
        policy = tiny_policy()
        metrics.append(trainer_of(policy, batch_size=2).step(rows, step=0))
    assert metrics[0]["updates"] == 2
    assert metrics[0] == metrics[1]
    assert trainer_of(tiny_policy(), batch_size=1).step(two_pairs(), step=0)["updates"] == 2


# Whole runs


def dpo_config(tiny_config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        **tiny_config,
        "experience": {"name": "preference_pairs"},
        "training": {**tiny_config["training"], "loss": "dpo"},
        "rollout": {"tasks_per_step": 3, "copies_per_task": 4},
        **changes,
    }


def test_dpo_trains_through_the_loop(tiny_config: dict[str, Any]) -> None:
    train(check_config(dpo_config(tiny_config)), Console(file=StringIO()))
    rows = read_rows(Path(tiny_config["run_dir"]) / "metrics.jsonl")
    assert [row["policy"] for row in rows] == ["a", "b", "a", "b"]
    for row in rows:
        assert row["samples"] % 2 == 0
        assert row["ratio_deviation"] < 1e-4  # log-probs are still those of the sampling
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=0.01)  # within the step the policy has begun to move


def test_the_reference_of_an_adapter_is_its_base(tiny_config: dict[str, Any]) -> None:
    policies = {name: {**policy, "lora": {"rank": 4}} for name, policy in tiny_config["policies"].items()}
    train(check_config(dpo_config(tiny_config, policies=policies)), Console(file=StringIO()))
    rows = read_rows(Path(tiny_config["run_dir"]) / "metrics.jsonl")
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=0.01)
    assert rows[0]["grad_norm"] > 0


def test_a_loss_and_rows_that_do_not_go_together_are_refused_before_a_model_is_loaded(
    tiny_config: dict[str, Any],
) -> None:
    for changes, words in (
        ({"training": {"loss": "clip"}}, "training.loss is clip, but experience 'preference_pairs' makes pairs"),
        ({"experience": {"name": "reinforce_pp"}}, "training.loss is dpo, but experience 'reinforce_pp' makes no"),
        ({"backend": "openrlhf"}, "training.loss dpo is for backend local, not openrlhf"),
        ({"training": {"loss": "dpo", "kl_loss_coef": 0.1}}, "leave out kl_loss_coef"),
    ):
        with pytest.raises(UserError, match=words):
            train(check_config(dpo_config(tiny_config, **changes)), Console(file=StringIO()))
