"""The real stack on a CPU: Ray, vLLM and DeepSpeed train two policies of different families."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import ROOT, tiny_llama, tiny_qwen2
from transformers import AutoModelForCausalLM

from marti_ext.agent import Agent
from marti_ext.config_file import check_config
from marti_ext.records import read_rows
from marti_ext.training.loop import train

STEPS = 4  # of which the last one keeps its weights from the engines
# Mean distance in nats between two bf16 computations of the same tiny model by other kernels; a step moves it more.
BF16_ROUNDING = 0.05
PROMPT, CONTINUATION = 12, 40  # a fixed text of 40 ids, of which the first 12 are given


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {"llama": tiny_llama(folder / "llama"), "qwen2": tiny_qwen2(folder / "qwen2")}


def config(models: dict[str, Path], run_dir: Path, **changes: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "seed": 1,
        "steps": STEPS,
        "backend": "openrlhf",
        "data": {"sources": [{"path": str(ROOT / "examples/data/word_problems.jsonl"), "prompt": "question"}]},
        "agents": [{"name": "ada", "policy": "llama"}, {"name": "bob", "policy": "qwen2"}],
        "policies": {name: {"model": str(path), "context_window": 4096} for name, path in models.items()},
        "sampling": {"max_tokens": 16},
        # Random models never score in form: what they are rewarded for here is digits.
        "workflow": {"name": "comas", "rounds": 1, "speakers": "balanced"},
        "reward": {"name": f"{ROOT}/tests/plugins/digits.py:DigitShare"},
        "training": {"learning_rate": 0.01, "batch_size": 4, "micro_batch_size": 2},
        "rollout": {"tasks_per_step": 3},
        "checkpoint": {"keep": STEPS},
    } | changes


def fixed_text(folder: Path) -> list[int]:
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    return np.random.default_rng(0).integers(3, size, CONTINUATION).tolist()


def engine_log_probs(agent: Agent, ids: list[int]) -> list[float]:
    """What the engine gives ids[PROMPT:], in nats at temperature 1."""
    from vllm import SamplingParams

    from marti_ext.backends.vllm import VLLMBackend

    backend = agent.backend
    assert isinstance(backend, VLLMBackend)
    params = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=1.0)
    output = asyncio.run(backend.generate(ids, params))
    return [at[token].logprob for at, token in zip(output.prompt_logprobs[PROMPT:], ids[PROMPT:], strict=True)]


def transformers_log_probs(folder: Path, ids: list[int]) -> list[float]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].float()
    chosen = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]]
    return [float(value) for value in chosen[PROMPT - 1 :]]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.mean(np.abs(np.subtract(one, other))))


@pytest.mark.slow
def test_two_families_train_and_every_engine_samples_from_the_exported_weights(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    texts = {name: fixed_text(path) for name, path in models.items()}
    seen: dict[int, dict[str, list[float]]] = {}

    def look(done: int, agents: Sequence[Agent]) -> None:
        from marti_ext.training.openrlhf import OpenRLHFTrainer

        if done == STEPS - 1:
            monkeypatch.setattr(OpenRLHFTrainer, "publish", lambda self: None)
        seen[done] = {agent.policy: engine_log_probs(agent, texts[agent.policy]) for agent in agents}

    train(check_config(config(models, run)), on_step=look)

    for name, path in models.items():
        assert distance(seen[0][name], transformers_log_probs(path, texts[name])) < BF16_ROUNDING
        for done in range(1, STEPS):
            exported = transformers_log_probs(run / f"checkpoints/step-{done:05d}" / name, texts[name])
            assert distance(seen[done][name], exported) < BF16_ROUNDING
            # Before this sync the engine had the weights of the step before.
            assert distance(seen[done - 1][name], exported) > 2 * BF16_ROUNDING
        unsent = transformers_log_probs(run / f"checkpoints/step-{STEPS:05d}" / name, texts[name])
        assert distance(seen[STEPS][name], unsent) > 2 * BF16_ROUNDING
        assert seen[STEPS][name] == pytest.approx(seen[STEPS - 1][name], abs=1e-3)
    rows = read_rows(run / "metrics.jsonl")
    assert len(rows) == STEPS * len(models)
    # 3 tasks x 3 calls, in balance: the policies share 9 rows, filled up to whole batches of 4.
    for step in range(STEPS):
        both = [row for row in rows if row["step"] == step]
        assert sum(row["samples"] for row in both) == 9
        assert all((row["samples"] + row["fillers"]) == 4 * row["updates"] for row in both)
        assert all(row["ratio_deviation"] < 0.2 for row in both)
