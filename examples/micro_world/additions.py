"""The task family of the micro world: additions of two two-digit numbers, some of them never trained on."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from marti_ext.types import Task

HELD_OUT = 500  # questions
# A wrong answer is off by one in the last or in the tens digit, so that a right one stays the likeliest of all.
SLIPS = (-10, -1, 1, 10)


def split() -> tuple[list[Task], list[Task]]:
    """(training questions, held-out questions), always the same.

    37+58 and 58+37 stand on the same side; of a held-out pair only one order is asked.
    """
    pairs = [(a, b) for a in range(10, 100) for b in range(a, 100)]
    random.Random(0).shuffle(pairs)
    held_out, training = pairs[:HELD_OUT], pairs[HELD_OUT:]
    both_orders = sorted({order for a, b in training for order in ((a, b), (b, a))})
    return [question(a, b) for a, b in both_orders], [question(a, b) for a, b in held_out]


def question(a: int, b: int) -> Task:
    """`37+58=` with the label 95, to be answered by `reply(95)`."""
    return Task(id=f"{a}+{b}", prompt=f"{a}+{b}=", label=str(a + b), kind="math")


def reply(answer: int | str) -> str:
    """An answer as the math verifier reads it."""
    return rf"\boxed{{{answer}}}"


def noisy_answer(task: Task, wrong_share: float, rng: random.Random) -> int:
    """The right answer, or with probability `wrong_share` one that is off by 1 or 10."""
    slip = rng.choice(SLIPS) if rng.random() < wrong_share else 0
    return int(task.label) + slip


def write_questions(path: Path, tasks: Sequence[Task]) -> None:
    """One JSON object a line, with the columns id, prompt and label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": task.id, "prompt": task.prompt, "label": task.label}) + "\n" for task in tasks]
    path.write_text("".join(lines), encoding="utf-8")
