"""The weights of a policy in this process: a transformers model of its own, or a LoRA adapter on a shared one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from marti_ext.backends.options import Lora, ModelOptions, Precision
from marti_ext.errors import UserError


@dataclass(eq=False)
class PolicyModel:
    """The model that one policy samples from and trains.

    `adapter` names its LoRA adapter on a model that other policies may share; None where the weights are its own.
    Weights are kept in float32; `precision` is that of the arithmetic.
    """

    name: str
    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | None = None
    precision: Precision = "fp32"
    trust_remote_code: bool = False
    end_token_ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        declared = self.model.generation_config.eos_token_id
        ends = declared if isinstance(declared, list) else [declared]
        self.end_token_ids = sorted({i for i in [*ends, self.tokenizer.eos_token_id] if i is not None})
        if not self.end_token_ids:
            raise UserError(f"policy {self.name!r}: neither model nor tokenizer names an end-of-sequence token")

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def context_window(self) -> int | None:
        """The longest prompt and reply together, in tokens; None where the model does not tell."""
        window = self.model.config.to_dict().get("max_position_embeddings")
        return window if isinstance(window, int) else None

    @contextmanager
    def active(self) -> Iterator[Any]:
        """The model with this policy's weights switched on, in its precision."""
        if self.adapter is not None:
            assert isinstance(self.model, PeftModel)
            self.model.set_adapter(self.adapter)
        with self.arithmetic(self.model) as model:
            yield model

    @contextmanager
    def active_base(self) -> Iterator[Any]:
        """The shared model without any adapter: the frozen reference of a LoRA policy."""
        assert isinstance(self.model, PeftModel)
        with self.model.disable_adapter(), self.arithmetic(self.model) as model:
            yield model

    @contextmanager
    def arithmetic(self, model: Any) -> Iterator[Any]:
        """A model in this policy's precision."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            yield model

    @contextmanager
    def generation(self, config: GenerationConfig) -> Iterator[Any]:
        """The active model, generating by `config` alone: its own generation config may hold penalties and cuts."""
        inner: Any = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        own = inner.generation_config  # `generate` fills from it whatever it is not told
        inner.generation_config = config
        try:
            with self.active() as model:
                yield model
        finally:
            inner.generation_config = own

    def parameters(self) -> list[torch.nn.Parameter]:
        """What training moves: all weights, or those of the adapter."""
        if self.adapter is None:
            return list(self.model.parameters())
        with self.active():
            return [p for p in self.model.parameters() if p.requires_grad]

    def save(self, folder: Path) -> None:
        """A Hugging Face folder: weights and tokenizer, or an adapter that names its base model."""
        if self.adapter is None:
            assert isinstance(self.model, PreTrainedModel)
            self.model.save_pretrained(folder)
        else:
            self.model.save_pretrained(str(folder), selected_adapters=[self.adapter])
            self._lift_adapter(folder)
        self.tokenizer.save_pretrained(folder)

    def _lift_adapter(self, folder: Path) -> None:
        """peft files an adapter under its name; a checkpoint's folder is itself the adapter."""
        nested = folder / str(self.adapter)
        for file in nested.iterdir():
            file.replace(folder / file.name)
        nested.rmdir()


def load_model(path: str, *, device: str = "cpu", trust_remote_code: bool = False) -> PreTrainedModel:
    """A causal language model in float32 from the hub or a folder; dropout is off, so that ratios start at 1.

    Raises UserError naming the path if there is no model.
    """
    with _named(path, "model"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
        for key, value in config.to_dict().items():
            if isinstance(value, float) and ("dropout" in key or "pdrop" in key):
                setattr(config, key, 0.0)  # before the model is built: its modules keep copies
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=torch.float32, trust_remote_code=trust_remote_code, output_loading_info=True
        )
        model: PreTrainedModel = loaded[0]
        if missing := loaded[1]["missing_keys"]:
            raise ValueError(f"its file lacks the weight {min(missing)}")
    try:
        model.to(torch.device(device))  # type: ignore[arg-type]  # its decorator hides self
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without the device
        raise UserError(f"device {device!r} is not to be had here: {str(error).splitlines()[0]}") from error
    model.eval()
    return model


def load_tokenizer(path: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model. Raises UserError naming the path if there is none."""
    with _named(path, "tokenizer"):
        return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)


def add_adapters(model: PreTrainedModel, adapters: Mapping[str, Lora], *, seed: int) -> PeftModel:
    """One shared base with a fresh LoRA adapter per name. The base is frozen; every adapter starts as the identity."""
    torch.manual_seed(seed)  # the adapters' first factors are drawn at random
    first, *others = adapters
    shared = get_peft_model(model, _lora_config(adapters[first]), adapter_name=first)
    for name in others:
        shared.add_adapter(name, _lora_config(adapters[name]))
    assert isinstance(shared, PeftModel)
    return shared.eval()


def load_policies(policies: Mapping[str, ModelOptions], *, seed: int) -> dict[str, PolicyModel]:
    """{policy: its model}. Policies with a lora and the same base share it; the others have weights of their own."""
    models: dict[str, PolicyModel] = {}
    sharing: dict[tuple[str, str, bool], list[str]] = {}
    for name, policy in policies.items():
        if policy.lora is None:
            models[name] = PolicyModel(
                name, _model_of(policy), _tokenizer_of(policy), None, policy.precision, policy.trust_remote_code
            )
        else:
            sharing.setdefault((policy.model, policy.device, policy.trust_remote_code), []).append(name)
    for names in sharing.values():
        # peft makes adapters' names part of module names and files: a policy called "default" or "model" would clash.
        adapter_of = {name: f"policy-{place}" for place, name in enumerate(names)}
        adapters = {adapter_of[name]: lora for name in names if (lora := policies[name].lora) is not None}
        try:
            base = add_adapters(_model_of(policies[names[0]]), adapters, seed=seed)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"policy {names[0]!r}: no adapter for this model: {error}") from error
        tokenizer = _tokenizer_of(policies[names[0]])
        models |= {n: PolicyModel(n, base, tokenizer, adapter_of[n], policies[n].precision) for n in names}
    return models


def load_weights(policy: PolicyModel, folder: Path) -> None:
    """Put the weights (or the adapter) that `PolicyModel.save` wrote into the model that is there, bit for bit."""
    if policy.adapter is not None:
        set_peft_model_state_dict(policy.model, load_peft_weights(str(folder)), adapter_name=policy.adapter)
        return
    saved = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=policy.trust_remote_code
    )
    policy.model.load_state_dict(saved.state_dict())


def _model_of(policy: ModelOptions) -> PreTrainedModel:
    return load_model(policy.model, device=_device(policy.device), trust_remote_code=policy.trust_remote_code)


def _tokenizer_of(policy: ModelOptions) -> PreTrainedTokenizerBase:
    return load_tokenizer(policy.model, trust_remote_code=policy.trust_remote_code)


def _device(name: str) -> str:
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _lora_config(lora: Lora) -> LoraConfig:
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=lora.target_modules,
        lora_dropout=0.0,  # ratios start at 1
    )


@contextmanager
def _named(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError, SafetensorError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"cannot load the {what} {path!r}: give a folder with one, or a hub name ({reason})"
        ) from error
