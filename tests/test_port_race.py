"""Somebody else takes the port that a policy's actors found free: they are started anew."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_llama

from marti_ext.cluster.flags import policy_arguments
from marti_ext.config_file import check_config

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
    from marti_ext.cluster import actors
    from marti_ext.cluster.session import Session
    from marti_ext.cluster.start import Needs, start

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
    with session.opened(None, logical=2):
        places: Any = {role: session.group(1) for role in ("actor", "engine")}
        processes = start(session, {"llama": Needs(args, places, share=1.0)})
        [port] = session.wait("its port", processes["llama"].actors.async_run_method("get_master_addr_port"))
    assert (tmp_path / TAKEN).read_text() != str(port[1])
