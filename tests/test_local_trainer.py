"""Training in this process: gradients, losses and state of tiny models."""

import asyncio
import copy
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from micro_world.character_model import build_model, build_tokenizer, save
from transformers import AutoModelForCausalLM

from marti_ext.agent import Agent
from marti_ext.backends.base import Request, SamplingParams
from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import PolicyModel, load_policies
from marti_ext.backends.options import Lora, ModelOptions
from marti_ext.experience.reinforce_pp import ReinforcePP
from marti_ext.rollout import run_episodes
from marti_ext.training.base import NonFiniteError
from marti_ext.training.local import LocalTrainer
from marti_ext.training.loss import clipped_policy_loss, kl_estimate
from marti_ext.training.options import TrainingOptions
from marti_ext.training.schedule import learning_rate_factor
from marti_ext.types import Completion, Message, Sample, Task
from marti_ext.workflows.base import Workflow

FREE = 1e9  # a gradient norm that clips nothing


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny models: more threads only wait for each other
    yield
    torch.set_num_threads(before)


def tiny_policy() -> PolicyModel:
    return PolicyModel("p", build_model(layers=2, width=32, heads=4, window=96), build_tokenizer())


def lora_policies(folder: Path, *names: str) -> dict[str, PolicyModel]:
    """Policies on one base in `folder`, their adapters no longer the identity."""
    base = build_model(layers=2, width=32, heads=4, window=96)
    with torch.no_grad():
        base.get_output_embeddings().weight.mul_(6)  # so that what an adapter does shows in the output
    save(folder, base)
    options = ModelOptions(model=str(folder), lora=Lora(rank=4, alpha=8), device="cpu")
    policies = load_policies(dict.fromkeys(names, options), seed=0)
    generator = torch.Generator().manual_seed(1)
    for policy in policies.values():
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policies


def trainer_of(policy: PolicyModel, *, keep_reference: bool = False, **options: Any) -> LocalTrainer:
    options = {"learning_rate": 1e-3, "max_grad_norm": FREE, "batch_size": 1000, **options}
    return LocalTrainer(HFBackend(policy), TrainingOptions(**options), seed=0, keep_reference=keep_reference)


def rollout_rows(policy: PolicyModel, count: int = 12, *, seed: int = 0, advantages: bool = True) -> list[Sample]:
    """Rows of different lengths as the policy samples them, with advantages drawn at random."""
    chance = np.random.default_rng(seed)
    requests = [
        Request(
            (Message("user", "abcdefghijklmnopqrstuvwxyz"[: int(chance.integers(1, 26))]),),
            SamplingParams(float(chance.choice([0.7, 1.0])), 1.0, int(chance.integers(1, 20))),
            seed=seed * 1000 + place,
        )
        for place in range(count)
    ]
    replies = HFBackend(policy).complete_batch(requests)
    drawn = chance.normal(size=count) if advantages else np.zeros(count)
    return [row_of(reply, float(a), f"t{place}") for place, (reply, a) in enumerate(zip(replies, drawn, strict=True))]


def row_of(reply: Completion, advantage: float, task: str = "t") -> Sample:
    assert reply.prompt_ids is not None
    assert reply.token_ids is not None
    assert reply.log_probs is not None
    mask = np.array([False] * len(reply.prompt_ids) + [True] * len(reply.token_ids))
    return Sample(
        "p",
        (task, "ann", "solution", 0),
        token_ids=np.concatenate([reply.prompt_ids, reply.token_ids]),
        action_mask=mask,
        rollout_log_probs=np.concatenate([np.zeros(len(reply.prompt_ids), np.float32), reply.log_probs]),
        reward=advantage,
        temperature=reply.temperature,
        advantages=np.where(mask, advantage, 0.0).astype(np.float32),
    )


def made_row(tokens: Sequence[int], actions: int, advantage: float = 1.0, *, task: str = "t") -> Sample:
    """A row whose last `actions` tokens count as sampled with probability 1/98 each."""
    mask = np.arange(len(tokens)) >= len(tokens) - actions
    return Sample(
        "p",
        (task, "ann", "solution", 0),
        token_ids=np.array(tokens, np.int64),
        action_mask=mask,
        rollout_log_probs=np.where(mask, -math.log(98), 0.0).astype(np.float32),
        reward=advantage,
        advantages=np.where(mask, advantage, 0.0).astype(np.float32),
    )


def weights(policy: PolicyModel) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in policy.model.state_dict().items()}


def gradient(policy: PolicyModel) -> torch.Tensor:
    """Of all that is trained, end to end."""
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def gradient_of_step(rows: Sequence[Sample], **options: Any) -> torch.Tensor:
    policy = tiny_policy()
    trainer_of(policy, **options).step(rows, step=0)
    return gradient(policy)


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_gradient_is_that_of_each_row_alone_without_padding() -> None:
    rows = rollout_rows(tiny_policy())
    tokens = sum(int(row.action_mask.sum()) for row in rows)
    policy = tiny_policy()
    for row in rows:
        logits = policy.model(torch.from_numpy(row.token_ids)[None]).logits[0, :-1] / row.temperature
        log_probs = torch.log_softmax(logits, -1).gather(-1, torch.from_numpy(row.token_ids[1:, None]))[:, 0]
        mask = torch.from_numpy(row.action_mask[1:])
        ratio = (log_probs - torch.from_numpy(row.rollout_log_probs[1:]))[mask].exp()  # at 1: nothing is clipped
        (-(ratio * torch.from_numpy(row.advantages[1:])[mask]).sum() / tokens).backward()
    expected = gradient(policy)
    for micro_batch_size in (1, 5, 12):
        found = gradient_of_step(rows, micro_batch_size=micro_batch_size)
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("options", [{}, {"kl_loss_coef": 0.1, "kl_loss_estimator": "k3"}])
def test_the_gradient_is_the_same_for_any_split_padding_and_order(options: dict[str, Any]) -> None:
    rows = rollout_rows(tiny_policy())
    expected = gradient_of_step(rows, micro_batch_size=12, **options)
    assert expected.abs().max() > 1e-2
    for micro_batch_size in (1, 2, 5, 7):
        shuffled = random.Random(micro_batch_size).sample(rows, len(rows))
        found = gradient_of_step(shuffled, micro_batch_size=micro_batch_size, **options)
        assert (found - expected).abs().max() < 1e-5
    # A long row without weight in the loss pads all others by 60 tokens.
    long = made_row([5] * 90, 1, advantage=0.0, task="long")
    padded = gradient_of_step([*rows, long], micro_batch_size=13, **options)
    alone = gradient_of_step([*rows, long], micro_batch_size=1, **options)
    assert (padded - alone).abs().max() < 1e-5


def test_a_step_is_the_same_for_rows_in_any_order_bit_for_bit() -> None:
    rows = rollout_rows(tiny_policy())
    # Two copies of an episode may say the same and be rewarded differently.
    rows.append(replace(rows[0], reward=-3.0, advantages=-3 * rows[0].advantages))
    done = []
    for seed in (None, 1, 2):
        policy = tiny_policy()
        order = rows if seed is None else random.Random(seed).sample(rows, len(rows))
        metrics = trainer_of(policy, batch_size=4, micro_batch_size=3, max_epochs=2).step(order, step=0)
        done.append((weights(policy), metrics))
    for other, metrics in done[1:]:
        assert same(other, done[0][0])
        assert metrics["loss"] == done[0][1]["loss"]


def test_a_long_row_weighs_by_its_tokens() -> None:
    # The loss is a mean over tokens: on-policy, 3 tokens at advantage 1 and 1 at -1 give -(3 - 1) / 4.
    policy = tiny_policy()
    replies = HFBackend(policy).complete_batch(
        [Request((Message("user", "ab"),), SamplingParams(max_tokens=n), seed=n) for n in (3, 1)]
    )
    rows = [row_of(replies[0], 1.0, "long"), row_of(replies[1], -1.0, "short")]
    assert [int(row.action_mask.sum()) for row in rows] == [3, 1]
    assert trainer_of(policy).step(rows, step=0)["loss"] == pytest.approx(-0.5, abs=1e-5)


def test_rows_are_dealt_into_updates_of_equal_size() -> None:
    rows = rollout_rows(tiny_policy(), 10)
    metrics = trainer_of(tiny_policy(), batch_size=4, max_epochs=2).step(rows, step=0)
    assert (metrics["samples"], metrics["updates"], metrics["skipped"]) == (10, 6, False)  # 4, 3, 3 rows, twice
    assert metrics["action_tokens"] == sum(int(row.action_mask.sum()) for row in rows)


def test_a_rewarded_reply_becomes_likelier_and_a_punished_one_rarer() -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy, keep_reference=True)
    rows = rollout_rows(policy, 2)
    rows = [
        replace(row, advantages=np.where(row.action_mask, a, 0.0).astype(np.float32))
        for row, a in zip(rows, (1, -1), strict=True)
    ]
    before = [float(r.sum()) for r in trainer.reference_log_probs(rows)]
    trainer.step(rows, step=0)
    frozen = [float(r.sum()) for r in trainer.reference_log_probs(rows)]
    assert frozen == before  # the reference is that of the start
    after = [float(r.sum()) for r in trainer_of(policy, keep_reference=True).reference_log_probs(rows)]
    assert after[0] > before[0] + 0.01
    assert after[1] < before[1] - 0.01


def test_the_policy_loss_is_ppos_clipped_one() -> None:
    # ratio  advantage   ratio * A   clipped * A   loss = -min   gradient of the log-prob
    #  1.25      1         1.25         1.20          -1.20         0       (past the clip)
    #  1.25     -1        -1.25        -1.20           1.25         1.25
    #  0.50      1         0.50         0.80          -0.50        -0.50
    #  0.50     -1        -0.50        -0.80           0.80         0       (past the clip)
    #  1.00      2         2.00         2.00          -2.00        -2
    old = torch.log(torch.tensor([[0.4, 0.4, 0.4, 0.4, 0.4]]))
    log_probs = torch.log(torch.tensor([[0.5, 0.5, 0.2, 0.2, 0.4]])).requires_grad_()
    loss = clipped_policy_loss(log_probs, old, torch.tensor([[1.0, -1.0, 1.0, -1.0, 2.0]]), 0.2)
    assert loss.tolist()[0] == pytest.approx([-1.2, 1.25, -0.5, 0.8, -2.0], abs=1e-6)
    loss.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist()[0] == pytest.approx([0, 1.25, -0.5, 0, -2], abs=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_beyond_all_bounds_gives_a_finite_loss(advantage: float) -> None:
    log_probs = torch.tensor([[0.0, -500.0]], requires_grad=True)
    loss = clipped_policy_loss(log_probs, torch.tensor([[-500.0, 0.0]]), torch.full((1, 2), advantage), 0.2)
    loss.sum().backward()
    assert log_probs.grad is not None
    assert torch.isfinite(loss).all()
    assert torch.isfinite(log_probs.grad).all()


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.6931), ("k2", 0.2402), ("k3", 0.1931)])
def test_kl_estimators_have_their_values(estimator: str, value: float) -> None:
    # p = 0.5, p_ref = 0.25: log 2 = 0.6931; 0.6931^2 / 2 = 0.2402; 1/2 - 1 + 0.6931 = 0.1931.
    half, quarter = torch.log(torch.tensor([[0.5]])), torch.log(torch.tensor([[0.25]]))
    assert kl_estimate(half, quarter, estimator).item() == pytest.approx(value, abs=1e-4)
    assert kl_estimate(half, half, estimator).item() == 0
    assert torch.isfinite(kl_estimate(torch.tensor([-500.0]), torch.tensor([0.0]), estimator)).all()


def test_an_unknown_kl_estimator_is_refused() -> None:
    with pytest.raises(ValueError, match="'k4': expected k1, k2 or k3"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")


def reverse_kl(logits: torch.Tensor, reference: torch.Tensor) -> float:
    log_probs = torch.log_softmax(logits, -1)
    return float((log_probs.exp() * (log_probs - reference)).sum())


def test_as_a_loss_k2_has_the_gradient_of_the_reverse_kl_and_k1_has_none() -> None:
    logits = torch.tensor([0.3, -0.5, 1.1, 0.0], dtype=torch.float64)
    reference = torch.log_softmax(torch.tensor([1.0, 0.2, -0.4, 0.5], dtype=torch.float64), -1)
    nudge = 1e-6 * torch.eye(4, dtype=torch.float64)
    expected = torch.tensor(
        [(reverse_kl(logits + e, reference) - reverse_kl(logits - e, reference)) / 2e-6 for e in nudge]
    )

    def mean_gradient(estimator: str) -> torch.Tensor:
        """Over tokens sampled from the policy itself, exactly: each token's gradient by its probability."""
        theta = logits.clone().requires_grad_()
        log_probs = torch.log_softmax(theta, -1)
        sampled = log_probs.detach().exp()  # how often a token is drawn has no gradient
        (sampled * kl_estimate(log_probs, reference, estimator)).sum().backward()
        assert theta.grad is not None
        return theta.grad

    assert expected.abs().max() > 0.1
    assert (mean_gradient("k2") - expected).abs().max() < 1e-7
    assert mean_gradient("k1").abs().max() < 1e-12
    assert (mean_gradient("k3") - expected).abs().max() > 0.01  # that of the forward KL


@pytest.mark.parametrize("adapter", [False, True])
def test_the_kl_loss_pulls_back_to_the_initial_policy(adapter: bool, tmp_path: Path) -> None:
    policy = lora_policies(tmp_path, "p", "q")["p"] if adapter else tiny_policy()
    trainer = trainer_of(policy, kl_loss_coef=1.0, learning_rate=1e-2 if adapter else 3e-3)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # away from the start
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    distances = []
    for step in range(20):
        rows = rollout_rows(policy, 16, seed=step, advantages=False)
        distances.append(trainer.step(rows, step=step)["reference_kl"])
    assert distances[0] > 0.05
    assert np.mean(distances[-4:]) < 0.3 * np.mean(distances[:2])


def test_the_kl_loss_of_an_unmoved_policy_is_zero() -> None:
    policy = tiny_policy()
    metrics = trainer_of(policy, kl_loss_coef=1.0).step(rollout_rows(policy, advantages=False), step=0)
    assert metrics["reference_kl"] == pytest.approx(0, abs=1e-9)
    assert metrics["loss"] == pytest.approx(0, abs=1e-9)


def test_a_reference_that_was_not_kept_is_missed_by_name() -> None:
    trainer = trainer_of(tiny_policy())
    with pytest.raises(ValueError, match="policy 'p' kept no reference"):
        trainer.reference_log_probs(rollout_rows(trainer.policy, 1))


def test_the_learning_rate_warms_up_and_stays() -> None:
    options = TrainingOptions(warmup_updates=3)
    assert [learning_rate_factor(options, n) for n in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert learning_rate_factor(TrainingOptions(), 0) == 1


def test_a_cosine_falls_to_its_end_and_stays_there() -> None:
    options = TrainingOptions(schedule="cosine", warmup_updates=2, total_updates=6, min_learning_rate_ratio=0.2)
    # 0.2 + 0.8 * (1 + cos(pi * x)) / 2 at x = 0, 1/4, 1/2, 3/4, 1, and no further.
    assert [learning_rate_factor(options, n) for n in range(10)] == pytest.approx(
        [1 / 3, 2 / 3, 1, 0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2, 0.6, 0.2 + 0.8 * (1 - math.sqrt(0.5)) / 2]
        + [0.2] * 4
    )  # fmt: skip
    assert learning_rate_factor(options, 10**9) == 0.2
    short = TrainingOptions(schedule="cosine", warmup_updates=5, total_updates=5)
    assert [learning_rate_factor(short, n) for n in (5, 6, 7)] == pytest.approx([1, 0.1, 0.1])


def test_the_schedule_counts_updates_that_were_made() -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy, warmup_updates=3, batch_size=5)
    rows = rollout_rows(policy, 10)
    assert trainer.step(rows, step=0)["learning_rate"] == pytest.approx(0.5e-3)  # the second of two updates
    assert trainer.step([], step=1)["learning_rate"] == pytest.approx(0.75e-3)  # that of the next one
    assert trainer.step(rows, step=2)["learning_rate"] == pytest.approx(1e-3)


def test_a_policy_without_samples_does_not_move() -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy, weight_decay=0.1, warmup_updates=5, kl_loss_coef=0.1)
    trainer.step(rollout_rows(policy), step=0)  # so that the optimiser has moments that could carry it on
    before = weights(policy)
    optimizer, schedule = copy.deepcopy(trainer._optimizer.state_dict()), trainer._schedule.state_dict().copy()
    metrics = trainer.step([], step=1)
    assert same(weights(policy), before)
    after = trainer._optimizer.state_dict()
    assert optimizer["param_groups"] == after["param_groups"]
    for place, state in optimizer["state"].items():
        assert all(torch.equal(state[name], after["state"][place][name]) for name in state)
    assert trainer._schedule.state_dict() == schedule
    counts = {name: metrics[name] for name in ("samples", "updates", "skipped", "action_tokens", "real_tokens")}
    assert counts == {"samples": 0, "updates": 0, "skipped": True, "action_tokens": 0, "real_tokens": 0}
    assert metrics["loss"] is metrics["advantage_std"] is metrics["ratio_deviation"] is None


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_loss_that_is_not_a_number_names_its_sample_and_moves_nothing(checkpointing: bool) -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy, micro_batch_size=2, gradient_checkpointing=checkpointing)
    rows = rollout_rows(policy, 6)
    trainer.step(rows, step=0)
    before, updates = weights(policy), trainer._schedule.last_epoch
    bad = replace(
        rows[3], group=("task 7", "bob", "scoring", 2), advantages=np.where(rows[3].action_mask, np.nan, 0.0)
    )
    message = "step 4, policy 'p': the loss of task 'task 7', agent 'bob', scoring of round 2 is nan"
    with pytest.raises(NonFiniteError, match=message):
        trainer.step([*rows[:3], bad, *rows[4:]], step=4)
    assert same(weights(policy), before)
    assert trainer._schedule.last_epoch == updates
    # And what was there can go on.
    assert trainer.step(rows, step=5)["updates"] == 1
    assert all(torch.isfinite(value).all() for value in weights(policy).values())


def test_a_gradient_that_is_not_a_number_moves_nothing() -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy)
    rows = [replace(row, advantages=row.advantages * 1e38) for row in rollout_rows(policy, 4)]
    before = weights(policy)
    with pytest.raises(NonFiniteError, match="step 3, policy 'p'"):
        trainer.step(rows, step=3)
    assert same(weights(policy), before)


def test_values_off_the_action_mask_never_count() -> None:
    rows = rollout_rows(tiny_policy())

    def stray(row: Sample, value: float) -> Sample:
        fill = np.where(row.action_mask, 0.0, value).astype(np.float32)
        return replace(row, rollout_log_probs=row.rollout_log_probs + fill, advantages=row.advantages + fill)

    expected = gradient_of_step(rows, micro_batch_size=5)
    for value in (1.0, np.nan, np.inf):
        found = gradient_of_step([stray(row, value) for row in rows], micro_batch_size=5)
        assert torch.equal(found, expected)


def test_padding_is_told_of_in_tokens() -> None:
    # Rows of 10, 8, 4 and 3 tokens, two by two: 2 * 10 + 2 * 4 = 28 tokens processed, 25 of them real.
    rows = [made_row(range(10, 10 + n), 2, task=f"t{n}") for n in (4, 10, 3, 8)]
    metrics = trainer_of(tiny_policy(), micro_batch_size=2).step(rows, step=0)
    assert (metrics["processed_tokens"], metrics["real_tokens"]) == (28, 25)
    metrics = trainer_of(tiny_policy(), micro_batch_size=2, max_epochs=2).step(rows, step=0)
    assert (metrics["processed_tokens"], metrics["real_tokens"]) == (56, 50)
    alone = trainer_of(tiny_policy(), micro_batch_size=1).step(rows, step=0)
    assert alone["processed_tokens"] == alone["real_tokens"] == 25


@pytest.mark.parametrize("adapter", [False, True])
def test_gradient_checkpointing_gives_the_same_gradient(adapter: bool, tmp_path: Path) -> None:
    found = []
    for checkpointing in (False, True):
        policy = lora_policies(tmp_path / str(checkpointing), "p", "q")["p"] if adapter else tiny_policy()
        rows = rollout_rows(policy)
        trainer = trainer_of(policy, gradient_checkpointing=checkpointing, micro_batch_size=5)
        metrics = trainer.step(rows, step=0)
        assert metrics["ratio_deviation"] < 1e-4
        assert not policy.model.training
        found.append(gradient(policy))
    assert found[0].abs().max() > 1e-3
    assert (found[1] - found[0]).abs().max() < 1e-6


def test_recomputation_happens_where_gradient_checkpointing_is_on() -> None:
    calls = []
    for checkpointing in (False, True):
        policy = tiny_policy()
        rows = rollout_rows(policy, 2)
        trainer = trainer_of(policy, gradient_checkpointing=checkpointing)
        count: list[int] = []
        policy.model.model.layers[0].self_attn.register_forward_hook(lambda *_, count=count: count.append(1))
        trainer.step(rows, step=0)
        calls.append(len(count))
    assert calls == [1, 2]


def test_a_trained_policy_is_loaded_back_bit_for_bit(tmp_path: Path) -> None:
    policy = tiny_policy()
    trainer = trainer_of(policy, batch_size=5, schedule="cosine", total_updates=9, warmup_updates=2)
    first, second = rollout_rows(policy, 10, seed=1), rollout_rows(policy, 10, seed=2)
    trainer.step(first, step=0)
    trainer.save(tmp_path)
    saved = weights(policy)
    trainer.step(second, step=1)

    resumed_policy = tiny_policy()
    resumed = trainer_of(resumed_policy, batch_size=5, schedule="cosine", total_updates=9, warmup_updates=2)
    resumed.load(tmp_path)
    assert same(weights(resumed_policy), saved)
    resumed.step(second, step=1)
    assert same(weights(resumed_policy), weights(policy))

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert same(dict(loaded.state_dict()), saved)


# "default" is what an agent's policy is called if nobody names it, and peft has plans of its own for that name.
@pytest.mark.parametrize("names", [("default", "other"), ("solver", "solver2"), ("model", "v1.5"), ("lora", "train")])
def test_a_trained_adapter_is_loaded_back_bit_for_bit(names: tuple[str, str], tmp_path: Path) -> None:
    policies = lora_policies(tmp_path / "base", *names)
    trainers = {name: trainer_of(policy, warmup_updates=2) for name, policy in policies.items()}
    rows = {name: rollout_rows(policy, 6) for name, policy in policies.items()}
    for name, trainer in trainers.items():
        trainer.step(rows[name], step=0)
        trainer.save(tmp_path / name)
    saved = weights(next(iter(policies.values())))
    for name, trainer in trainers.items():
        trainer.step(rows[name], step=1)

    resumed_policies = lora_policies(tmp_path / "base", *names)
    resumed = {name: trainer_of(policy, warmup_updates=2) for name, policy in resumed_policies.items()}
    for name, trainer in resumed.items():
        trainer.load(tmp_path / name)
    assert same(weights(next(iter(resumed_policies.values()))), saved)
    prompt = torch.tensor([[5, 6, 7]])
    for name in names:
        with torch.no_grad(), resumed_policies[name].active() as model:
            expected = model(prompt).logits
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        with torch.no_grad():
            assert torch.allclose(loaded(prompt).logits, expected, atol=1e-6)
    for name, trainer in resumed.items():
        trainer.step(rows[name], step=1)
    assert same(weights(next(iter(resumed_policies.values()))), weights(next(iter(policies.values()))))


def test_training_one_adapter_leaves_the_base_and_the_others_alone(tmp_path: Path) -> None:
    policies = lora_policies(tmp_path, "a", "b")
    before = weights(policies["a"])
    trainers = {name: trainer_of(policy, weight_decay=0.1) for name, policy in policies.items()}
    metrics = trainers["a"].step(rollout_rows(policies["a"]), step=0)
    assert metrics["grad_norm"] > 0
    own = policies["a"].adapter
    assert own is not None
    moved = {name for name, value in weights(policies["a"]).items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if f".{own}." in name}
    assert trainers["b"].step(rollout_rows(policies["b"]), step=0)["grad_norm"] > 0
    still = weights(policies["b"])
    assert all(torch.equal(still[name], before[name]) for name in before if "lora_" not in name)


@dataclass(frozen=True)
class Talk(Workflow):
    """Two agents, one after the other and once side by side."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        first = await agents[0].reply(task.prompt)
        await asyncio.gather(*(agent.reply(f"{task.prompt} {first}", interaction="evaluation") for agent in agents))
        return first


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ratios_are_one_right_after_a_rollout(precision: Any) -> None:
    policy = PolicyModel("p", tiny_policy().model, build_tokenizer(), precision=precision)
    trainer = trainer_of(policy, micro_batch_size=5, batch_size=8)
    agents = [
        Agent(name, trainer.backend, "p", persona, SamplingParams(temperature, max_tokens=16))
        for name, persona, temperature in (("ann", "be brief", 0.7), ("bob", "", 1.0))
    ]
    tasks = [Task(f"t{place}", "abcdefgh"[: place + 1]) for place in range(6)]
    episodes = asyncio.run(run_episodes(Talk(), tasks, agents, seed=3))
    assert [episode.status for episode in episodes] == ["ok"] * 6
    for place, turn in enumerate(turn for episode in episodes for turn in episode.turns):
        turn.reward = float(place % 3)
    rows = ReinforcePP().make(episodes, lambda name, samples: [])["p"]
    metrics = trainer.step(rows, step=0)
    assert (metrics["samples"], metrics["updates"]) == (18, 3)
    # bfloat16 keeps three digits, so that only float32 can promise more.
    assert metrics["ratio_deviation"] < (1e-4 if precision == "fp32" else 0.1)
    assert metrics["advantage_std"] == pytest.approx(1, abs=1e-5)
    assert metrics["kl"] >= 0
