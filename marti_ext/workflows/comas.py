"""CoMAS: co-evolving multi-agent systems via interaction rewards (arXiv:2510.08529, section 3.1)."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Task, Turn
from marti_ext.workflows import comas_prompts as prompts
from marti_ext.workflows.base import Workflow
from marti_ext.workflows.comas_prompts import Discussion


@dataclass(frozen=True)
class CoMAS(Workflow):
    """Rounds of a solution, evaluations that hunt for its flaws, and one scoring of each pair.

    `sequential` (the paper): one speaker a step; the next round sees the discussions of the last `history` rounds.
    `waves` (the released code): every agent solves in each round, seeing `history` discussions drawn from the round
    before; evaluators and scorers are assigned in balance. Scoring never enters the discussion.

    The paper's ablations (section 4.3.1): with `evaluations: 0` a solution is scored directly, with reward zero_sum.
    With `scoring: false` nobody scores: each of 2 or more evaluations ends with a verdict, for reward consensus.
    """

    rounds: int = 8  # m
    evaluations: int = 1  # n, of each solution
    scoring: bool = True
    history: int = 2  # kappa
    protocol: Literal["sequential", "waves"] = "sequential"
    speakers: Literal["uniform", "balanced"] = "uniform"  # of a step: drawn anew, or each agent equally often
    evaluation_sees_discussion: bool = True
    worked_examples: bool = False  # show scorers two examples of the form, for models too small to follow it unshown

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.evaluations < 0 or self.history < 0:
            raise UserError("comas needs rounds >= 1, evaluations >= 0 and history >= 0")
        if not self.scoring and self.evaluations < 2:
            raise UserError(
                f"comas: evaluations is {self.evaluations}; without scoring use 2 or more, which judge each other"
            )

    def check(self, tasks: Sequence[Task]) -> None:
        for kind in {task.kind for task in tasks} - set(prompts.SOLVE):
            raise UserError(f"comas has no prompts for tasks of kind {kind!r}; known: {', '.join(prompts.SOLVE)}")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        solvers, evaluators, scorers = (self._speakers(agents, rng) for _ in range(3))
        past: list[list[Discussion]] = []
        # A scoring feeds rewards, not the discussion: it runs beside the next round.
        async with asyncio.TaskGroup() as scorings:
            for round in range(self.rounds):
                context = self._context(past, rng)
                speaking = agents if self.protocol == "waves" else [next(solvers)]
                solutions = await asyncio.gather(*(self._solve(a, task, context, round) for a in speaking))
                pairs = [(s, next(evaluators), next(scorers)) for s in solutions for _ in range(self.evaluations)]
                evaluations = await asyncio.gather(*(self._evaluate(e, task, context, s) for s, e, _ in pairs))
                judged: list[tuple[Agent, tuple[Turn, ...]]] = [
                    (scorer, (s, e)) for (s, _, scorer), e in zip(pairs, evaluations, strict=True)
                ]
                if not self.evaluations:
                    judged = [(next(scorers), (s,)) for s in solutions]
                for scorer, about in judged if self.scoring else []:
                    scorings.create_task(self._score(scorer, task, *about))
                past.append([(s, [e for e in evaluations if e.about == (s,)]) for s in solutions])
        return past[-1][-1][0].text

    async def _solve(self, agent: Agent, task: Task, context: Sequence[Discussion], round: int) -> Turn:
        return await agent.turn(prompts.solution_prompt(task, context), interaction="solution", round=round)

    async def _evaluate(self, agent: Agent, task: Task, context: Sequence[Discussion], solution: Turn) -> Turn:
        seen = context if self.evaluation_sees_discussion else []
        prompt = prompts.evaluation_prompt(task, seen, solution, with_verdict=not self.scoring)
        evaluation = await agent.turn(prompt, interaction="evaluation", round=solution.round, about=(solution,))
        evaluation.score = prompts.read_evaluation(evaluation, with_verdict=not self.scoring)
        return evaluation

    async def _score(self, agent: Agent, task: Task, solution: Turn, evaluation: Turn | None = None) -> None:
        messages = prompts.scoring_prompt(task, solution, evaluation, worked_examples=self.worked_examples)
        about = (solution, evaluation) if evaluation else (solution,)
        scoring = await agent.turn(*messages, interaction="scoring", round=solution.round, about=about)
        scoring.score = prompts.read_scoring(scoring)

    def _context(self, past: Sequence[Sequence[Discussion]], rng: random.Random) -> list[Discussion]:
        if self.protocol == "sequential":
            return [discussion for round in past[max(0, len(past) - self.history) :] for discussion in round]
        previous = past[-1] if past else []
        return rng.sample(previous, min(self.history, len(previous)))

    def _speakers(self, agents: Sequence[Agent], rng: random.Random) -> Iterator[Agent]:
        while True:
            if self.speakers == "uniform" and self.protocol == "sequential":
                yield rng.choice(agents)
            else:
                yield from rng.sample(agents, len(agents))
