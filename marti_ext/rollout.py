"""Stage 1, trajectory rollout: many episodes of a workflow at once, results in input order, failures kept as data."""

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from marti_ext.agent import Agent, Recording
from marti_ext.backends.rendezvous import Rendezvous
from marti_ext.errors import LostProcessError, UserError
from marti_ext.seeds import derive_seed
from marti_ext.types import Episode, Task
from marti_ext.workflows.base import Workflow


async def run_episode(
    workflow: Workflow,
    task: Task,
    agents: Sequence[Agent],
    *,
    seed: int = 0,
    copy: int = 0,
    timeout: float | None = None,
    rendezvous: Rendezvous | None = None,
) -> Episode:
    """One episode; `timeout` is its deadline in seconds. An error is kept on the episode, first in
    one line and then whole, not raised, unless it is a UserError or a LostProcessError."""
    episode_seed = derive_seed(seed, task.id, copy)
    recording = Recording(episode_seed, rendezvous)
    team = [agent.recording_to(recording) for agent in agents]
    episode = Episode(task, copy)
    started = time.perf_counter()
    try:
        with rendezvous.running(recording) if rendezvous else nullcontext():
            async with asyncio.timeout(timeout) as deadline:
                episode.answer = await workflow.run(task, team, random.Random(episode_seed))
    except asyncio.CancelledError:
        if (own := asyncio.current_task()) and own.cancelling():
            raise
        episode.status, episode.error = "failed", "CancelledError: the workflow was cancelled from within"
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, UserError | LostProcessError):
            raise cause from error  # a mistake in the set-up, or the end of a backend, spoils every episode
        episode.status = "timeout" if deadline.expired() else "failed"
        reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        episode.error = f"{reason}\n\n{traceback.format_exc()}"
    episode.turns = recording.turns
    episode.seconds = time.perf_counter() - started
    return episode


async def run_episodes(
    workflow: Workflow,
    tasks: Sequence[Task],
    agents: Sequence[Agent],
    *,
    seed: int = 0,
    copies: int = 1,
    concurrency: int = 256,
    timeout: float | None = None,
    on_episode: Callable[[Episode], None] = lambda _: None,
) -> list[Episode]:
    """`copies` episodes of every task, in task order. At most `concurrency` run at once.

    `on_episode` sees each one as it ends. Raises UserError where agents or tasks cannot be told apart.
    """
    refuse_doubles("agent name", [agent.name for agent in agents])
    refuse_doubles("task id", [task.id for task in tasks])
    rendezvous = Rendezvous()
    places = asyncio.Semaphore(concurrency)

    async def one(task: Task, copy: int) -> Episode:
        async with places:
            episode = await run_episode(
                workflow, task, agents, seed=seed, copy=copy, timeout=timeout, rendezvous=rendezvous
            )
        on_episode(episode)
        return episode

    async with rendezvous.open():
        running = [asyncio.create_task(one(task, copy)) for task in tasks for copy in range(copies)]
        try:
            return await asyncio.gather(*running)
        finally:  # after an error none is left behind waiting
            for episode in running:
                episode.cancel()


def _cause(error: BaseException) -> BaseException:
    """The first error within a task group's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def refuse_doubles(what: str, names: Sequence[str]) -> None:
    """Raise UserError for a name that stands twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"{what} {name!r} is used {count} times; each needs its own")
