"""What a benchmark is: where its rows are, and how one becomes a task."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.choice import LETTERS
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.verifiers.math import MathVerifier
from marti_ext.verifiers.numeric import NumericVerifier

BOX = "Reason step by step, and put the final answer in \\boxed{}."
LETTER = "Reason step by step, and put the letter of the right option in \\boxed{}."
ONE_BLOCK = "Reply with the whole program in exactly one ```python block."


class Benchmark(ABC):
    """One benchmark; each has a small file of its own in `benchmarks/`."""

    name: ClassVar[str]
    hub: ClassVar[str]
    """The data set's name on the Hugging Face hub."""
    subset: ClassVar[str | None] = None
    split: ClassVar[str] = "test"
    kind: ClassVar[str]
    """The kind of its tasks, which says how replies are verified."""
    version: ClassVar[str] = "1"
    """Raised when prompt or grading change so that results no longer compare; stands in every result."""
    paper_size: ClassVar[int | None] = None
    """How many rows the CoMAS paper evaluates on (`--sample paper`); None where it does not use the benchmark."""

    @abstractmethod
    def task(self, row: Row) -> Task:
        """The task of one row, prompt suffix included; its id is unique within the benchmark and stays the same
        whatever subset is loaded. Raises UserError naming a missing column and the columns found."""

    def has(self, row: Row) -> bool:
        """Whether the row is of this benchmark: a file may hold more."""
        del row
        return True

    @property
    def verifier(self) -> Verifier:
        return verifier_for(self.kind)

    @staticmethod
    def id_of(text: str, prefix: str = "") -> str:
        """An id for a row without one: of what it says, since row numbers change with subsets."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{prefix}-{digest}" if prefix else digest


class MathBenchmark(Benchmark):
    """Answers in LaTeX. One without a box is looked for by markers and numbers; `boxed` counts boxes alone."""

    kind = "math"

    def math_task(self, problem: str, label: str, id: str = "") -> Task:
        problem = problem.strip()
        return Task(id or self.id_of(problem), f"{problem}\n\n{BOX}", label, self.kind)

    @property
    def verifier(self) -> Verifier:
        return MathVerifier(require_box=False)


class NumericBenchmark(Benchmark):
    """A number within a tolerance; boxes as for MathBenchmark."""

    kind = "numeric"
    version = f"1, {NumericVerifier().version}"  # the public scorers of such benchmarks have changed over time

    @property
    def verifier(self) -> Verifier:
        return NumericVerifier(require_box=False)


class ChoiceBenchmark(Benchmark):
    """One of several options, (A) and on."""

    kind = "choice"

    def choice_task(self, question: str, choices: Sequence[str], right: int, prefix: str = "") -> Task:
        """`right` is the place of the right option. Option texts stay as they are."""
        if not 2 <= len(choices) <= len(LETTERS):
            raise UserError(
                f"{self.name}: {len(choices)} choices of {question!r:.60}: there must be 2 to {len(LETTERS)}"
            )
        letters = LETTERS[: len(choices)]
        options = "\n".join(f"({letter}) {choice}" for letter, choice in zip(letters, choices, strict=True))
        return Task(
            self.id_of("\n".join([question, *sorted(choices)]), prefix),
            f"{question}\n\n{options}\n\n{LETTER}",
            letters[right],
            self.kind,
            {"choices": list(choices)},
        )


class CodeBenchmark(Benchmark):
    """Python programs, run in the sandbox. `label` is a right program."""

    kind = "code"

    def function_task(
        self, id: str, prompt: str, solution: str, *, entry_point: str, tests: str, prelude: str = ""
    ) -> Task:
        """`tests` is Python that raises if the program is wrong; `prelude` is what the prompt itself defines."""
        metadata: dict[str, Any] = {"entry_point": entry_point, "prelude": prelude, "tests": tests}
        return Task(id, f"{prompt}\n\n{ONE_BLOCK}", solution, self.kind, metadata)
