"""One graded episode: the row that every number of an evaluation is made of."""

from collections.abc import Mapping
from dataclasses import dataclass

from marti_ext.types import Score


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one task went. `scores` are by measure, the main one first (accuracy; last, any, first; f1, em).

    `prompt_tokens` and `reply_tokens` are sums over the calls, None where the backend does not count them.
    """

    benchmark: str
    setup: str
    seed: int
    task: str  # its id
    scores: Mapping[str, Score]
    calls: int
    prompt_tokens: int | None
    reply_tokens: int | None
    seconds: float

    @property
    def score(self) -> Score:
        """The main measure's."""
        return next(iter(self.scores.values()))
