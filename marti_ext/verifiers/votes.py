"""Majority votes over answers, by the verifier's own equivalence."""

from collections.abc import Sequence

from marti_ext.types import Task
from marti_ext.verifiers.base import Verifier


def clusters(verifier: Verifier, task: Task, texts: Sequence[str]) -> list[list[int]]:
    """The places of the texts that give the same answer, in input order; texts without an answer are in none.

    Each answer is compared with the first one of every cluster.
    """
    found: list[tuple[str, list[int]]] = []
    for place, answer in enumerate(verifier.read(task, text) for text in texts):
        if not answer:
            continue
        home = next((members for first, members in found if _same(verifier, task, first, answer)), None)
        if home is None:
            found.append((answer, [place]))
        else:
            home.append(place)
    return [members for _, members in found]


def _same(verifier: Verifier, task: Task, one: str, other: str) -> bool:
    """Whether two answers are one; spelled alike they are, though a verifier might run out of time over it."""
    return one == other or verifier.agree(task, one, other)


def majority(verifier: Verifier, task: Task, texts: Sequence[str]) -> int | None:
    """The place of the winning answer's first text, None where no text has an answer.

    No answer never wins; a tie goes to the answer that comes first.
    """
    found = clusters(verifier, task, texts)
    return max(found, key=len)[0] if found else None
