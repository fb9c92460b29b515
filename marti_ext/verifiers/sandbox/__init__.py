"""Where programs run that nobody trusts."""

from marti_ext.verifiers.sandbox.confine import ALL_LAYERS
from marti_ext.verifiers.sandbox.limits import DEFAULT_LIMITS, Limits, Verdict
from marti_ext.verifiers.sandbox.pool import SANDBOX, Sandbox

__all__ = ["ALL_LAYERS", "DEFAULT_LIMITS", "SANDBOX", "Limits", "Sandbox", "Verdict"]
