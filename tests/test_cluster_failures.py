"""What becomes of a run on a cluster whose processes are killed: real ones, by real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tiny_models import ROOT, tiny_llama
from transformers import AutoModelForCausalLM

from marti_ext.build import build_plan
from marti_ext.config_file import check_config
from marti_ext.records import read_rows

NO_HANG = 60.0  # seconds in which a run has to end once a process of it is lost
QUESTION = {"prompt": "question"}
MARK = "MARTI_EXT_TEST_RUN"  # in the environment of every process of a run, however it was started


@dataclass
class Command:
    """`marti-ext train` in processes of its own; what it prints goes to `output`."""

    config: Path
    mark: str
    overrides: list[str]
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def output(self) -> Path:
        return self.config.with_name(f"{self.mark}.txt")

    def __enter__(self) -> "Command":
        command = [sys.executable, "-m", "marti_ext.cli", "train", str(self.config), *self.overrides]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, MARK: self.mark}, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self.processes():
            process.kill()
        self.process.wait()

    def processes(self, title: str = "") -> list[psutil.Process]:
        """Those of this run that are not dead, whose title begins so."""
        return [process for process in psutil.process_iter() if self._is_ours(process, title)]

    def _is_ours(self, process: psutil.Process, title: str) -> bool:
        try:
            ours = process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
            return ours and " ".join(process.cmdline()).startswith(title)
        except psutil.Error:
            return False

    def soon(self, condition: Callable[[], Any], seconds: float = 240.0) -> Any:
        """What `condition` gives once it gives something, while the command runs."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited in vain: {self.output.read_text()}"
            assert self.process.poll() is None, f"ended before its time: {self.output.read_text()}"
            time.sleep(0.05)
        return found

    def ends(self) -> tuple[int, str]:
        """(exit status, the last line that it printed), within NO_HANG."""
        return self.process.wait(timeout=NO_HANG), self.output.read_text().strip().splitlines()[-1]

    def leaves_nothing(self, titles: Sequence[str] = ("",)) -> bool:
        """Whether no such process of the ended command lives on, within NO_HANG."""
        deadline = time.monotonic() + NO_HANG
        while any(self.processes(title) for title in titles):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("failures")
    return {
        "run_dir": str(folder / "run"),
        "seed": 1,
        "steps": 12,
        "backend": "openrlhf",
        "data": {"shuffle": True, "sources": [{"path": f"{ROOT}/examples/data/word_problems.jsonl"} | QUESTION]},
        "agents": [{"name": "ada", "policy": "llama"}],
        "policies": {"llama": {"model": str(tiny_llama(folder / "llama")), "context_window": 4096}},
        "sampling": {"max_tokens": 48},
        "workflow": {"name": "comas", "rounds": 2},
        "reward": {"name": f"{ROOT}/tests/plugins/digits.py:DigitShare"},
        "training": {"learning_rate": 0.001, "batch_size": 4, "micro_batch_size": 2},
        "rollout": {"tasks_per_step": 4},
    }


@pytest.mark.slow
def test_a_run_whose_engine_actor_or_driver_is_killed_ends_soon_and_goes_on_with_the_next_tasks(
    config: dict[str, Any], tmp_path: Path
) -> None:
    file, run = tmp_path / "config.yaml", Path(config["run_dir"])
    file.write_text(yaml.safe_dump(config))

    def steps_done() -> int:
        return max((int(path.name[5:]) for path in run.glob("checkpoints/step-*")), default=0)

    with Command(file, "first", ["cluster.max_restarts=1"]) as first:
        first.soon(lambda: steps_done() >= 1)
        [engine, *_] = first.soon(lambda: first.processes("ray::EngineProcess.generate"))
        [core] = [child for child in engine.children() if child.cmdline()[0].startswith("VLLM::EngineCore")]
        core.kill()
        done = steps_done()
        first.soon(lambda: steps_done() > done)  # restarted by itself
        first.process.kill()
        assert first.leaves_nothing(["ray::PolicyProcess", "ray::EngineProcess", "VLLM"])
    done = steps_done()
    with Command(file, "second", ["cluster.async_rollout=true"]) as second:
        second.soon(lambda: steps_done() >= done + 2)
        [actor, *_] = second.soon(lambda: second.processes("ray::PolicyProcess.fit"))
        actor.kill()
        status, words = second.ends()
        assert status == 1
        assert words.startswith("marti-ext: policy 'llama': ")
        assert second.leaves_nothing()
    steps = steps_done()
    with Command(file, "third", []) as third:
        third.soon(lambda: third.processes("ray::EngineProcess"))
        third.process.send_signal(signal.SIGINT)
        status, words = third.ends()
        assert (status, words) == (130, "marti-ext: stopped; the same command goes on from the last checkpoint")
        assert third.leaves_nothing()

    AutoModelForCausalLM.from_pretrained(run / f"checkpoints/step-{steps:05d}/llama")
    stream = build_plan(check_config(config)).stream
    metrics = read_rows(run / "metrics.jsonl")
    assert [row["step"] for row in metrics[:steps]] == list(range(steps))  # each step once
    # The first step after a start has no step before it to be rolled out beside.
    assert [row["staleness"] for row in metrics[done : done + 2]] == [0, 1]
    for step in range(steps):
        episodes = [json.loads(line) for line in (run / f"episodes-{step:05d}.jsonl").open()]
        assert [episode["task"]["id"] for episode in episodes] == [task.id for task in stream.batch(step, 4)]


@pytest.fixture
def small_cluster() -> Iterator[str]:
    """The address of a Ray cluster of one GPU, in name only."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-gpus=1", f"--port={port}"]
    options = ["--include-dashboard=false", "--disable-usage-stats"]
    # Not in Ray's own folder, where each later start would look for the cluster to join. Sockets want short paths.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen([*start, *options, f"--temp-dir={folder}"], stdout=subprocess.PIPE) as ray,
    ):
        assert ray.stdout is not None
        assert any(b"Ray runtime started" in line for line in ray.stdout)
        yield f"127.0.0.1:{port}"
        ray.terminate()
        ray.stdout.read()


@pytest.mark.slow
def test_a_plan_that_the_cluster_has_no_room_for_is_refused_and_nothing_is_written(
    config: dict[str, Any], tmp_path: Path, small_cluster: str
) -> None:
    file, run = tmp_path / "config.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(config | {"run_dir": str(run)}))
    with Command(file, "refused", [f"cluster.address={small_cluster}"]) as refused:
        status, words = refused.ends()
    needs = "the run needs 2 GPUs (llama: 1 for its engine, llama: 1 for its actor), but the cluster has 1 free"
    assert (status, words) == (2, f"marti-ext: {needs}")
    assert not run.exists()
