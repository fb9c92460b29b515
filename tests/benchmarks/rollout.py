"""What the rollout costs beside the work itself. Ratios, measured in one run: `python tests/benchmarks/rollout.py`.

1. Tokens per second of a workflow on the hf backend over those of one raw, left-padded `model.generate` on the same
   prompts, sampling and batch size (wanted: at least 0.9).
2. Milliseconds of orchestration per turn at 256 concurrent scripted episodes (wanted: under 0.5).
3. Tokens processed in training, padding included, over real tokens (wanted: at most 1.15).
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch loads

import torch
from rich.console import Console
from rich.table import Table
from transformers import GenerationConfig

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from micro_world.character_model import build_model, build_tokenizer

from marti_ext.agent import Agent
from marti_ext.backends.base import SamplingParams
from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import PolicyModel
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.experience.reinforce_pp import ReinforcePP
from marti_ext.rollout import run_episodes
from marti_ext.training.local import LocalTrainer
from marti_ext.training.options import TrainingOptions
from marti_ext.types import Episode, Task
from marti_ext.workflows.comas import CoMAS
from marti_ext.workflows.vanilla import Vanilla

T = TypeVar("T")
ROWS, NEW_TOKENS, REPEATS = 64, 64, 5


def policy() -> PolicyModel:
    return PolicyModel("default", build_model(layers=4, width=256, heads=4, window=2048), build_tokenizer())


def tasks(count: int) -> list[Task]:
    """Prompts of 20 to 200 characters."""
    rng = random.Random(0)
    return [Task(str(i), "".join(rng.choices("abcdefgh 0123456789", k=rng.randint(20, 200)))) for i in range(count)]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the seconds it took."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def rollout_ratio() -> float:
    """Median over interleaved pairs, so that what else the machine does meets both alike."""
    model = policy()
    backend = HFBackend(model, max_batch_size=ROWS)
    agent = Agent("ada", backend, sampling=SamplingParams(max_tokens=NEW_TOKENS))
    work = tasks(ROWS)
    prompts = [model.tokenizer(task.prompt).input_ids for task in work]
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    config = GenerationConfig(do_sample=True, max_new_tokens=NEW_TOKENS, eos_token_id=1, pad_token_id=0, top_k=0)

    def raw() -> int:
        with torch.inference_mode():
            output = model.model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        ends = output[:, width:] == 1
        return int(torch.where(ends.any(-1), ends.int().argmax(-1) + 1, output.shape[1] - width).sum())

    def ours() -> int:
        episodes = asyncio.run(run_episodes(Vanilla(), work, [agent]))
        return sum(len(turn.completion.token_ids) for e in episodes for turn in e.turns)

    raw(), ours()  # warm up
    ratios = []
    for _ in range(REPEATS):
        (raw_tokens, raw_seconds), (our_tokens, our_seconds) = timed(raw), timed(ours)
        ratios.append((our_tokens / our_seconds) / (raw_tokens / raw_seconds))
    return statistics.median(ratios)


def orchestration_milliseconds() -> float:
    """CoMAS over 256 episodes at once, replies at no cost: what is left is ours."""
    backend = ScriptedBackend(["Fine. <score>2</score>"])
    agents = [Agent(name, backend, name, trainable=False) for name in ("ada", "bob", "cai", "dee")]
    turns = 256 * 8 * 3

    def work() -> list[Episode]:
        return asyncio.run(run_episodes(CoMAS(rounds=8), tasks(256), agents, concurrency=256))

    return min(timed(work)[1] for _ in range(REPEATS)) / turns * 1000


def padding_ratio() -> float:
    """Of one training step on CoMAS episodes of a tiny model, in micro batches of 4."""
    model = policy()
    backend = HFBackend(model)
    agents = [Agent(name, backend, sampling=SamplingParams(max_tokens=NEW_TOKENS)) for name in ("ada", "bob")]
    episodes = asyncio.run(run_episodes(CoMAS(rounds=1), tasks(32), agents))
    for place, turn in enumerate(t for e in episodes for t in e.turns):
        turn.reward = float(place % 2)
    [rows] = ReinforcePP().make(episodes, lambda policy, samples: []).values()
    trainer = LocalTrainer(backend, TrainingOptions(batch_size=64, micro_batch_size=4), seed=0, keep_reference=False)
    metrics = trainer.step(rows, step=0)
    return float(metrics["processed_tokens"] / metrics["real_tokens"])


def main() -> int:
    """Print the table; 1 if a wanted ratio is missed."""
    torch.manual_seed(0)
    ratio, milliseconds, padding = rollout_ratio(), orchestration_milliseconds(), padding_ratio()
    table = Table("measure", "measured", "wanted")
    table.add_row("hf rollout / raw generate (tokens per second)", f"{ratio:.2f}", ">= 0.90")
    table.add_row("scripted rollout, 256 at once (ms per turn)", f"{milliseconds:.3f}", "< 0.5")
    table.add_row("training tokens, padded / real", f"{padding:.3f}", "<= 1.15")
    Console().print(table)
    return int(ratio < 0.9 or milliseconds >= 0.5 or padding > 1.15)


if __name__ == "__main__":
    sys.exit(main())
