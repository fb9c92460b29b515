"""How many calls, rows, updates and tokens a step brings, before there is a model."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import ceil

from marti_ext.agent import Agent
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.build import build_agents
from marti_ext.config import Config, HFPolicy
from marti_ext.rollout import run_episodes
from marti_ext.types import Episode, Task
from marti_ext.workflows.base import Workflow

# What parsers of answers and of scores both read, so that no workflow takes its way for failures.
REPLY = "The answer is \\boxed{1}. <score>2</score>"
ALIKE, MEAN_OVER = 4, 240  # episodes that tell whether chance counts, and then those whose mean is taken


@dataclass(frozen=True)
class Calls:
    """Calls of one episode: {(agent, interaction): how many}, a mean where `random`."""

    of: Mapping[tuple[str, str], float]
    random: bool
    failure: str = ""  # why nothing could be counted

    def total(self) -> float:
        return sum(self.of.values())

    def by_interaction(self) -> dict[str, float]:
        counts: defaultdict[str, float] = defaultdict(float)
        for (_, interaction), calls in self.of.items():
            counts[interaction] += calls
        return dict(counts)


@dataclass(frozen=True)
class PolicyBudget:
    """Of one policy and step; tokens are upper bounds, and rows, too, where a reward leaves turns out."""

    policy: str
    calls: float
    rows: float
    updates: int
    generated_tokens: float
    training_tokens: float | None  # None without a context_window


def count_calls(config: Config, workflow: Workflow) -> Calls:
    """Calls of the configured team in scripted episodes of a made-up task; no reply ends a workflow early."""
    backends = {name: ScriptedBackend([REPLY]) for name in config.policies}
    for name, policy in config.policies.items():
        if isinstance(policy, HFPolicy):
            backends[name].context_window = policy.context_window
    agents = build_agents(config, backends, training=False)
    task = Task("made-up", "What is 1 + 0?", "1", config.data.sources[0].kind)

    def episodes(of: Workflow, copies: int) -> list[Episode]:
        return asyncio.run(run_episodes(of, [task], agents, seed=config.seed, copies=copies))

    found = episodes(workflow, ALIKE)
    if failed := next((one for one in found if one.status != "ok"), None):
        return Calls({}, random=False, failure=(failed.error or failed.status).partition("\n")[0])
    counts = [Counter((turn.agent, turn.interaction) for turn in one.turns) for one in found]
    if all(one == counts[0] for one in counts):
        return Calls(dict(counts[0]), random=False)
    drawn = episodes(_EvenlyDrawn(workflow), MEAN_OVER)
    turns = Counter((turn.agent, turn.interaction) for one in drawn for turn in one.turns)
    return Calls({key: calls / MEAN_OVER for key, calls in turns.items()}, random=True)


@dataclass(frozen=True)
class _EvenlyDrawn(Workflow):
    """A workflow whose chance is spread evenly over MEAN_OVER episodes."""

    workflow: Workflow
    numbers: Iterator[int] = field(default_factory=count)

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        return await self.workflow.run(task, agents, _EvenDraws(next(self.numbers)))


class _EvenDraws(random.Random):
    """The draws of one episode; the n-th ones of all episodes together cover [0, 1) evenly (a Latin hypercube).

    A mean over the episodes then has the fair share of a fair choice, not one near it.
    """

    def __init__(self, episode: int) -> None:
        super().__init__()
        self._episode, self._draws = episode, count()

    def random(self) -> float:
        return (_order(next(self._draws))[self._episode] + 0.5) / MEAN_OVER

    def _randbelow(self, n: int) -> int:  # by which choice, sample and shuffle draw
        return int(self.random() * n)


@cache
def _order(draw: int) -> list[int]:
    return random.Random(draw).sample(range(MEAN_OVER), MEAN_OVER)


def policy_budgets(config: Config, calls: Calls) -> list[PolicyBudget]:
    """The step of every policy: rollout.tasks_per_step x copies_per_task episodes, then its updates."""
    episodes = config.rollout.tasks_per_step * config.rollout.copies_per_task
    budgets = []
    for name, policy in config.policies.items():
        asked = rows = generated = 0.0
        for agent in (agent for agent in config.agents if agent.policy == name):
            own = episodes * sum(count for (who, _), count in calls.of.items() if who == agent.name)
            asked += own
            rows += own if agent.trainable else 0
            generated += own * agent.sampling.max_tokens
        updates, training = 0, None
        if isinstance(policy, HFPolicy):
            options = policy.training
            updates = ceil(rows / options.batch_size) * options.max_epochs
            if policy.context_window is not None:
                training = rows * policy.context_window * options.max_epochs
        budgets.append(PolicyBudget(name, asked, rows, updates, generated, training))
    return budgets
