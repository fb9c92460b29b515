"""Somebody else takes the port that a policy's actors found free: they are started anew, and its reference works."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_llama
from uneven_rows import uneven_rows
from weight_sync import BF16_ROUNDING, distance

from marti_ext.backends.hf_model import load_policies
from marti_ext.backends.options import ModelOptions
from marti_ext.cluster.flags import policy_arguments
from marti_ext.config_file import check_config
from marti_ext.training.log_probs import row_log_probs

TAKEN = "port-taken"


def raced(folder: Path) -> Any:
    """PolicyProcess whose port is taken before it listens there, the first time."""
    from marti_ext.cluster import actors

    class RacedProcess(actors.PolicyProcess):
        def init_model_from_pretrained(self, *arguments: Any, **options: Any) -> None:
            if not (folder / TAKEN).exists():
                (folder / TAKEN).write_text(os.environ["MASTER_PORT"])
                self.thief = socket.create_server(("", int(os.environ["MASTER_PORT"])), dualstack_ipv6=False)
            super().init_model_from_pretrained(*arguments, **options)

    import ray

    return ray.remote(num_gpus=1, concurrency_groups={"alive": 1})(RacedProcess)


@pytest.mark.slow
def test_a_policy_whose_port_was_taken_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marti_ext.backends.vllm import VLLMBackend
    from marti_ext.cluster import actors
    from marti_ext.cluster.session import Session
    from marti_ext.cluster.start import Needs, start
    from marti_ext.training.openrlhf import OpenRLHFTrainer

    config = check_config(
        {
            "run_dir": "run",
            "backend": "openrlhf",
            "data": {"sources": [{"path": "tasks.jsonl"}]},
            "agents": [{"name": "ada", "policy": "llama"}],
            "policies": {"llama": {"model": str(tiny_llama(tmp_path / "llama")), "context_window": 512}},
            "workflow": {"name": "comas"},
            "reward": {"name": "zero_sum"},
        }
    )
    args = policy_arguments(config, cpu=True)["llama"]
    args.vllm.num_engines = 0  # engines have no part in it, but for their places
    monkeypatch.setattr(actors, "PolicyActor", raced(tmp_path))
    session = Session()
    with session.opened(None, logical=3):
        places: Any = {role: session.group(1) for role in ("actor", "ref", "engine")}
        one = start(session, {"llama": Needs(args, places, share=1.0)})["llama"]
        [port] = session.wait("its port", one.actors.async_run_method("get_master_addr_port"))
        backend = VLLMBackend([], one.tokenizer, context_window=512, failed=session.failed("an engine"))
        trainer = OpenRLHFTrainer(args, one.strategy, one.actors, one.reference, backend, one.tokenizer, session)
        rows = uneven_rows(3)
        found = trainer.reference_log_probs(rows)
    assert (tmp_path / TAKEN).read_text() != str(port[1])

    local = load_policies({"p": ModelOptions(model=args.actor.model_name_or_path, precision="bf16")}, seed=0)["p"]
    expected = row_log_probs(local.active, local, rows, 2)
    for row, ours, theirs in zip(rows, found, expected, strict=True):
        assert ours.shape == row.action_mask.shape
        assert ours[~row.action_mask].tolist() == [0.0] * int((~row.action_mask).sum())
        assert distance(ours[row.action_mask], theirs[row.action_mask]) < BF16_ROUNDING
