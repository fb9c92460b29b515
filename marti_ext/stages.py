"""The stages as a config describes them, with checks on what plug-ins give."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from marti_ext.agent import Agent
from marti_ext.backends.base import Backend
from marti_ext.build import Plan
from marti_ext.config import Config
from marti_ext.errors import UserError
from marti_ext.rewards.base import RewardFunction
from marti_ext.rollout import run_episodes
from marti_ext.seeds import derive_seed
from marti_ext.types import Episode, Sample


def roll_out(
    config: Config, plan: Plan, agents: Sequence[Agent], step: int, on_episode: Callable[[Episode], None]
) -> list[Episode]:
    """The episodes of one step: the same for the same config, step and weights, whatever ran before."""

    async def run() -> list[Episode]:
        backends = {id(agent.backend): agent.backend for agent in agents}.values()
        await asyncio.gather(*(backend.start_rollout() for backend in backends))
        episodes = await run_episodes(
            plan.workflow,
            plan.stream.batch(step, config.rollout.tasks_per_step),
            agents,
            seed=derive_seed(config.seed, "rollout", step),
            copies=config.rollout.copies_per_task,
            concurrency=config.rollout.concurrency,
            timeout=config.rollout.timeout,
            on_episode=on_episode,
        )
        await asyncio.gather(*(backend.end_rollout() for backend in backends))
        return episodes

    return asyncio.run(run())


def check_backends(backends: Mapping[str, Backend]) -> None:
    """Raise UserError, before anything runs, for an endpoint that does not answer."""

    async def check() -> None:
        await asyncio.gather(*(backend.check() for backend in backends.values()))

    asyncio.run(check())


def all_failed(episodes: Sequence[Episode], folder: Path) -> UserError:
    """The error of a batch of which nothing came."""
    reason = (episodes[0].error or "unknown").partition("\n")[0]
    return UserError(f"all {len(episodes)} episodes failed ({folder} keeps them); the first: {reason}")


def give_rewards(reward: RewardFunction, episodes: Sequence[Episode]) -> None:
    """Stage 1's end: rewards on the turns. Raises UserError for one that is no finite number."""
    reward.assign(episodes)
    for episode in episodes:
        for turn in episode.turns:
            given = turn.reward
            if given is None or (isinstance(given, int | float) and math.isfinite(given)):
                continue
            raise UserError(
                f"{type(reward).__name__} gave {turn.agent}'s {turn.interaction} of task {episode.task.id!r} the "
                f"reward {given!r}: give a finite number, or None to leave the turn out"
            )


def check_samples(samples: Mapping[str, Sequence[Sample]], policies: Collection[str]) -> None:
    """Raises UserError for rows that no trainer can take: a maker of a user's own may err."""
    for policy, rows in samples.items():
        if policy not in policies:
            raise UserError(f"the experience maker made rows for {policy!r}; trained are {', '.join(policies)}")
        for row in rows:
            if row.policy != policy or not row.action_mask.any() or row.advantages.shape != row.token_ids.shape:
                raise UserError(
                    f"the experience maker made a row for {policy!r} of group {row.group} that is of another policy, "
                    "has no action token, or no advantage for each token"
                )
