"""How large a model is, by its config alone: no weight is loaded, and known models need nothing from anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marti_ext.backends.options import Lora
from marti_ext.errors import UserError


@dataclass(frozen=True)
class ModelShape:
    """Parameters, tied ones counted once, and the widths of a decoder-only transformer."""

    parameters: int
    layers: int
    width: int  # of a token's hidden state
    inner_width: int  # of the MLP
    key_value_heads: int
    head_width: int
    vocabulary: int


# By the last part of a name or folder: what the model's config.json says in transformers' words, and its parameters.
KNOWN: dict[str, tuple[dict[str, Any], int]] = {
    "Qwen2.5-3B-Instruct": (
        {
            "model_type": "qwen2",
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
        3_085_938_688,
    ),
    "Qwen2.5-7B-Instruct": (
        {
            "model_type": "qwen2",
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
        },
        7_615_616_512,
    ),
    "Llama-3.2-3B-Instruct": (
        {
            "model_type": "llama",
            "vocab_size": 128256,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 28,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
        3_212_749_824,
    ),
    "SmolLM2-135M-Instruct": (
        {
            "model_type": "llama",
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
        },
        134_515_008,
    ),
}


def model_shape(model: str, *, trust_remote_code: bool = False) -> ModelShape:
    """The shape of a folder's model, of a known one, or of the hub's (its config.json alone is fetched).

    Raises UserError naming the model where there is no config, or none of a decoder-only transformer.
    """
    if not (Path(model) / "config.json").is_file() and (known := KNOWN.get(Path(model).name)):
        return _shape(*known)
    config = _config(model, trust_remote_code=trust_remote_code)
    try:
        parameters = counted(config, trust_remote_code=trust_remote_code)
        return _shape(config.to_dict() | _common_names(config), parameters)
    except (AttributeError, KeyError, ValueError, TypeError, ArithmeticError) as error:
        raise UserError(f"the config of model {model!r} is not one of a decoder-only transformer: {error}") from error


def counted(config: Any, *, trust_remote_code: bool = False) -> int:
    """Parameters of a transformers config's causal language model, built without memory on torch's meta device."""
    return sum(p.numel() for p in _on_meta(config, trust_remote_code=trust_remote_code).parameters())


def adapter_parameters(model: str, lora: Lora, *, trust_remote_code: bool = False) -> int:
    """Parameters of a LoRA adapter: rank * (inputs + outputs) of every linear layer that it is put on.

    As peft reads target_modules: the output layer is not among `all-linear`.
    """
    config = _config(model, trust_remote_code=trust_remote_code)
    built = _on_meta(config, trust_remote_code=trust_remote_code)
    output = built.get_output_embeddings()
    targets = lora.target_modules
    return sum(
        lora.rank * (module.in_features + module.out_features)
        for name, module in built.named_modules()
        if hasattr(module, "in_features")
        and (module is not output if targets == "all-linear" else _is_target(name, targets))
    )


def _is_target(name: str, targets: str | list[str]) -> bool:
    wanted = [targets] if isinstance(targets, str) else targets
    return any(name == target or name.endswith(f".{target}") for target in wanted)


def _config(model: str, *, trust_remote_code: bool) -> Any:
    try:
        from transformers import AutoConfig
    except ModuleNotFoundError as error:
        raise UserError(f"model {model!r}: its size needs the package {error.name!r}") from error
    if not (Path(model) / "config.json").is_file() and (known := KNOWN.get(Path(model).name)):
        values = dict(known[0])
        return AutoConfig.for_model(values.pop("model_type"), **values)
    try:
        return AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, TypeError, ArithmeticError) as error:  # the last two: an odd config.json
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"model {model!r}: no folder with a config.json, and none from the hub: {reason}") from error


def _on_meta(config: Any, *, trust_remote_code: bool) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)


def _common_names(config: Any) -> dict[str, Any]:
    """The widths under the names to which transformers maps every family's own."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
    }


def _shape(values: Mapping[str, Any], parameters: int) -> ModelShape:
    heads, width = values["num_attention_heads"], values["hidden_size"]
    return ModelShape(
        parameters,
        layers=values["num_hidden_layers"],
        width=width,
        inner_width=values.get("intermediate_size") or 4 * width,
        key_value_heads=values.get("num_key_value_heads") or heads,
        head_width=values.get("head_dim") or width // heads,
        vocabulary=values["vocab_size"],
    )
