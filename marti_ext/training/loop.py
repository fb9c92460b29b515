"""The loop: rollout, experience, training, for every step. Only backends and trainers know where weights live."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from marti_ext.agent import Agent
from marti_ext.build import Plan, build_plan
from marti_ext.config import Config
from marti_ext.episode_metrics import policy_metrics
from marti_ext.errors import LostProcessError
from marti_ext.experience.base import ReferenceLogProbs
from marti_ext.judge_quality import judge_quality
from marti_ext.progress import RunProgress, say
from marti_ext.records import write_episodes
from marti_ext.run_folder import RunFolder
from marti_ext.stages import all_failed, check_samples, give_rewards, roll_out
from marti_ext.tracking import JsonlTracker, TensorBoardTracker, Tracker, Trackers, WandbTracker
from marti_ext.training.base import Metrics, PolicyTrainer
from marti_ext.training.checkpoint import Checkpoints, seed_generators
from marti_ext.training.held_out import HeldOut, told
from marti_ext.training.start import Started, started
from marti_ext.types import Episode, Sample

OnStep = Callable[[int, Sequence[Agent]], None]
"""Called with the number of steps done (also before the first) and the team, for example to evaluate it."""


@dataclass
class Run:
    """What the steps of a run share."""

    config: Config
    plan: Plan
    agents: Sequence[Agent]
    trainers: Mapping[str, PolicyTrainer]
    folder: RunFolder
    progress: RunProgress
    seconds: dict[str, float] = field(default_factory=dict)  # of the running step, by stage
    rollout_tokens: int = 0  # of the running step
    ahead: Future[list[Episode]] | None = None  # with cluster.async_rollout: the next step's episodes
    staleness: int = 0  # of the running step's episodes: updates of the weights, in steps, that they did not see

    @property
    def asynchronous(self) -> bool:
        return self.config.backend == "openrlhf" and self.config.cluster.async_rollout

    @property
    def reference(self) -> ReferenceLogProbs:
        return lambda policy, samples: self.trainers[policy].reference_log_probs(samples)

    def step(self, step: int) -> list[dict[str, Any]]:
        """One training step: its rows of metrics, one per policy."""
        episodes = self._rollout(step)
        replies = [turn.completion.token_ids for episode in episodes for turn in episode.turns]
        self.rollout_tokens = sum(len(ids) for ids in replies if ids is not None)
        try:
            samples = self._experience(episodes)
            return self._train(step, episodes, samples)
        finally:  # also, and most of all, where something went wrong
            write_episodes(self.folder.path, step, episodes)

    def timings(self, step: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "step": step,
            **{f"{stage}_seconds": round(seconds, 3) for stage, seconds in self.seconds.items()},
            "rollout_tokens": self.rollout_tokens,
            "training_tokens": sum(row["real_tokens"] for row in rows),
        }

    def _rollout(self, step: int) -> list[Episode]:
        self.progress.stage("rollout", self.config.rollout.tasks_per_step * self.config.rollout.copies_per_task)
        with _timed(self.seconds, "rollout"):
            self.staleness = int(self.ahead is not None)
            if self.ahead is not None:
                episodes = self.ahead.result()
            else:
                episodes = roll_out(self.config, self.plan, self.agents, step, lambda _: self.progress.advance())
        self.ahead = self._begin(step + 1) if self.asynchronous else None
        return episodes

    def _begin(self, step: int) -> Future[list[Episode]] | None:
        """Roll out a later step beside the training of this one, by the weights from before it."""
        if step >= self.config.steps:
            return None
        pool = ThreadPoolExecutor(1, "rollout")
        ahead = pool.submit(roll_out, self.config, self.plan, self.agents, step, lambda _: None)
        pool.shutdown(wait=False)
        return ahead

    def _experience(self, episodes: Sequence[Episode]) -> Mapping[str, list[Sample]]:
        finished = [episode for episode in episodes if episode.status == "ok"]
        if not finished:
            raise all_failed(episodes, self.folder.path)
        with _timed(self.seconds, "experience"):
            give_rewards(self.plan.reward, finished)
            samples = self.plan.maker.make(finished, self.reference)
            check_samples(samples, self.trainers)
            return samples

    def _train(
        self, step: int, episodes: Sequence[Episode], samples: Mapping[str, list[Sample]]
    ) -> list[dict[str, Any]]:
        rows = []
        quality = judge_quality(episodes) if self.config.judge_quality else {}
        self.progress.stage("training", len(self.trainers))
        with _timed(self.seconds, "training"):
            for name, metrics in self._updates(samples, step):
                stale = {"staleness": self.staleness} if self.asynchronous else {}
                own = policy_metrics(episodes, name) | quality.get(name, {})
                rows.append({"step": step, "policy": name, **own, **stale, **metrics})
                self.progress.advance()
        with _timed(self.seconds, "publish"):
            if self.ahead is not None:
                wait([self.ahead])  # no reply is sampled from two sets of weights
            for trainer in self.trainers.values():
                trainer.publish()
        return rows

    def _updates(self, samples: Mapping[str, list[Sample]], step: int) -> Iterator[tuple[str, Metrics]]:
        """(policy, its metrics) in order; policies train at the same time where they hold different devices."""
        alone = any(trainer.alone for trainer in self.trainers.values())
        pool = ThreadPoolExecutor(1 if alone else len(self.trainers), "training")
        try:
            running = {n: pool.submit(t.step, samples.get(n, []), step=step) for n, t in self.trainers.items()}
            for future in as_completed(running.values()):
                future.result()  # the first error ends the step, whatever the others still do
            yield from ((name, future.result()) for name, future in running.items())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def train(config: Config, console: Console | None = None, on_step: OnStep = lambda steps_done, agents: None) -> Path:
    """Train every policy for `config.steps` steps: the last checkpoint, `<checkpoint>/<policy>` a Hugging Face folder.

    Goes on from the latest checkpoint in the run folder, also by itself after a lost process, where
    `cluster.max_restarts` allows it. Raises UserError for bad input, before anything is written, NonFiniteError, and
    LostProcessError.
    """
    console = console or Console()
    folder = RunFolder(Path(config.run_dir))
    restarts = config.cluster.max_restarts
    while True:
        seed_generators(config.seed)
        plan = build_plan(config)
        try:
            with started(config, plan) as team, folder.opened(config):
                return _run(config, plan, team, folder, console, on_step)
        except LostProcessError as error:
            if not restarts:
                raise
            restarts -= 1
            say(console, f"{error}\nGoing on from the last checkpoint; restarts left: {restarts}")


def _run(config: Config, plan: Plan, team: Started, folder: RunFolder, console: Console, on_step: OnStep) -> Path:
    run = Run(config, plan, team.agents, team.trainers, folder, RunProgress(console))
    checkpoints = Checkpoints(folder.checkpoints, config.checkpoint.keep, config.checkpoint.keep_weights)
    latest = checkpoints.latest()
    first = checkpoints.load(latest, team.trainers) if latest else 0
    checkpoints.sweep()
    folder.forget_from(first)
    todo = f"Steps {first} to {config.steps - 1}." if first < config.steps else f"All {first} steps are done."
    say(console, f"{plan.stream.describe()}. {todo}")
    held_out = HeldOut(config, config.evaluation, plan, folder.path) if config.evaluation else None
    on_step(first, team.agents)
    with closing(Trackers(_trackers(config, folder.path))) as trackers, run.progress.shown(config.steps, first):
        _evaluate(run, held_out, first, checkpoints, trackers)
        for step in range(first, config.steps):
            evaluated = held_out is not None and held_out.due(step + 1)
            _one_step(run, step, checkpoints, trackers, keep=evaluated)
            _evaluate(run, held_out, step + 1, checkpoints, trackers)
            on_step(step + 1, team.agents)
    last = checkpoints.latest()
    assert last is not None
    return last


def _evaluate(
    run: Run, held_out: HeldOut | None, steps_done: int, checkpoints: Checkpoints, trackers: Trackers
) -> None:
    """Measure on held-out tasks where it is time for that; recorded last, so that a kill leaves nothing half-done."""
    if held_out is None or not held_out.due(steps_done):
        return
    run.progress.stage("evaluation", len(run.trainers))
    rows = held_out.measure(steps_done, run.agents)
    better = held_out.keep_best(rows, checkpoints)
    trackers.log(rows)
    for row in rows:
        run.progress.say(told(row, best=row["policy"] in better))


def _one_step(run: Run, step: int, checkpoints: Checkpoints, trackers: Trackers, *, keep: bool) -> None:
    run.seconds.clear()
    started = time.perf_counter()
    rows = run.step(step)
    trackers.log(rows)
    done = step + 1
    with _timed(run.seconds, "checkpoint"):
        if keep or done % run.config.checkpoint.every == 0 or done == run.config.steps:
            checkpoints.save(done, run.trainers)
    trackers.log([run.timings(step, rows)])
    run.progress.step_done(step, rows, time.perf_counter() - started)


def _trackers(config: Config, folder: Path) -> list[Tracker]:
    trackers: list[Tracker] = [JsonlTracker(folder)]
    if config.tracking.tensorboard:
        trackers.append(TensorBoardTracker(folder))
    if wandb := config.tracking.wandb:
        trackers.append(WandbTracker(folder, wandb.project, wandb.name or folder.name, wandb.mode))
    return trackers


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
