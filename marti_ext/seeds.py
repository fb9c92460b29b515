"""Seeds that depend on what they are for, never on when: a run resumes without generator state."""

import hashlib


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from what it is for, for example `derive_seed(run_seed, step, task.id)`; the same everywhere."""
    digest = hashlib.blake2b("\x1f".join(map(repr, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
