"""Programs out of replies, and whether they pass."""

from marti_ext.verifiers.code.verifier import CodeVerifier

__all__ = ["CodeVerifier"]
