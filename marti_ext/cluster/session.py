"""A Ray cluster joined or started for one run, and a watch over the run's processes."""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from marti_ext.cluster.placement import NodeResources
from marti_ext.errors import LostProcessError, UserError

PING_SECONDS = 2.0
PLACING_SECONDS = 60.0  # what was found free may have gone to somebody else in between
# As openrlhf.cli.train_ppo_ray starts Ray; a value of the user's own stands.
WORKER_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}


@dataclass(frozen=True, eq=False)
class _Process:
    label: str
    actor: Any


class Session:
    """Ray for the time of a run: started here or joined, left without a process of ours.

    Every actor that is `watched` is asked again and again whether it lives. When one does not, all are ended, so that
    nobody waits for it, and `failed` names it.
    """

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        self._groups: list[PlacementGroup] = []
        self._lost: str | None = None
        self._closing = threading.Event()

    @contextmanager
    def opened(self, address: str | None, *, logical: int | None = None) -> Iterator[None]:
        """Join the cluster at `address`, or start one here; with `logical` it has that many GPUs in name only."""
        options: dict[str, Any] = {"address": address} if address else {"address": "local", "include_dashboard": False}
        if logical is not None and not address:
            options |= {"num_gpus": logical, "num_cpus": max(logical, os.cpu_count() or 1)}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's next default; it warns of the old one
        environment = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
        try:
            ray.init(
                **options,
                runtime_env={"env_vars": environment},
                log_to_driver=False,
                logging_level=logging.WARNING,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"cluster.address {address!r}: no Ray cluster to join there: {reason}") from error
        watch = threading.Thread(target=self._watch, name="watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._closing.set()
            self._end_all()
            for group in self._groups:
                with contextlib.suppress(RayError):
                    remove_placement_group(group)
            watch.join(timeout=2 * PING_SECONDS)
            ray.shutdown()

    @property
    def log_folder(self) -> str:
        """Where Ray keeps what the processes print."""
        return str(ray._private.worker._global_node.get_logs_dir_path())

    def free(self) -> list[NodeResources]:
        """What each node of the cluster has free."""
        available = ray._private.state.available_resources_per_node()
        return [NodeResources(node.get("GPU", 0.0), node.get("CPU", 0.0)) for node in available.values()]

    def group(self, bundles: int) -> PlacementGroup:
        """Places of one GPU and one CPU each, packed onto few nodes. Raises UserError where they are not to be had."""
        group = placement_group([{"GPU": 1, "CPU": 1}] * bundles, strategy="PACK")
        self._groups.append(group)
        if not group.wait(PLACING_SECONDS):
            raise UserError(f"{bundles} GPUs were free but could not be had within {PLACING_SECONDS:.0f} s")
        return group

    def watched(self, label: str, actors: Sequence[Any]) -> None:
        """Watch over actors from now on; each has a method `pid`."""
        self._processes += [_Process(f"{label} {place}", actor) for place, actor in enumerate(actors)]

    def forget(self, actors: Sequence[Any]) -> None:
        """End actors and watch them no longer."""
        self._processes = [process for process in self._processes if process.actor not in actors]
        for actor in actors:
            ray.kill(actor)

    def failed(self, label: str) -> Callable[[BaseException], LostProcessError]:
        """From an error met in the processes of `label` to one line on the process that was lost first."""

        def explain(error: BaseException) -> LostProcessError:
            return LostProcessError(f"{self._lost or f'{label}: {_reason(error)}'} (its words: {self.log_folder})")

        return explain

    def wait(self, label: str, references: Sequence[Any]) -> list[Any]:
        """The results of remote calls. Raises LostProcessError."""
        try:
            return list(ray.get(list(references)))
        except RayError as error:
            raise self.failed(label)(error) from error

    def _watch(self) -> None:
        waiting: dict[Any, _Process] = {}
        while not self._closing.wait(PING_SECONDS):
            asked = set(waiting.values())
            waiting |= {p.actor.pid.remote(): p for p in self._processes if p not in asked}
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=PING_SECONDS) if waiting else ([], [])
            for reference in ready:
                process = waiting.pop(reference)
                try:
                    ray.get(reference)
                except RayError as error:
                    if process in self._processes and not self._closing.is_set():
                        self._lost = self._lost or f"{process.label} died: {_reason(error)}"
                        self._end_all()
                        return

    def _end_all(self) -> None:
        for process in self._processes:
            with contextlib.suppress(RayError):
                ray.kill(process.actor)


def _reason(error: BaseException) -> str:
    """The line of an error that says what went wrong: Ray's text holds the traceback of the other process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return raised[-1] if raised else f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
