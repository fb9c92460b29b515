"""Variants of CoMAS as plug-ins: without evaluation, without scoring, with a judge apart, with some rows left out.

In a config: `workflow: {name: "examples/micro_world/ablations.py:WithoutScoring", evaluations: 2}`.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.comas import ZeroSumReward
from marti_ext.types import Episode, Task, Turn
from marti_ext.verifiers.score import neutralise
from marti_ext.workflows import comas_prompts as prompts
from marti_ext.workflows.base import Workflow
from marti_ext.workflows.comas import CoMAS

JUDGE_ALONE = (
    "Judge the proposed solution. Give one score: 3: it is correct. 2: it is right in essence. 1: it has a fatal "
    f"error.\n{prompts.VERDICT}"
)


def alone_prompt(task: Task, solution: str) -> str:
    """Asks for a score of a solution that nobody has criticised."""
    return f"Problem:\n{task.prompt}\n\nProposed solution:\n{neutralise(solution)}\n\n{JUDGE_ALONE}"


@dataclass(frozen=True)
class WithoutEvaluation(Workflow):
    """A solution and its score (arXiv:2510.08529, section 4.3.1). With ZeroSumReward nobody loses what it wins."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        solver, scorer = rng.choice(agents), rng.choice(agents)
        solution = await solver.turn(prompts.solution_prompt(task, []))
        scoring = await scorer.turn(alone_prompt(task, solution.text), interaction="scoring", about=(solution,))
        scoring.score = prompts.read_scoring(scoring)
        return solution.text


@dataclass(frozen=True)
class WithoutScoring(Workflow):
    """A solution and several verdicts on it, none of which sees another (arXiv:2510.08529, section 4.3.1)."""

    evaluations: int = 2

    def __post_init__(self) -> None:
        if self.evaluations < 2:
            raise UserError(f"evaluations is {self.evaluations}; a verdict is rewarded by its agreement with others")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        solution = await rng.choice(agents).turn(prompts.solution_prompt(task, []))
        critics = [rng.choice(agents) for _ in range(self.evaluations)]
        await asyncio.gather(*(self._evaluate(critic, task, solution) for critic in critics))
        return solution.text

    async def _evaluate(self, critic: Agent, task: Task, solution: Turn) -> None:
        prompt = prompts.evaluation_prompt(task, [], solution)
        evaluation = await critic.turn(prompt, interaction="evaluation", about=(solution,))
        evaluation.score = prompts.read_evaluation(evaluation)


@dataclass(frozen=True)
class ApprovalReward(RewardFunction):
    """A solution gets the share of verdicts for it, a verdict the share of the others on the solution that agree.

    (The paper says "mutual consistency"; leaving one out is its natural reading.)
    """

    def assign(self, episodes: Sequence[Episode]) -> None:
        verdicts: defaultdict[Turn, list[tuple[Turn, float]]] = defaultdict(list)  # solution -> (verdict, objection)
        for turn in (t for e in episodes for t in e.turns if t.interaction == "evaluation"):
            if turn.score is not None and turn.score.status == "ok":
                verdicts[turn.about[0]].append((turn, turn.score.value))
        for solution, given in verdicts.items():
            solution.reward = fmean(1 - objection for _, objection in given)
            for turn, objection in given:
                others = [other for one, other in given if one is not turn]
                turn.reward = fmean(other == objection for other in others) if others else None


@dataclass(frozen=True)
class CoMASWithJudge(CoMAS):
    """CoMAS in which the last agent does all the scoring and nothing else."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        *team, judge = agents
        return await _Judged(**vars(self), judge=judge).run(task, team, rng)


@dataclass(frozen=True, kw_only=True)
class _Judged(CoMAS):
    """One episode of it: who judges is known only then."""

    judge: Agent

    async def _score(self, agent: Agent, task: Task, solution: Turn, evaluation: Turn) -> None:
        await super()._score(self.judge, task, solution, evaluation)


@dataclass(frozen=True)
class PartialReward(ZeroSumReward):
    """The reward of CoMAS, but only turns of the interactions `trained` are trained on."""

    trained: tuple[str, ...] = ("solution",)

    def assign(self, episodes: Sequence[Episode]) -> None:
        super().assign(episodes)
        for turn in (turn for episode in episodes for turn in episode.turns):
            if turn.interaction not in self.trained:
                turn.reward = None
