"""The sandbox as verifiers see it: programs in, verdicts out, from any thread."""

import glob
import json
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from marti_ext.verifiers.sandbox.confine import ALL_LAYERS
from marti_ext.verifiers.sandbox.limits import DEFAULT_LIMITS, Limits, Verdict
from marti_ext.verifiers.sandbox.request import request_parts
from marti_ext.verifiers.workers import WorkerError, WorkerPool

MODULE = "marti_ext.verifiers.sandbox.server"
# Equal for every program: hash seeds, and nothing of the user's environment.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_NEEDED = ("TMPDIR", "LD_LIBRARY_PATH")  # of the user's environment

_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class Sandbox:
    """Runs programs that nobody trusts, each in a process of its own under a judge of its own.

    The program only ever hands over data: tests run in the judge, so nothing that a program prints, patches or exits
    with makes it pass. `size` is how many run at once, by default one for each CPU; `layers` are those of `confine` to
    use where the machine has them. Works from any thread, asyncio executors and daemonic processes; a forked child
    starts servers of its own.
    """

    def __init__(self, size: int | None = None, layers: Collection[str] = ALL_LAYERS) -> None:
        if unknown := set(layers) - ALL_LAYERS:
            raise ValueError(f"layers must be of {sorted(ALL_LAYERS)}, found {sorted(unknown)}")
        environment = ENVIRONMENT | {name: os.environ[name] for name in _NEEDED if name in os.environ}
        self._folders = f"marti-sandbox-{secrets.token_hex(4)}-"  # how the names of the servers' folders begin
        arguments = (",".join(sorted(layers)), self._folders)
        self._pool = WorkerPool(MODULE, *arguments, size=size, environment=environment)
        _POOLS.add(self._pool)
        weakref.finalize(self, self._pool.close)  # at the latest when Python exits

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

        `prelude` is run before the tests, on their side. Names that the tests use and neither they nor the prelude nor
        Python define are the program's; so are `entry_points`, whoever else defines them. Arguments are handed over as
        copies: what a function does to them the tests do not see. Tests that use nothing of the program, or hand it
        functions of their own, come back ungraded; empty ones raise ValueError.
        """
        if not tests.strip():
            raise ValueError("no tests")
        secret = {"tests": tests, "prelude": prelude, "entry_points": list(entry_points)}
        return self._ask(program, [secret], limits, script=False)

    def run_cases(
        self,
        program: str,
        cases: Sequence[tuple[str, str]],
        *,
        tolerance: float | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Verdict:
        """Whether the program, run as a script once for each (input, output), prints the output and exits with 0.

        Blanks at line ends do not count; with `tolerance`, numbers may differ by it, absolutely or relatively. The
        limits are those of one case. Raises ValueError without a case: nothing would be tested.
        """
        if not cases:
            raise ValueError("no cases")
        secrets = [{"given": given, "expected": expected, "tolerance": tolerance} for given, expected in cases]
        return self._ask(program, secrets, limits, script=True)

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
        """End the servers; later calls come back ungraded."""
        self._pool.close()

    def _ask(self, program: str, secrets: Sequence[Any], limits: Limits, *, script: bool) -> Verdict:
        head = {"limits": asdict(limits), "runs": len(secrets), "script": script}
        seconds = len(secrets) * limits.patience + 30
        try:
            return Verdict(**json.loads(self._pool.ask(request_parts(head, program, secrets), seconds)))
        except (TimeoutError, WorkerError) as error:
            self._remove_folders()
            return Verdict(False, f"the sandbox failed: {error}", graded=False)

    def _remove_folders(self) -> None:
        """What servers that are gone left behind."""
        start = f"{tempfile.gettempdir()}/{self._folders}"
        for folder in glob.glob(f"{start}*"):
            server = folder.removeprefix(start).partition("-")[0]
            if not os.path.exists(f"/proc/{server}"):
                shutil.rmtree(folder, ignore_errors=True)


def _forget_all() -> None:
    for pool in _POOLS:
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
SANDBOX = Sandbox()
