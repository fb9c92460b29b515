"""The processes that run computer algebra: any comparison may hang or eat memory."""

from typing import Literal, cast

from marti_ext.verifiers.workers import WorkerPool, shared_pool

MODULE = "marti_ext.verifiers.math.serve"
MEMORY_LIMIT = 2 * 1024**3  # bytes of address space of one worker

Verdict = Literal["equal", "different", "no_label"]

POOL = shared_pool(MODULE)


def compare(pool: WorkerPool, gold: str, pred: str, seconds: float) -> Verdict:
    """A worker's verdict on two answers in normal form; "no_label" where the reference cannot be parsed.

    `seconds` is wall-clock time. Raises TimeoutError (the worker is killed) and WorkerError.
    """
    return cast(Verdict, pool.ask({"gold": gold, "pred": pred, "seconds": seconds}, seconds))  # as `serve` writes it
