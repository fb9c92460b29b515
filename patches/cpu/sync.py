"""Weights go from a DeepSpeed actor to vLLM over NCCL, received on a CUDA device.

Without CUDA a gloo group of the same ranks carries them, at the same call sites.
"""

from typing import Any

import torch


class GlooCommunicator:
    """What OpenRLHF uses of vLLM's PyNcclCommunicator."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        """Send a tensor from rank `src` to all."""
        options = torch.distributed.BroadcastOptions()
        options.rootRank = src
        options.rootTensor = 0
        self._group.broadcast([tensor], options).wait()


def apply() -> None:
    """Put gloo in the place of NCCL."""
    import sys

    from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
    from openrlhf.utils import distributed_util

    distributed_util.stateless_init_process_group = init_gloo_group
    if actor := sys.modules.get("openrlhf.trainer.ray.ppo_actor"):  # it holds the function under a name of its own
        vars(actor)["stateless_init_process_group"] = init_gloo_group
    WorkerWrap.update_weight = receive_weight


def init_gloo_group(
    master_address: str, master_port: int, rank: int, world_size: int, device: Any
) -> GlooCommunicator:
    """A group beside torch's default one."""
    from vllm.distributed.utils import stateless_init_torch_distributed_process_group

    group = stateless_init_torch_distributed_process_group(
        master_address, master_port, rank, world_size, backend="gloo"
    )
    return GlooCommunicator(group)


def receive_weight(self: Any, name: str, dtype: torch.dtype, shape: Any, empty_cache: bool = False) -> None:
    """WorkerWrap.update_weight on the CPU."""
    weight = torch.empty(shape, dtype=dtype)
    self._model_update_group.broadcast(weight, src=0)
    self.model_runner.model.load_weights(weights=[(name, weight)])
