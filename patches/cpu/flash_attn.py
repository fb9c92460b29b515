"""openrlhf.models imports flash_attn's padding functions, and flash-attn cannot be built without CUDA.

transformers carries equal functions. The stand-in is there for that one import only, so that nothing else takes
flash-attn for installed.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


def apply() -> None:
    """Import openrlhf.models.ring_attn_utils with the stand-in in place of flash_attn."""
    if "openrlhf.models.ring_attn_utils" in sys.modules:
        return
    from einops import rearrange
    from transformers.modeling_flash_attention_utils import _index_first_axis, _pad_input, _unpad_input

    padding: Any = ModuleType("flash_attn.bert_padding")
    padding.index_first_axis, padding.pad_input, padding.unpad_input = _index_first_axis, _pad_input, _unpad_input
    padding.rearrange = rearrange
    distributed: Any = ModuleType("flash_attn.utils.distributed")
    distributed.all_gather = _no_ring_attention
    stand_ins = {
        "flash_attn": ModuleType("flash_attn"),
        "flash_attn.utils": ModuleType("flash_attn.utils"),
        padding.__name__: padding,
        distributed.__name__: distributed,
    }
    for name, module in stand_ins.items():
        module.__spec__ = ModuleSpec(name, None)  # without one, asking whether flash_attn is installed fails
    sys.modules.update(stand_ins)
    try:
        importlib.import_module("openrlhf.models.ring_attn_utils")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def _no_ring_attention(*_: Any) -> NoReturn:
    raise NotImplementedError("ring attention needs flash-attn, and that a CUDA device")
