"""The run itself: every task of every benchmark through every set-up, each once, across any number of stops."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from rich.console import Console

from evaluation.benchmark import Benchmark
from evaluation.journal import Journal
from evaluation.load import Loaded
from evaluation.outcome import Outcome
from evaluation.progress import GroupProgress
from evaluation.run_file import EvaluationFolder, Group
from evaluation.setups import Setup
from evaluation.team import Speakers
from marti_ext.errors import UserError
from marti_ext.rollout import run_episodes
from marti_ext.seeds import derive_seed
from marti_ext.types import Episode, FinishReason, Score, Task
from marti_ext.workflows.base import Workflow

PATIENCE = 20  # failed episodes in a row after which an endpoint counts as dead


@dataclass(frozen=True)
class EvaluationPlan:
    """What is to be run."""

    benchmarks: Sequence[tuple[Benchmark, Loaded]]
    setups: Sequence[Setup]
    seeds: Sequence[int]
    seed: int  # that of all of them: the same seed and team give the same replies where the backend can
    concurrency: int  # episodes at once
    timeout: float | None  # seconds of one episode


def run(
    plan: EvaluationPlan,
    speakers: Speakers,
    folder: EvaluationFolder,
    price: tuple[float, float] | None,
    console: Console,
) -> int:
    """Run what is missing in the folder. Gives the number of tasks that failed now.

    A task that failed or overran its deadline is asked again; one that only could not be graded is graded again.
    Raises UserError where a set-up cannot work on a task, before anything is asked, and where an endpoint is dead, at
    the start or half-way; what is done is kept.
    """
    for setup in plan.setups:
        for _, loaded in plan.benchmarks:
            setup.workflow.check(loaded.tasks)
    asyncio.run(speakers.check())
    failed, patience = 0, Patience()
    with GroupProgress(console, price) as progress:
        for benchmark, loaded in plan.benchmarks:
            for setup in plan.setups:
                for seed in plan.seeds:
                    group = folder.group(benchmark.name, setup.name, seed)
                    recorder = _Recorder(benchmark, group, progress, patience)
                    failed += _run_group(plan, speakers, loaded.tasks, setup.workflow, recorder)
    return failed


def _run_group(
    plan: EvaluationPlan, speakers: Speakers, tasks: Sequence[Task], workflow: Workflow, recorder: "_Recorder"
) -> int:
    """One (benchmark, set-up, seed)."""
    group = recorder.group
    answered = {outcome.task: (episode, outcome) for episode, outcome in group.episodes() if episode.status == "ok"}
    missing = [task for task in tasks if task.id not in answered]
    ungraded = [episode for episode, outcome in answered.values() if outcome.score.status == "failed"]
    recorder.begin(len(tasks), len(tasks) - len(missing) - len(ungraded))
    try:
        for episode in ungraded:
            recorder.take(episode)
        if missing:
            asyncio.run(
                run_episodes(
                    workflow,
                    missing,
                    speakers.agents(tasks, Journal(group.journal_path)),
                    seed=derive_seed(plan.seed, group.benchmark, group.setup, group.seed),
                    concurrency=plan.concurrency,
                    timeout=plan.timeout,
                    on_episode=recorder.take,
                )
            )
    finally:
        recorder.close()
    if not recorder.failed:
        group.journal_path.unlink(missing_ok=True)  # the results hold every call
    return recorder.failed


class Patience:
    """Ends after so many failed episodes in a row, of whatever group: nobody is there any more."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def take(self, episode: Episode) -> None:
        """Raises UserError."""
        self._in_a_row = self._in_a_row + 1 if episode.status == "failed" else 0
        if self._in_a_row >= PATIENCE:
            reason = (episode.error or "").partition("\n")[0]
            raise UserError(
                f"{PATIENCE} episodes in a row failed, the last one: {reason} · stopped; what is done is kept, and "
                "the same command goes on from there"
            )


class _Recorder:
    """Grades finished episodes beside the rollout and writes each down as soon as it is graded."""

    def __init__(self, benchmark: Benchmark, group: Group, progress: GroupProgress, patience: Patience) -> None:
        self.group = group
        self.failed = 0  # asked in vain, or not graded
        self._benchmark, self._progress, self._patience = benchmark, progress, patience
        self._graders = ThreadPoolExecutor(os.cpu_count())
        self._writer = ThreadPoolExecutor(1)  # one at a time
        self._pending: list[Future[bool]] = []

    def begin(self, tasks: int, done: int) -> None:
        """`done` of the tasks are done already."""
        self._progress.group(f"{self.group.benchmark} {self.group.setup} {self.group.seed}", tasks, done)

    def take(self, episode: Episode) -> None:
        """One episode has ended. Raises what went wrong with earlier ones, and UserError after too many failures."""
        self._collect([pending for pending in self._pending if pending.done()])
        self._pending.append(self._graders.submit(self._grade, episode))
        self._patience.take(episode)

    def close(self) -> None:
        """Wait until all is written. Raises what grading or writing raised."""
        self._graders.shutdown()
        self._writer.shutdown()
        self._collect(self._pending)

    def _collect(self, graded: Sequence[Future[bool]]) -> None:
        self._pending = [pending for pending in self._pending if pending not in graded]
        for done in graded:
            self.failed += done.result()

    def _grade(self, episode: Episode) -> bool:
        """Whether it failed."""
        outcome = grade_episode(self._benchmark, self.group.setup, self.group.seed, episode)
        self._writer.submit(self.group.append, episode, outcome).result()
        self._progress.done(outcome)
        return outcome.score.status == "failed"


def grade_episode(benchmark: Benchmark, setup: str, seed: int, episode: Episode) -> Outcome:
    """The outcome of one episode. One that failed or overran its deadline is not graded.

    An answer that is not there because its reply was cut by a token limit is "truncated", not "unparsed"; and some
    number of a cut reply that stands in for one is none, right or wrong.
    """
    scores = dict(benchmark.verifier.grade(episode.task, episode.answer if episode.status == "ok" else ""))
    if episode.status != "ok":
        scores = {measure: Score(0.0, status=episode.status) for measure in scores}
    elif _ended(episode, "error"):  # the endpoint gave no reply, or withheld it
        scores = {measure: Score(0.0, status="failed") for measure in scores}
    elif _ended(episode, "length", "context_overflow"):
        stands_in = "boxed" in scores and scores["boxed"].status == "unparsed"
        scores = {
            measure: replace(score, value=0.0, status="truncated")
            if score.status == "unparsed" or (stands_in and score.status == "ok")
            else score
            for measure, score in scores.items()
        }
    prompts = [turn.completion.prompt_tokens for turn in episode.turns]
    replies = [turn.completion.reply_tokens for turn in episode.turns]
    return Outcome(
        benchmark.name,
        setup,
        seed,
        episode.task.id,
        scores,
        len(episode.turns),
        _sum(prompts),
        _sum(replies),
        episode.seconds,
    )


def _ended(episode: Episode, *reasons: FinishReason) -> bool:
    """Whether the reply that became the answer ended for one of these reasons."""
    return any(turn.text == episode.answer and turn.completion.finish_reason in reasons for turn in episode.turns)


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
