"""Is this the same mathematical answer? Exact where numbers are plain, with computer algebra where they are not."""

from marti_ext.verifiers.math.verifier import MathVerifier, equivalent

__all__ = ["MathVerifier", "equivalent"]
