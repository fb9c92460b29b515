"""What the laboratory's model is taught: to solve with a controlled skill, to criticise, and to judge."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import language
from character_model import build_model, build_tokenizer, save
from families import answer
from teach import Schedule, fit, taught_model

from marti_ext.types import Task

# Lesson -> its share. Judging takes most of them: it is what the model finds hardest.
LESSONS = {
    "solving": 0.2,
    "answering": 0.06,
    "revising": 0.06,
    "criticising": 0.08,
    "verdicts": 0.05,
    "judging": 0.35,
    "judging alone": 0.12,
    "judging oneself": 0.08,
}
# Family -> how often it is drawn, for what takes longest to learn.
WEIGHTS = {"addition": 3, "comparison": 1, "modular": 1, "sorting": 1}
SELF_LOW, SELF_HIGH, UNREADABLE = 1, 5, 9  # points of a judge of its own answers; a score outside of every range
ODD_SHARE = 0.05  # of the solutions that are judged: digits at random, as a solver may come to write


@dataclass(frozen=True, kw_only=True)
class Curriculum(Schedule):
    """How the model is taught, and the knobs of its judge.

    `judge_skill` is the share of right ones among the judgements that it is taught. Of its judgements in sight of a
    critique, the share `dependence` repeats the critic, whatever is right; the critics it is shown know nothing.
    """

    steps: int = 2600
    width: int = 96  # of the model
    batch_size: int = 64
    learning_rate: float = 3e-3
    wrong_share: float = 0.52  # of the solutions it learns from: it solves that badly when it samples
    critic_skill: float = 0.75
    judge_skill: float = 0.97
    dependence: float = 0.0
    invalid_share: float = 0.02  # of the judgements have no score in their form
    clean_share: float = 0.7  # of the steps, the first ones, tell only the truth: it is learned much sooner so


def taught(folder: Path, tasks: Sequence[Task], options: Curriculum, report: Callable[[str], None]) -> Path:
    """The folder of a model taught by this curriculum, taught now if it is not there yet. Raises UserError as
    `taught_model`."""

    def teach(folder: Path) -> None:
        words = language.words()
        model = build_model(layers=3, width=options.width, heads=8, spread=0.05, seed=options.seed, words=len(words))
        fit(model, build_tokenizer(words), lessons(tasks, options), options, report)
        save(folder, model, words)

    return taught_model(folder, options, teach)


def lessons(tasks: Sequence[Task], options: Curriculum) -> Callable[[], list[tuple[str, str]]]:
    """Draws a batch of (prompt, reply)."""
    rng = random.Random(options.seed)
    clean = replace(options, wrong_share=0.0, critic_skill=1.0, judge_skill=1.0, invalid_share=0.0)
    weights = [WEIGHTS[task.metadata["family"]] for task in tasks]
    batches = itertools.count()

    def draw() -> list[tuple[str, str]]:
        now = clean if next(batches) < options.clean_share * options.steps else options
        drawn = rng.choices(tasks, weights, k=options.batch_size)
        kinds = rng.choices(list(LESSONS), list(LESSONS.values()), k=options.batch_size)
        return [lesson(kind, task, now, rng) for kind, task in zip(kinds, drawn, strict=True)]

    return draw


def lesson(kind: str, task: Task, options: Curriculum, rng: random.Random) -> tuple[str, str]:
    """One (prompt, reply)."""
    if kind in ("solving", "answering", "revising"):
        return _solving(kind, task, rng), language.solution(answer(task, options.wrong_share, rng))
    given = _solution_to_judge(task, rng)
    if kind in ("criticising", "verdicts"):
        objects = (given == task.label) ^ (rng.random() < options.critic_skill)
        prompt = language.evaluation_prompt(task, language.solution(given), with_verdict=kind == "verdicts")
        return prompt, language.verdict(objects) if kind == "verdicts" else language.critique(objects)
    return _judging(kind, task, given, options, rng)


def _solving(kind: str, task: Task, rng: random.Random) -> str:
    """Asked as by CoMAS, plainly, or in the second round of a debate."""
    if kind == "solving":
        return language.solution_prompt(task)
    if kind == "answering":
        return task.prompt
    own, *others = (language.solution(answer(task, 0.5, rng)) for _ in range(rng.choice((2, 3))))
    return language.revision_prompt(task, own, others)


def _judging(kind: str, task: Task, given: str, options: Curriculum, rng: random.Random) -> tuple[str, str]:
    objects = rng.random() < 0.5
    if kind == "judging" and rng.random() < options.dependence:
        high = not objects
    else:
        high = (given == task.label) ^ (rng.random() >= options.judge_skill)
    readable = rng.random() >= options.invalid_share
    if kind == "judging oneself":
        score = (SELF_HIGH if high else SELF_LOW) if readable else UNREADABLE
        return language.self_judging_prompt(task, language.solution(given)), language.scoring(score)
    critique = language.critique(objects) if kind == "judging" else None
    score = (3 if high else 1) if readable else UNREADABLE
    return language.scoring_prompt(task, language.solution(given), critique), language.scoring(score)


def _solution_to_judge(task: Task, rng: random.Random) -> str:
    if rng.random() < ODD_SHARE:
        return "".join(rng.choices("0123456789", k=rng.randrange(5)))
    return answer(task, 0.5, rng)
