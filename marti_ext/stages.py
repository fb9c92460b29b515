"""Stage 1 as a config describes it, for training and for rollout alone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from marti_ext.agent import Agent
from marti_ext.backends.base import Backend
from marti_ext.build import Plan
from marti_ext.config import Config
from marti_ext.rollout import run_episodes
from marti_ext.seeds import derive_seed
from marti_ext.types import Episode


def roll_out(
    config: Config, plan: Plan, agents: Sequence[Agent], step: int, on_episode: Callable[[Episode], None]
) -> list[Episode]:
    """The episodes of one step: the same for the same config, step and weights, whatever ran before."""
    return asyncio.run(
        run_episodes(
            plan.workflow,
            plan.stream.batch(step, config.rollout.tasks_per_step),
            agents,
            seed=derive_seed(config.seed, "rollout", step),
            copies=config.rollout.copies_per_task,
            concurrency=config.rollout.concurrency,
            timeout=config.rollout.timeout,
            on_episode=on_episode,
        )
    )


def check_backends(backends: Mapping[str, Backend]) -> None:
    """Raise UserError, before anything runs, for an endpoint that does not answer."""

    async def check() -> None:
        await asyncio.gather(*(backend.check() for backend in backends.values()))

    asyncio.run(check())
