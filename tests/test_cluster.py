"""The real stack on a CPU: Ray, vLLM and DeepSpeed train two policies of different families."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_models import ROOT, tiny_llama, tiny_qwen2
from weight_sync import BF16_ROUNDING, distance, engine_log_probs, fixed_text, transformers_log_probs

from marti_ext.agent import Agent
from marti_ext.config_file import check_config
from marti_ext.records import read_rows
from marti_ext.training.loop import train

STEPS = 4  # the last of which keeps its weights from the engines


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {"llama": tiny_llama(folder / "llama"), "qwen2": tiny_qwen2(folder / "qwen2")}


def config(models: dict[str, Path], run_dir: Path, **changes: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "seed": 1,
        "steps": STEPS,
        "backend": "openrlhf",
        "data": {"sources": [{"path": str(ROOT / "examples/data/word_problems.jsonl"), "prompt": "question"}]},
        "agents": [{"name": "ada", "policy": "llama"}, {"name": "bob", "policy": "qwen2"}],
        "policies": {name: {"model": str(path), "context_window": 4096} for name, path in models.items()},
        "sampling": {"max_tokens": 16},
        # Random models never score in form: what they are rewarded for here is digits.
        "workflow": {"name": "comas", "rounds": 1, "speakers": "balanced"},
        "reward": {"name": f"{ROOT}/tests/plugins/digits.py:DigitShare"},
        "training": {"learning_rate": 0.01, "batch_size": 4, "micro_batch_size": 2},
        "rollout": {"tasks_per_step": 3},
        "checkpoint": {"keep": STEPS},
    } | changes


@pytest.mark.slow
def test_two_families_train_and_every_engine_samples_from_the_exported_weights(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    texts = {name: fixed_text(path) for name, path in models.items()}
    seen: dict[int, dict[str, list[float]]] = {}

    def look(done: int, agents: Sequence[Agent]) -> None:
        from marti_ext.training.openrlhf import OpenRLHFTrainer

        if done == STEPS - 1:
            monkeypatch.setattr(OpenRLHFTrainer, "publish", lambda self: None)
        seen[done] = {agent.policy: engine_log_probs(agent, texts[agent.policy]) for agent in agents}

    train(check_config(config(models, run)), on_step=look)

    for name, path in models.items():
        assert distance(seen[0][name], transformers_log_probs(path, texts[name])) < BF16_ROUNDING
        for done in range(1, STEPS):
            exported = transformers_log_probs(run / f"checkpoints/step-{done:05d}" / name, texts[name])
            assert distance(seen[done][name], exported) < BF16_ROUNDING
            # Before this sync the engine had the weights of the step before.
            assert distance(seen[done - 1][name], exported) > 2 * BF16_ROUNDING
        unsent = transformers_log_probs(run / f"checkpoints/step-{STEPS:05d}" / name, texts[name])
        assert distance(seen[STEPS][name], unsent) > 2 * BF16_ROUNDING
        assert seen[STEPS][name] == pytest.approx(seen[STEPS - 1][name], abs=1e-3)
    rows = read_rows(run / "metrics.jsonl")
    assert len(rows) == STEPS * len(models)
    # 3 tasks x 3 calls, in balance: the policies share 9 rows, filled up to whole batches of 4.
    for step in range(STEPS):
        both = [row for row in rows if row["step"] == step]
        assert sum(row["samples"] for row in both) == 9
        assert all((row["samples"] + row["fillers"]) == 4 * row["updates"] for row in both)
        assert all(row["ratio_deviation"] < 0.2 for row in both)
