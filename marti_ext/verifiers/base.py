"""What grades a text against a reference answer."""

from abc import ABC, abstractmethod

from marti_ext.types import Score, Task


class Verifier(ABC):
    """Grades one text. Callable from any thread, any number of times at once."""

    @abstractmethod
    def verify(self, task: Task, text: str) -> Score:
        """Compare the answer in `text` (thinking is ignored) with `task.label`; never raises for a bad text."""
