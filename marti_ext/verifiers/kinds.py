"""Which verifier grades which kind of task."""

from functools import cache
from importlib import import_module

from marti_ext.errors import UserError
from marti_ext.registry import nearest
from marti_ext.verifiers.base import Verifier

# By place: only the module of a kind that is graded is imported.
VERIFIERS = {
    "math": "marti_ext.verifiers.math:MathVerifier",
    "choice": "marti_ext.verifiers.choice:ChoiceVerifier",
    "numeric": "marti_ext.verifiers.numeric:NumericVerifier",
    "science": "marti_ext.verifiers.numeric:NumericVerifier",  # numeric to a verifier; what agents are told differs
    "hotpotqa": "marti_ext.verifiers.hotpotqa:HotpotQAVerifier",
    "drop": "marti_ext.verifiers.drop:DropVerifier",
    "code": "marti_ext.verifiers.code:CodeVerifier",
}


@cache
def verifier_for(kind: str) -> Verifier:
    """The verifier of a task kind. Raises UserError for a kind that none grades."""
    if kind not in VERIFIERS:
        raise UserError(f"no verifier grades tasks of kind {kind!r}: {nearest(kind, VERIFIERS)}")
    module, _, name = VERIFIERS[kind].partition(":")
    built = getattr(import_module(module), name)()
    assert isinstance(built, Verifier)
    return built
