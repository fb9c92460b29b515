"""The sandbox as verifiers see it: programs in, verdicts out, from any thread."""

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from marti_ext.verifiers.sandbox.confine import LAYERS
from marti_ext.verifiers.sandbox.limits import DEFAULT_LIMITS, Limits, Verdict
from marti_ext.verifiers.workers import WorkerError, WorkerPool, shared_pool

MODULE = "marti_ext.verifiers.sandbox.server"
# Equal for every program: hash seeds, and nothing of the user's environment.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_SLACK = 60.0  # seconds after which a server that should have answered is given up


class Sandbox:
    """Runs programs that nobody trusts, each in a process of its own under a judge of its own.

    The program only ever hands over data: tests run in the judge, so nothing that a program prints, patches or exits
    with makes it pass. `layers` are those of `confine` to use where the machine has them.
    """

    def __init__(self, pool: WorkerPool | None = None, *, layers: Collection[str] = LAYERS, size: int | None = None):
        self._pool = pool or WorkerPool(MODULE, ",".join(layers) or "none", size=size, environment=environment())

    def run_tests(
        self,
        program: str,
        tests: str,
        *,
        prelude: str = "",
        entry_points: Sequence[str] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> Verdict:
        """Whether the tests, Python that raises if something is wrong, run to their end.

        `prelude` is run before the tests, on their side. Names that the tests use and neither they nor the prelude
        define are the program's; so are `entry_points`, whoever else defines them.
        """
        return self._ask(
            {"program": program, "tests": tests, "prelude": prelude, "entry_points": list(entry_points)}, limits, 1
        )

    def run_cases(
        self,
        program: str,
        cases: Sequence[tuple[str, str]],
        *,
        tolerance: float | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Verdict:
        """Whether the program, run as a script once for each (input, output), prints the output.

        Blanks at line ends do not count; with `tolerance`, numbers may differ by it, absolutely or relatively. The
        limits are those of one case. Raises ValueError without a case: nothing would be tested.
        """
        if not cases:
            raise ValueError("no cases")
        return self._ask(
            {"program": program, "cases": [list(case) for case in cases], "tolerance": tolerance}, limits, len(cases)
        )

    def in_force(self) -> Mapping[str, str]:
        """{layer: what it does here}, "missing: why" for one that the machine does not allow."""
        state: dict[str, str] = json.loads(self._pool.greeting())
        return state

    def missing(self) -> list[str]:
        """The layers that are not in force."""
        return [layer for layer, state in self.in_force().items() if state.startswith("missing")]

    def pids(self) -> list[int]:
        """The process ids of the servers."""
        return self._pool.pids()

    def close(self) -> None:
        """End the servers; later calls fail."""
        self._pool.close()

    def _ask(self, request: Mapping[str, Any], limits: Limits, runs: int) -> Verdict:
        before = self.pids()
        try:
            reply = self._pool.ask({**request, "limits": asdict(limits)}, _SLACK + runs * limits.wall_seconds * 5)
            return Verdict(**json.loads(reply))
        except (TimeoutError, WorkerError) as error:
            _remove_folders({*before, *self.pids()})
            return Verdict(False, f"the sandbox failed: {error}", graded=False)


def environment() -> dict[str, str]:
    """That of the servers; the folder for temporary files may be somewhere else than /tmp."""
    return ENVIRONMENT | {name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}


def _remove_folders(pids: Collection[int]) -> None:
    """What servers that are gone left behind."""
    for pid in pids:
        if not os.path.exists(f"/proc/{pid}"):
            for folder in glob.glob(f"{tempfile.gettempdir()}/marti-sandbox-{pid}-*"):
                shutil.rmtree(folder, ignore_errors=True)


SANDBOX = Sandbox(shared_pool(MODULE, ",".join(LAYERS), environment=environment()))
