"""The same rows and model give the same update here and by OpenRLHF on DeepSpeed."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import ROOT, tiny_llama, tiny_qwen2
from uneven_rows import uneven_rows

from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import load_policies
from marti_ext.backends.options import ModelOptions, Precision
from marti_ext.cluster.flags import policy_arguments
from marti_ext.config_file import check_config
from marti_ext.training.local import LocalTrainer
from marti_ext.training.log_probs import row_log_probs
from marti_ext.training.options import TrainingOptions
from marti_ext.types import Sample

BATCH, MICRO = 4, 2
FAMILIES = {"llama": tiny_llama, "qwen2": tiny_qwen2}


def local_update(folder: Path, samples: list[Sample], precision: Precision) -> tuple[dict[str, Any], list[Sample]]:
    """The metrics of one update, and the rows with the policy's own log-probs, so that ratios start at 1."""
    options = ModelOptions(model=str(folder), precision=precision, device="cpu")
    policy = load_policies({"p": options}, seed=0)["p"]
    own = row_log_probs(policy.active, policy, samples, MICRO)
    rows = [
        Sample(s.policy, s.group, s.token_ids, s.action_mask, log_probs, s.reward, advantages=s.advantages)
        for s, log_probs in zip(samples, own, strict=True)
    ]
    training = TrainingOptions(batch_size=BATCH, micro_batch_size=MICRO, max_grad_norm=1e9)
    trainer = LocalTrainer(HFBackend(policy), training, seed=0, keep_reference=False)
    return trainer.step(rows, step=0), rows


def openrlhf_update(folder: Path, rows: list[Sample], dtype: str, job: Path, *, filled: bool = True) -> dict[str, Any]:
    config = check_config(
        {
            "run_dir": "run",
            "backend": "openrlhf",
            "data": {"sources": [{"path": "tasks.jsonl"}]},
            "agents": [{"name": "ada", "policy": "p"}],
            "policies": {"p": {"model": str(folder), "context_window": 512}},
            "training": {"batch_size": BATCH if filled else len(rows), "micro_batch_size": MICRO if filled else 1}
            | {"max_grad_norm": 1e9},
            "workflow": {"name": "comas"},
            "reward": {"name": "zero_sum"},
        }
    )
    arguments = policy_arguments(config, cpu=True)["p"]
    arguments.ds.adam_offload = dtype == "bf16"
    job.write_bytes(
        pickle.dumps({"model": str(folder), "dtype": dtype, "arguments": arguments, "samples": rows, "filled": filled})
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/openrlhf_update.py"), str(job)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype", "bound"), [("llama", "fp32", 1e-3), ("qwen2", "bf16", 2e-2)])
def test_loss_and_gradient_are_those_of_openrlhf(family: str, dtype: Precision, bound: float, tmp_path: Path) -> None:
    # Three rows in a batch of four: the fourth is a filler.
    folder = FAMILIES[family](tmp_path / "model")
    ours, rows = local_update(folder, uneven_rows(3), dtype)
    theirs = openrlhf_update(folder, rows, dtype, tmp_path / "job")
    print(family, dtype, ours["loss"], ours["grad_norm"], theirs)
    assert ours["grad_norm"] > 0.01
    assert theirs["loss"] == pytest.approx(ours["loss"], rel=bound)
    assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=bound)


@pytest.mark.slow
def test_a_micro_batch_of_fillers_changes_nothing(tmp_path: Path) -> None:
    # One row in a batch of four: its micro batch holds a filler, the other two are fillers both.
    folder = tiny_llama(tmp_path / "model")
    _, rows = local_update(folder, uneven_rows(3)[2:], "fp32")
    filled = openrlhf_update(folder, rows, "fp32", tmp_path / "filled")
    alone = openrlhf_update(folder, rows, "fp32", tmp_path / "alone", filled=False)
    assert filled["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert filled["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-5)
