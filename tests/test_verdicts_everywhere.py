"""A verdict depends on the reply alone: not on the thread, the process or the Ray actor that asks for it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.gold import gold_reply, wrong_reply
from evaluation.load import FIXTURES, load_benchmark


def verdicts(name: str) -> list[Any]:
    """Of right, wrong, empty and cut replies to the benchmark's fixtures, by every measure."""
    benchmark = BENCHMARKS[name]
    tasks = load_benchmark(benchmark, data_dir=FIXTURES, sample=None, sample_seed=0).tasks
    replies = [
        (task, reply)
        for task in tasks
        for reply in (gold_reply(task), wrong_reply(task), "", "\\boxed{1", "```python\nwhile")
    ]
    return [
        [(measure, score.value, score.status) for measure, score in benchmark.verifier.grade(task, reply).items()]
        for task, reply in replies
    ]


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    found = {name: verdicts(name) for name in BENCHMARKS}
    values = {score[1] for rows in found.values() for row in rows for score in row}
    assert values == {0.0, 1.0}
    return found


def test_in_a_pool_of_threads(expected: dict[str, list[Any]]) -> None:
    with ThreadPoolExecutor(6) as threads:
        assert dict(zip(BENCHMARKS, threads.map(verdicts, BENCHMARKS), strict=True)) == expected


@pytest.mark.slow
def test_in_a_ray_actor(expected: dict[str, list[Any]]) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'marti_ext[dev]'")
    here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}
    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False, runtime_env=here
    )
    try:

        @ray.remote(num_cpus=1)
        class Grader:
            def grade(self, name: str) -> list[Any]:
                return verdicts(name)

        grader = Grader.remote()
        assert {name: ray.get(grader.grade.remote(name), timeout=120) for name in BENCHMARKS} == expected
    finally:
        ray.shutdown()
