"""Which verifier grades which kind of task."""

from functools import cache

from marti_ext.errors import UserError
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.math import MathVerifier

VERIFIERS: dict[str, type[Verifier]] = {"math": MathVerifier}


@cache
def verifier_for(kind: str) -> Verifier:
    """The verifier of a task kind. Raises UserError for a kind that none grades."""
    if kind not in VERIFIERS:
        raise UserError(f"no verifier grades tasks of kind {kind!r}; known: {', '.join(VERIFIERS)}")
    return VERIFIERS[kind]()
