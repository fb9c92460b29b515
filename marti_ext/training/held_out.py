"""Accuracy on held-out tasks while a run goes on, and the weights that did best. No reward comes of it."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from marti_ext.agent import Agent
from marti_ext.build import Plan
from marti_ext.config import Config, Evaluation
from marti_ext.records import EVALUATION_FILE, read_rows
from marti_ext.rollout import run_episodes
from marti_ext.seeds import derive_seed
from marti_ext.tracking import ACCURACY
from marti_ext.training.checkpoint import Checkpoints
from marti_ext.types import Episode, Score
from marti_ext.verifiers.kinds import verifier_for


@dataclass
class HeldOut:
    """What is asked, and what came of it so far; `rows` are those of evaluation.jsonl."""

    config: Config
    options: Evaluation
    plan: Plan
    folder: Path

    def due(self, steps_done: int) -> bool:
        """Whether to measure now; what a resumed run has measured before is not measured again."""
        asked = steps_done % self.options.every == 0 or steps_done == self.config.steps
        return asked and all(row["step"] != steps_done for row in self._rows())

    def measure(self, steps_done: int, agents: Sequence[Agent]) -> list[dict[str, Any]]:
        """A row for each trained policy. The draws are the same every time: only the weights make a difference."""
        first: dict[str, Agent] = {}
        for agent in agents:
            if agent.trainable:
                first.setdefault(agent.policy, agent)
        rows = []
        for policy, agent in first.items():
            episodes = asyncio.run(self._answered(replace(agent, trainable=False)))
            rows.append({"step": steps_done, "policy": policy, **accuracy(episodes)})
        return rows

    def keep_best(self, rows: Iterable[Mapping[str, Any]], checkpoints: Checkpoints) -> list[str]:
        """Keep the weights of each policy whose row is better than all before it: their names."""
        before = self._rows()
        better = []
        for row in rows:
            beaten = [r[ACCURACY] for r in before if r["policy"] == row["policy"] and r["step"] < row["step"]]
            if row["step"] > 0 and _is_higher(row[ACCURACY], beaten):
                checkpoints.keep_best(row["policy"], row["step"])
                better.append(row["policy"])
        return better

    async def _answered(self, agent: Agent) -> list[Episode]:
        assert self.plan.held_out is not None
        await agent.backend.start_rollout()
        episodes = await run_episodes(
            self.plan.held_out.workflow,
            self.plan.held_out.tasks,
            [agent],
            seed=derive_seed(self.config.seed, "held-out"),
            copies=self.options.copies,
            concurrency=self.config.rollout.concurrency,
            timeout=self.config.rollout.timeout,
        )
        await agent.backend.end_rollout()
        return episodes

    def _rows(self) -> list[dict[str, Any]]:
        file = self.folder / EVALUATION_FILE
        return read_rows(file) if file.exists() else []


def told(row: Mapping[str, Any], *, best: bool) -> str:
    """A row in a line for people."""
    value, error = row[ACCURACY], row["held_out_error"]
    accuracy = "nothing could be graded" if value is None else f"accuracy {value:.3f}"
    spread = "" if error is None else f" ± {error:.3f}"
    kept = ", kept as its best" if best else ""
    return f"after {row['step']} steps · {row['policy']}: held-out {accuracy}{spread}{kept}"


def accuracy(episodes: Sequence[Episode]) -> dict[str, Any]:
    """The share of right answers and its standard error over tasks; both None where nothing could be graded.

    An answer that cannot be read, or was cut, is a wrong one, as in evaluations. One that could not be graded (a
    failed episode, a time-out, an unusable label) counts for nothing but in `held_out_ungraded`.
    """
    finished = [episode for episode in episodes if episode.status == "ok"]
    with ThreadPoolExecutor() as threads:  # verifiers wait for workers of their own
        scores = list(threads.map(_graded, finished))
    by_task: dict[str, list[float]] = {}
    for episode, score in zip(finished, scores, strict=True):
        if score.status in ("ok", "unparsed", "truncated"):
            by_task.setdefault(episode.task.id, []).append(score.value)
    means = [float(np.mean(values)) for values in by_task.values()]
    statuses = Counter(score.status for score in scores)
    answers = sum(map(len, by_task.values()))
    return {
        ACCURACY: float(np.mean(means)) if means else None,
        "held_out_error": float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None,
        "held_out_answers": answers,
        "held_out_ungraded": len(episodes) - answers,
        "held_out_unparsed": statuses["unparsed"],
        "held_out_truncated": statuses["truncated"],
    }


def _graded(episode: Episode) -> Score:
    return verifier_for(episode.task.kind).verify(episode.task, episode.answer or "")


def _is_higher(value: float | None, others: Sequence[float | None]) -> bool:
    return value is not None and all(other is None or value > other for other in others)
