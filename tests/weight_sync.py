"""Whether an engine samples from exported weights: log-probs of a fixed text, by it and by transformers."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from marti_ext.agent import Agent

# Mean distance in nats between two bf16 computations of the same tiny model by other kernels; a step moves it more.
BF16_ROUNDING = 0.05
PROMPT, CONTINUATION = 12, 40  # a fixed text of 40 ids, of which the first 12 are given


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
