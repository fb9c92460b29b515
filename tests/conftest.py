"""What tests share: tiny models from configs, and a config that trains them."""

import os
from pathlib import Path
from typing import Any

import pytest

# Read when torch loads: threads that wait by spinning slow a busy machine down many times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Ray has its workers yield to whatever else the machine does.
os.environ.setdefault("RAY_worker_niceness", "0")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a character-level Llama of random weights."""
    from micro_world.character_model import build_model, save

    return save(tmp_path_factory.mktemp("models") / "tiny", build_model(layers=1, width=32, heads=2, window=4096))


@pytest.fixture
def tiny_config(tiny_model: Path, tmp_path: Path) -> dict[str, Any]:
    """Two agents with weights of their own that learn to write digits, within a second."""
    return {
        "run_dir": str(tmp_path / "run"),
        "steps": 2,
        "data": {"sources": [{"path": str(ROOT / "examples/data/word_problems.jsonl"), "prompt": "question"}]}
        | {"shuffle": True},
        "agents": [{"name": "ada", "policy": "a"}, {"name": "bob", "policy": "b"}],
        "policies": {"a": {"model": str(tiny_model)}, "b": {"model": str(tiny_model)}},
        "sampling": {"max_tokens": 12},
        "workflow": {"name": "vanilla"},
        "reward": {"name": f"{ROOT}/tests/plugins/digits.py:DigitShare"},
        "training": {"learning_rate": 0.001, "batch_size": 4},
        "rollout": {"tasks_per_step": 6},
    }
