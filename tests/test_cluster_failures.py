"""What becomes of a run on a cluster whose processes are killed: real ones, by real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tiny_models import ROOT, tiny_llama

from marti_ext.build import build_plan
from marti_ext.config_file import check_config
from marti_ext.records import read_rows

NO_HANG = 60.0  # seconds in which a run has to end once a process of it is lost
QUESTION = {"prompt": "question"}
MARK = "MARTI_EXT_TEST_RUN"  # in the environment of every process of a run, however it was started


@dataclass
class Command:
    """`marti-ext train` in processes of its own."""

    config: Path
    mark: str
    overrides: list[str]
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> "Command":
        command = [sys.executable, "-m", "marti_ext.cli", "train", str(self.config), *self.overrides]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, MARK: self.mark}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
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

    def ends(self) -> tuple[int, str]:
        """(exit status, the last line that it printed), within NO_HANG."""
        output, _ = self.process.communicate(timeout=NO_HANG)
        return self.process.returncode, output.strip().splitlines()[-1]


def soon(condition: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What `condition` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("failures")
    yield {
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
        soon(lambda: steps_done() >= 1)
        [engine, *_] = soon(lambda: first.processes("ray::EngineProcess.generate"))
        [core] = [child for child in engine.children() if child.cmdline()[0].startswith("VLLM::EngineCore")]
        core.kill()
        done = steps_done()
        soon(lambda: steps_done() > done)  # restarted by itself
        [actor, *_] = soon(lambda: first.processes("ray::PolicyProcess.fit"))
        actor.kill()
        status, words = first.ends()
        assert status == 1
        assert words.startswith("marti-ext: policy 'llama': ")
        soon(lambda: not first.processes(), NO_HANG)
    done = steps_done()
    with Command(file, "second", []) as second:
        soon(lambda: steps_done() > done)
        soon(lambda: second.processes("ray::PolicyProcess.fit"))
        second.process.kill()
        soon(lambda: not [*second.processes("ray::PolicyProcess"), *second.processes("VLLM")], NO_HANG)
    done = steps_done()
    with Command(file, "third", []) as third:
        soon(lambda: steps_done() > done)
        third.process.send_signal(signal.SIGINT)
        status, words = third.ends()
        assert (status, words) == (130, "marti-ext: stopped; the same command goes on from the last checkpoint")
        soon(lambda: not third.processes(), NO_HANG)

    stream = build_plan(check_config(config)).stream
    metrics = [row["step"] for row in read_rows(run / "metrics.jsonl")]
    assert metrics[: steps_done()] == list(range(steps_done()))  # each step once
    for step in range(steps_done()):
        episodes = [json.loads(line) for line in (run / f"episodes-{step:05d}.jsonl").open()]
        assert [episode["task"]["id"] for episode in episodes] == [task.id for task in stream.batch(step, 4)]
