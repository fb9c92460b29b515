"""Agents answer, and each judges its own answer."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.errors import UserError
from marti_ext.types import Task, Turn
from marti_ext.verifiers.score import neutralise, parse_score, read_judgement
from marti_ext.workflows.base import Workflow

LOW, HIGH = 0, 5  # prompt and parser share one range
JUDGE = """Here is a problem, and a reply to it that you are to judge.

Problem:
{problem}

Reply:
{reply}

Begin with 0 points and add 1 for each of these that is true:
- The reply is about the problem and not about something else.
- It gets at least a good part of the way to an answer.
- It says how it comes to its answer, so that every step can be checked.
- You have checked the steps, and none of them is wrong.
- Its final answer is right beyond doubt, and in the form that the problem asks for.

Say in a few sentences which are true and why. End with <score>N</score>, where N is your points, a whole number from \
{low} to {high}."""


@dataclass(frozen=True)
class SelfJudge(Workflow):
    """Every agent answers the task and then scores its own answer from 0 to 5 by added points, `judgements` times
    (SRLM, self-rewarding language models, arXiv:2401.10020); the answer is the first agent's.

    For reward self_judge, which averages the scores. SRLM takes 3 of each of 4 answers (rollout.copies_per_task: 4),
    sampled at temperature 0.7 and top_p 0.9.
    """

    judgements: int = 3

    def __post_init__(self) -> None:
        if self.judgements < 1:
            raise UserError(f"self_judge: judgements is {self.judgements}, use 1 or more")

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        solutions = await asyncio.gather(*(agent.turn(task.prompt) for agent in agents))
        pairs = [pair for pair in zip(agents, solutions, strict=True) for _ in range(self.judgements)]
        await asyncio.gather(*(self._judge(agent, task, solution) for agent, solution in pairs))
        return solutions[0].text

    async def _judge(self, agent: Agent, task: Task, solution: Turn) -> None:
        # Neither the problem nor the answer can set the score.
        problem, reply = neutralise(task.prompt), neutralise(solution.text)
        prompt = JUDGE.format(problem=problem, reply=reply, low=LOW, high=HIGH)
        scoring = await agent.turn(prompt, interaction="scoring", about=(solution,))
        scoring.score = read_judgement(scoring.completion, lambda text: parse_score(text, low=LOW, high=HIGH))
