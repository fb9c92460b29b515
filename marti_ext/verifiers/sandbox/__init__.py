"""Where programs run that nobody trusts."""

from marti_ext.verifiers.sandbox.limits import DEFAULT_LIMITS, Limits, Verdict
from marti_ext.verifiers.sandbox.pool import SANDBOX, Sandbox

__all__ = ["DEFAULT_LIMITS", "SANDBOX", "Limits", "Sandbox", "Verdict"]
