"""OpenRLHF's actors name CUDA: its current device, its streams, and a device mesh on it.

Here the current device is the CPU, and there is nothing to wait for or to empty.
"""

from typing import Any

import torch


def apply() -> None:
    """Give those calls their meaning on a CPU."""
    torch.cuda.current_device = _current_device  # type: ignore[assignment]
    for name in ("set_device", "synchronize", "current_stream", "empty_cache"):
        setattr(torch.cuda, name, _nothing)
    _patch_mesh()
    _patch_replay_buffer()


def _current_device() -> torch.device:
    return torch.device("cpu")


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _patch_mesh() -> None:
    """DeepspeedStrategy.setup_distributed opens its mesh on "cuda"."""
    from openrlhf.utils.deepspeed import deepspeed as strategy
    from torch.distributed.device_mesh import init_device_mesh

    def on_cpu(_: str, *arguments: Any, **options: Any) -> Any:
        return init_device_mesh("cpu", *arguments, **options)

    strategy.init_device_mesh = on_cpu


def _patch_replay_buffer() -> None:
    """NaiveReplayBuffer builds its device from a string "cuda:N", of which no CPU can be made."""
    from openrlhf.trainer.ppo_utils import replay_buffer

    class ReplayBuffer(replay_buffer.NaiveReplayBuffer):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            torch.cuda.current_device = lambda: 0
            try:
                super().__init__(*arguments, **options)
            finally:
                torch.cuda.current_device = _current_device  # type: ignore[assignment]
            self.target_device = torch.device("cpu")

    if replay_buffer.NaiveReplayBuffer.__name__ != ReplayBuffer.__name__:
        replay_buffer.NaiveReplayBuffer = ReplayBuffer
        # ppo_actor takes the class from the package.
        import openrlhf.trainer.ppo_utils as package

        package.NaiveReplayBuffer = ReplayBuffer
