"""vLLM's CPU build packs the weights of linear layers for oneDNN, AMX or Zen when it loads them, and drops them.

Weights that arrive later then have nowhere to go (which of these a CPU offers depends on the CPU). Here layers keep
their weights and multiply by them: slower, but what was synchronised is what is sampled from.
Can go: once vLLM's CPU worker can load weights into packed layers.
"""

from typing import Any

import torch


def apply() -> None:
    """Let vLLM's linear layers and output heads keep their weights."""
    from vllm.model_executor.layers import linear, utils, vocab_parallel_embedding

    for module in (utils, linear, vocab_parallel_embedding):
        if hasattr(module, "dispatch_cpu_unquantized_gemm"):
            module.dispatch_cpu_unquantized_gemm = _keep_weights


def _keep_weights(layer: Any, remove_weight: bool = False) -> None:
    layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias)
