"""What a benchmark is: where its rows are, and how one becomes a task."""

from abc import ABC, abstractmethod
from typing import ClassVar

from marti_ext.datasets.rows import Row
from marti_ext.types import Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.kinds import verifier_for


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
    """How many rows the CoMAS paper evaluates on (`--sample paper`); None: all, or the paper does not use it."""

    @abstractmethod
    def task(self, row: Row) -> Task:
        """The task of one row, prompt suffix included; its id is unique within the benchmark and stays the same
        whatever subset is loaded. Raises UserError naming a missing column and the columns found."""

    @property
    def verifier(self) -> Verifier:
        return verifier_for(self.kind)
