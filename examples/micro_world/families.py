"""The task families of the laboratory: small questions with one right answer and wrong ones close to it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from additions import SLIPS

from marti_ext.types import Task


@dataclass(frozen=True)
class Family:
    """How one kind of question is asked, and which wrong answers are near the right one.

    `ask` draws (question, right answer); `slip` draws a wrong answer. There are several slips, so that a right answer
    stays the likeliest of all where half of them are wrong.
    """

    ask: Callable[[random.Random], tuple[str, str]]
    slip: Callable[[str, str, random.Random], str]


def _addition(rng: random.Random) -> tuple[str, str]:
    """Two digits each and nothing to carry, so that a model of three layers learns to check one as well."""
    tens, units = rng.randrange(2, 10), rng.randrange(10)
    right = 10 * tens + units
    a = 10 * rng.randrange(1, tens) + rng.randrange(units + 1)
    return f"{a}+{right - a}=", str(right)


def _comparison(rng: random.Random) -> tuple[str, str]:
    digits = _four_digits(rng)
    return f"max({digits})=", max(digits)


def _modular(rng: random.Random) -> tuple[str, str]:
    a = rng.randrange(100, 1000)
    return f"{a}%5=", str(a % 5)


def _sorting(rng: random.Random) -> tuple[str, str]:
    digits = _four_digits(rng)
    return f"sort({digits})=", "".join(sorted(digits))


def _off_by_one_or_ten(question: str, right: str, rng: random.Random) -> str:
    return str(int(right) + rng.choice(SLIPS))


def _another_digit(question: str, right: str, rng: random.Random) -> str:
    return rng.choice([digit for digit in question if digit.isdecimal() and digit != right])


def _another_remainder(question: str, right: str, rng: random.Random) -> str:
    return str((int(right) + rng.randrange(1, 5)) % 5)


def _neighbours_swapped(question: str, right: str, rng: random.Random) -> str:
    place = rng.randrange(len(right) - 1)
    return right[:place] + right[place + 1] + right[place] + right[place + 2 :]


def _four_digits(rng: random.Random) -> str:
    return "".join(rng.sample("123456789", 4))


FAMILIES: Mapping[str, Family] = {
    "addition": Family(_addition, _off_by_one_or_ten),
    "comparison": Family(_comparison, _another_digit),
    "modular": Family(_modular, _another_remainder),
    "sorting": Family(_sorting, _neighbours_swapped),
}


def split(training: int = 560, held_out: int = 100) -> tuple[list[Task], list[Task]]:
    """(training questions, held-out questions): so many of each family, always the same, and none in both."""
    rng = random.Random(0)
    train: list[Task] = []
    test: list[Task] = []
    for name, family in FAMILIES.items():
        asked: dict[str, str] = {}
        while len(asked) < training + held_out:
            asked.setdefault(*family.ask(rng))
        tasks = [
            Task(id=question, prompt=question, label=right, kind="math", metadata={"family": name})
            for question, right in asked.items()
        ]
        test += tasks[:held_out]
        train += tasks[held_out:]
    return train, test


def answer(task: Task, wrong_share: float, rng: random.Random) -> str:
    """The right answer, or with probability `wrong_share` a wrong one that is near it."""
    if rng.random() >= wrong_share:
        return task.label
    return FAMILIES[task.metadata["family"]].slip(task.prompt, task.label, rng)
