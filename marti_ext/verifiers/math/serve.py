"""The worker's side of `worker`: the only process that loads sympy."""

import json
import logging
import os
import resource
import sys
import time

from marti_ext.verifiers.math.compare import same
from marti_ext.verifiers.math.symbolic import UnreadableLabelError, same_expression
from marti_ext.verifiers.math.worker import MEMORY_LIMIT, Verdict


def serve() -> None:
    """The worker's loop: one request a line until the parent closes the pipe, also by dying."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # Math-Verify warns that its timeouts are off
    with os.fdopen(os.dup(1), "wb", buffering=0) as replies:
        os.dup2(2, 1)  # whatever a library prints must not look like a verdict
        replies.write(b"ready\n")
        for line in sys.stdin.buffer:
            request = json.loads(line)
            _limit_cpu(request["seconds"])
            try:
                verdict: Verdict = "equal" if same(request["gold"], request["pred"], same_expression) else "different"
            except UnreadableLabelError:
                verdict = "no_label"
            except MemoryError:
                os._exit(1)  # without a traceback, and without trust in what is left
            replies.write(f"{verdict}\n".encode())


def _limit_cpu(seconds: float) -> None:
    """Let the kernel end this process if it computes on after its parent has died."""
    used = time.process_time()
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 2, hard))


if __name__ == "__main__":
    serve()
