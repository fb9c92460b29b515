"""Programs out of replies, run against a benchmark's tests."""

from marti_ext.verifiers.code.verifier import CodeVerifier

__all__ = ["CodeVerifier"]
