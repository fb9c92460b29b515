"""Measurements of a running training: the variant's own episodes, and solvers alone, on held-out questions."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import language
import numpy as np
from families import answer
from measures import measure
from variants import Variant

from marti_ext.agent import Agent
from marti_ext.config import Config
from marti_ext.errors import UserError
from marti_ext.records import write_text_atomically
from marti_ext.registry import build_plugin
from marti_ext.rewards.base import RewardFunction
from marti_ext.rollout import run_episodes
from marti_ext.types import Episode, Task
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.workflows import comas_prompts as prompts
from marti_ext.workflows.base import Workflow

COMPETENT = 0.9  # agreement with the truth, the mean of that on right and that on wrong solutions
COPIES = 2  # samples of each held-out question by each solver


@dataclass(frozen=True)
class Solve(Workflow):
    """Every agent solves the task, as in CoMAS and with nothing after it."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        del rng
        replies = await asyncio.gather(*(agent.reply(language.solution_prompt(task)) for agent in agents))
        return replies[0]


@dataclass(frozen=True)
class Exam(Workflow):
    """Every agent scores one solution, as often right as wrong and the same at every step, whatever solvers do by now.

    `critic`: in sight of a critique that objects at random.
    """

    critic: bool

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        solution = language.turn(language.solution(answer(task, 0.5, rng)))
        critique = language.turn(language.critique(objects=rng.random() < 0.5))
        critique.score = prompts.read_evaluation(critique)
        prompt = language.scoring_prompt(task, solution.text, critique.text if self.critic else None)
        about = (solution, critique)[: 1 + self.critic]
        scorings = await asyncio.gather(*(a.turn(prompt, interaction="scoring", about=about) for a in agents))
        for scoring in scorings:
            scoring.score = prompts.read_scoring(scoring)
        return solution.text


@dataclass
class Probe:
    """Measures the team as training goes on and keeps the rows in a file; what is there is not measured again."""

    config: Config
    tasks: Sequence[Task]
    file: Path
    every: int  # steps
    variant: Variant
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.file.exists():
            self.rows = json.loads(self.file.read_text(encoding="utf-8"))

    def after_step(self, steps_done: int, agents: Sequence[Agent]) -> None:
        """Raises UserError before the first step for a judge that cannot tell right from wrong."""
        due = steps_done % self.every == 0 or steps_done == self.config.steps
        if not due or any(row["step"] == steps_done for row in self.rows):
            return
        row = {"step": steps_done, **self._measured(agents)}
        if steps_done == 0 and self.variant.competent:
            refuse_incompetence(row)
        self.rows.append(row)
        write_text_atomically(self.file, json.dumps(self.rows, indent=1))

    def _measured(self, agents: Sequence[Agent]) -> dict[str, Any]:
        """The draws are the same at every step, so that only the weights make a difference."""
        workflow = build_plugin("workflow", Workflow, self.config.workflow.name, self.config.workflow.options)  # type: ignore[type-abstract]
        reward = build_plugin("reward", RewardFunction, self.config.reward.name, self.config.reward.options)  # type: ignore[type-abstract]
        episodes = finished(workflow, self.tasks, agents)
        reward.assign(episodes)
        solvers = [agent for agent in agents if agent.trainable]
        greedy = [replace(a, sampling=replace(a.sampling, temperature=0.0), trainable=False) for a in solvers]
        return {
            **measure(episodes, is_right),
            **(self._examined([a for a in agents if not a.trainable] or agents) if self.variant.judge else {}),
            "sampled": accuracy(solvers, self.tasks, COPIES),
            "greedy": accuracy(greedy, self.tasks, 1),
        }

    def _examined(self, judges: Sequence[Agent]) -> dict[str, Any]:
        found = measure(finished(Exam(self.variant.judge == "after a critique"), self.tasks, judges), is_right)
        on_right, on_wrong = found["judge_on_right"], found["judge_on_wrong"]
        return {
            "exam": None if on_right is None or on_wrong is None else (on_right + on_wrong) / 2,
            "exam_on_right": on_right,
            "exam_on_wrong": on_wrong,
            "exam_critic": found["judge_critic"],
        }


def refuse_incompetence(row: dict[str, Any]) -> None:
    """Raise UserError unless the judge agrees with the truth on right and on wrong solutions alike."""
    if row["exam"] is None or row["exam"] < COMPETENT:
        right, wrong = (row[f"exam_on_{kind}"] or 0.0 for kind in ("right", "wrong"))
        raise UserError(
            f"the judge is not competent: it agrees with the truth on {right:.2f} of right and {wrong:.2f} of wrong "
            f"solutions, {COMPETENT} is needed on average; teach it longer (--teaching-steps)"
        )


def accuracy(solvers: Sequence[Agent], tasks: Sequence[Task], copies: int) -> float:
    """The share of right solutions, over all questions, solvers and copies."""
    episodes = finished(Solve(), tasks, solvers, copies)
    return float(np.mean([is_right(episode.task, turn.text) for episode in episodes for turn in episode.turns]))


def finished(workflow: Workflow, tasks: Sequence[Task], agents: Sequence[Agent], copies: int = 1) -> list[Episode]:
    """The episodes. Raises RuntimeError if one failed."""
    episodes = asyncio.run(run_episodes(workflow, tasks, agents, copies=copies))
    for episode in episodes:
        if episode.status != "ok":
            raise RuntimeError(f"the evaluation failed on {episode.task.id}: {episode.error}")
    return episodes


def is_right(task: Task, solution: str) -> bool:
    """What the verifier says."""
    return verifier_for(task.kind).verify(task, solution).value == 1.0
