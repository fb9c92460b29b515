"""What only a GPU can show; `bash tests/gpu/run.sh`."""

import asyncio
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from micro_world.character_model import build_model, build_tokenizer
from tiny_models import ROOT, tiny_llama, tiny_qwen2
from weight_sync import BF16_ROUNDING, distance, engine_log_probs, fixed_text, transformers_log_probs

from marti_ext.agent import Agent
from marti_ext.backends.base import SamplingParams
from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import PolicyModel, load_policies
from marti_ext.backends.options import ModelOptions
from marti_ext.config_file import check_config
from marti_ext.records import read_rows
from marti_ext.rollout import run_episodes
from marti_ext.training.log_probs import row_log_probs
from marti_ext.training.loop import train
from marti_ext.types import Episode, Sample, Task
from marti_ext.workflows.vanilla import Vanilla

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: torch.cuda.is_available() is False"),
]
PROMPTS = ["What is 2 + 2?", "A longer one, of more characters than the others have: 17 * 3 = ?", "5 - 1", "ab"]


def sampled(backend: HFBackend, prompts: Sequence[str], max_tokens: int) -> list[Episode]:
    agent = Agent("ada", backend, sampling=SamplingParams(max_tokens=max_tokens))
    tasks = [Task(str(number), prompt) for number, prompt in enumerate(prompts)]
    return asyncio.run(run_episodes(Vanilla(), tasks, [agent], seed=1))


@pytest.mark.parametrize("build", [tiny_llama, tiny_qwen2])
def test_log_probs_of_sampling_are_those_of_training_in_bf16(build: Any, tmp_path: Path) -> None:
    options = ModelOptions(model=str(build(tmp_path / "model")), precision="bf16", device="cuda")
    policy = load_policies({"p": options}, seed=0)["p"]
    rows = []
    for episode in sampled(HFBackend(policy), PROMPTS, 64):
        [turn] = episode.turns
        reply = turn.completion
        ids = np.concatenate([reply.prompt_ids, reply.token_ids])
        mask = np.arange(len(ids)) >= len(reply.prompt_ids)
        log_probs = np.zeros(len(ids), np.float32)
        log_probs[mask] = reply.log_probs
        rows.append(Sample("p", (episode.task.id, "ada", "solution", 0), ids, mask, log_probs, 0.0))
    again = row_log_probs(policy.active, policy, rows, 2)
    differences = np.concatenate(
        [(new - row.rollout_log_probs)[row.action_mask] for new, row in zip(again, rows, strict=True)]
    )
    print(f"bf16, {build.__name__}: mean |ratio - 1| {np.abs(np.expm1(differences)).mean():.2e}")
    assert np.abs(differences).mean() < BF16_ROUNDING


def test_one_step_of_comas_on_the_local_trainer(tmp_path: Path) -> None:
    models = {"a": str(tiny_llama(tmp_path / "a")), "b": str(tiny_qwen2(tmp_path / "b"))}
    policies = {name: {"model": path, "precision": "bf16", "device": "cuda"} for name, path in models.items()}
    run = tmp_path / "run"
    train(check_config(config(run, policies)))
    rows = read_rows(run / "metrics.jsonl")
    assert [row["policy"] for row in rows] == ["a", "b"]
    assert all(np.isfinite(row["grad_norm"]) and row["grad_norm"] > 0 for row in rows)


def test_tokens_per_second_beside_those_of_the_cpu() -> None:
    speeds = {}
    for device in ("cpu", "cuda"):
        model = build_model(layers=8, width=512, heads=8, window=2048).to(device)
        backend = HFBackend(PolicyModel("p", model, build_tokenizer()), max_batch_size=64)
        sampled(backend, PROMPTS, 8)  # warms up
        started = time.perf_counter()
        episodes = sampled(backend, PROMPTS * 16, 128)
        seconds = time.perf_counter() - started
        speeds[device] = sum(len(turn.completion.token_ids) for one in episodes for turn in one.turns) / seconds
    ratio = speeds["cuda"] / speeds["cpu"]
    print(f"tokens per second: {speeds['cuda']:.0f} on the GPU, {speeds['cpu']:.0f} on the CPU, ratio {ratio:.1f}")


@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: pip install '.[openrlhf]'")
def test_one_step_through_ray_vllm_and_deepspeed_reaches_the_engine(tmp_path: Path) -> None:
    model, run = tiny_qwen2(tmp_path / "model"), tmp_path / "run"
    text = fixed_text(model)
    seen: dict[int, list[float]] = {}

    def look(done: int, agents: Sequence[Agent]) -> None:
        seen[done] = engine_log_probs(agents[0], text)

    attention = "flash_attention_2" if find_spec("flash_attn") else "sdpa"
    cluster = {  # one GPU for all
        "backend": "openrlhf",
        "cluster": {"colocate": "all"},
        "openrlhf": {
            "vllm": {"gpu_memory_utilization": 0.3, "enable_sleep": True},
            "ds": {"enable_sleep": True, "attn_implementation": attention},
        },
    }
    policies = {"p": {"model": str(model), "context_window": 4096}}
    train(check_config(config(run, policies) | cluster), on_step=look)
    exported = transformers_log_probs(run / "checkpoints/step-00001/p", text)
    before, after = (distance(log_probs, exported) for log_probs in (seen[0], seen[1]))
    print(f"distance of the engine from the exported weights: {after:.4f}, before the sync {before:.4f}")
    assert distance(seen[0], transformers_log_probs(model, text)) < BF16_ROUNDING
    assert after < BF16_ROUNDING
    assert before > 2 * BF16_ROUNDING


def config(run: Path, policies: dict[str, Any]) -> dict[str, Any]:
    """One step of CoMAS; random models never score in form, so what they are rewarded for is digits."""
    return {
        "run_dir": str(run),
        "seed": 1,
        "steps": 1,
        "data": {"sources": [{"path": str(ROOT / "examples/data/word_problems.jsonl"), "prompt": "question"}]},
        "agents": [{"name": f"{policy}-{number}", "policy": policy} for policy in policies for number in range(2)],
        "policies": policies,
        "sampling": {"max_tokens": 32},
        "workflow": {"name": "comas", "rounds": 1, "speakers": "balanced"},
        "reward": {"name": f"{ROOT}/tests/plugins/digits.py:DigitShare"},
        "training": {"learning_rate": 0.01, "batch_size": 4, "micro_batch_size": 2},
        "rollout": {"tasks_per_step": 4},
    }
