"""What a rollout through Ray and vLLM costs beside the work of the engines: `python tests/benchmarks/cluster.py`.

Turns per second of CoMAS over those of the same requests sent to the same engines by nothing but a loop: as many at
once, prompts and lengths of replies alike, caches emptied before (wanted: at least 0.9). The median of interleaved
pairs of one run. `--model FOLDER` takes another model than the tiny one that it builds.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch loads

import ray
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from tiny_models import tiny_llama

from marti_ext.agent import Agent
from marti_ext.backends.base import SamplingParams
from marti_ext.cluster.flags import policy_arguments
from marti_ext.cluster.placement import plan_placement
from marti_ext.cluster.session import Session
from marti_ext.config import Config
from marti_ext.config_file import check_config
from marti_ext.rollout import run_episodes
from marti_ext.types import Episode, Task
from marti_ext.workflows.comas import CoMAS
from patches.cpu import activate_training, has_accelerator

if TYPE_CHECKING:
    from marti_ext.backends.vllm import VLLMBackend

T = TypeVar("T")
EPISODES, NEW_TOKENS, REPEATS = 32, 64, 5


def config(model: str) -> Config:
    return check_config(
        {
            "run_dir": "unused",
            "backend": "openrlhf",
            "data": {"sources": [{"path": "unused.jsonl"}]},
            "agents": [{"name": "ada", "policy": "p", "trainable": False}],
            "policies": {"p": {"model": model, "context_window": 2048}},
            "workflow": {"name": "comas"},
            "reward": {"name": "zero_sum"},
        }
    )


def tasks(count: int) -> list[Task]:
    """Prompts of 20 to 200 characters."""
    rng = random.Random(0)
    return [Task(str(i), "".join(rng.choices("abcdefgh 0123456789", k=rng.randint(20, 200)))) for i in range(count)]


def timed(backend: "VLLMBackend", work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """What the work gives, from empty caches, and the seconds it took."""
    ray.get([engine.reset_prefix_cache.remote() for engine in backend.engines])
    started = time.perf_counter()
    result = asyncio.run(work)
    return result, time.perf_counter() - started


async def replayed(backend: "VLLMBackend", episodes: Sequence[Episode]) -> None:
    """The requests of all episodes at once, those of each one after the other, as many tokens as were sampled."""

    from vllm import SamplingParams as VLLMSamplingParams

    async def one(episode: Episode) -> None:
        for seed, turn in enumerate(episode.turns):
            reply = turn.completion
            assert reply.prompt_ids is not None
            assert reply.token_ids is not None
            params = VLLMSamplingParams(
                max_tokens=len(reply.token_ids), ignore_eos=True, seed=seed, logprobs=0, detokenize=False
            )
            await backend.generate(reply.prompt_ids.tolist(), params)

    await asyncio.gather(*(one(episode) for episode in episodes))


def ratios(backend: "VLLMBackend") -> list[float]:
    """Of each pair: (turns per second of the workflow) / (turns per second of the replay)."""
    agents = [
        Agent(name, backend, "p", sampling=SamplingParams(max_tokens=NEW_TOKENS)) for name in ("ada", "bob", "cai")
    ]
    work = tasks(EPISODES)
    found = []
    for seed in range(REPEATS + 1):
        episodes, ours = timed(backend, run_episodes(CoMAS(rounds=2), work, agents, seed=seed))
        assert all(episode.status == "ok" for episode in episodes)
        _, bare = timed(backend, replayed(backend, episodes))
        found.append(bare / ours)
        turns = sum(len(episode.turns) for episode in episodes)
        Console().print(f"{turns} turns: {turns / ours:.1f} a second in CoMAS, {turns / bare:.1f} replayed")
    return found[1:]  # the first pair warms up


def main() -> int:
    """Print the table; 1 if the wanted ratio is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a Hugging Face folder")
    model = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        run = config(model or str(tiny_llama(Path(folder))))
        arguments = policy_arguments(run, cpu=not has_accelerator())
        placement = plan_placement(run, arguments, needs_reference=False)
        session = Session()
        with session.opened(None, logical=None if has_accelerator() else placement.gpus):
            activate_training()
            from marti_ext.cluster.launch import launch

            backends, _ = launch(session, placement, run, arguments)
            measured = ratios(backends["p"])
    ratio = statistics.median(measured)
    table = Table("measure", "measured", "range", "wanted")
    table.add_row(
        f"turns per second, {EPISODES} episodes of CoMAS at once / the same requests alone",
        f"{ratio:.2f}",
        f"{min(measured):.2f} to {max(measured):.2f}",
        ">= 0.90",
    )
    Console().print(table)
    return int(ratio < 0.9)


if __name__ == "__main__":
    sys.exit(main())
