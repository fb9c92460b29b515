"""What grades a text against a reference answer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from marti_ext.types import Score, Task


class Verifier(ABC):
    """Grades one text. Callable from any thread, any number of times at once."""

    measure: ClassVar[str] = "accuracy"
    """The name of what `verify` gives."""

    @abstractmethod
    def verify(self, task: Task, text: str) -> Score:
        """Compare the answer in `text` (thinking is ignored) with `task.label`; never raises for a bad text."""

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        """Every measure by its name, the one of `verify` first."""
        return {self.measure: self.verify(task, text)}

    @abstractmethod
    def read(self, task: Task, text: str) -> str:
        """The answer that `text` gives to the task, "" where it gives none."""

    @abstractmethod
    def agree(self, task: Task, one: str, other: str) -> bool:
        """Whether two answers, as `read` gives them, are the same: for votes. The label plays no part."""
