"""OpenRLHF trains in bf16, for which most CPUs have no instructions: torch then multiplies without its fast kernels.

There linear layers multiply in float32, several times faster, and round the result as they would have.
Can go: once torch does so by itself.
"""

import torch
from torch.nn.functional import linear


def apply() -> None:
    """Let torch.nn.Linear multiply in float32 what is bf16, on a CPU without instructions for it."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        torch.nn.Linear.forward = _forward  # type: ignore[method-assign]


def _forward(self: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    if input.dtype != torch.bfloat16 or input.device.type != "cpu":
        return linear(input, self.weight, self.bias)
    bias = None if self.bias is None else self.bias.float()
    return linear(input.float(), self.weight.float(), bias).to(input.dtype)
