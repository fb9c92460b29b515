"""From a config to the arguments that OpenRLHF's classes read, one set per policy, by OpenRLHF's own parser."""

import argparse
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from marti_ext.config import Config, HFPolicy
from marti_ext.config_file import merged
from marti_ext.errors import UserError
from marti_ext.registry import nearest
from marti_ext.training.options import TrainingOptions

logger = logging.getLogger(__name__)

# Flags, or groups of them, whose meaning stands elsewhere in the config.
SAID_ELSEWHERE = {
    "actor.model_name_or_path": "policies.*.model",
    "actor.adam.lr": "training.learning_rate",
    "actor.adam.betas": "training.betas",
    "actor.adam.weight_decay": "training.weight_decay",
    "actor.max_norm": "training.max_grad_norm",
    "actor.eps_clip": "training.clip_eps",
    "actor.lr_scheduler": "training.schedule",
    "actor.lr_warmup_ratio": "training.warmup_updates",
    "actor.min_lr_ratio": "training.min_learning_rate_ratio",
    "actor.gradient_checkpointing_enable": "training.gradient_checkpointing",
    "train.batch_size": "training.batch_size",
    "train.micro_batch_size": "training.micro_batch_size",
    "train.max_epochs": "training.max_epochs",
    "train.seed": "seed",
    "train.num_episodes": "steps",
    "train.colocate_all": "cluster.colocate",
    "train.async_enable": "cluster.async_rollout",
    "train.async_queue_size": "cluster.async_rollout",
    "train.partial_rollout_enable": "cluster.async_rollout",
    "train.agent_func_path": "workflow",
    "data.max_len": "policies.*.context_window",
    "data": "data",
    "rollout.batch_size": "rollout.tasks_per_step",
    "rollout.n_samples_per_prompt": "rollout.copies_per_task",
    "rollout.vllm_generate_batch_size": "rollout.concurrency",
    "rollout.temperature": "sampling.temperature",
    "rollout.top_p": "sampling.top_p",
    "rollout.max_new_tokens": "sampling.max_tokens",
    "algo.advantage.estimator": "experience",
    "algo.advantage.gamma": "experience",
    "algo.advantage.lambd": "experience",
    "algo.advantage.no_std_norm": "experience",
    "algo.dynamic_filtering_enable": "experience",
    "algo.dynamic_filtering_range": "experience",
    "algo.kl.init_coef": "training.kl_loss_coef or experience.kl_coef",
    "algo.kl.use_loss": "training.kl_loss_coef",
    "algo.kl.estimator": "training.kl_loss_estimator",
    "algo.kl.target": "training.kl_loss_coef",
    "algo.kl.horizon": "training.kl_loss_coef",
    "ds.lora": "policies.*.lora",
    "critic": "experience (REINFORCE++ has no critic)",
    "reward": "reward",
    "eval": "evaluation",
    "ckpt": "checkpoint",
    "logger": "tracking",
    "local_rank": "cluster",
}
# A store_true flag cannot be given twice, so what is on by default stands here and `false` takes it away.
DEFAULTS: dict[str, Any] = {
    "actor": {"num_gpus_per_node": 1},
    "vllm": {"num_engines": 1, "enable_prefix_caching": True},
}
# Where there is no accelerator; see patches/cpu.
CPU_DEFAULTS: dict[str, Any] = {
    "ds": {"attn_implementation": "sdpa", "adam_offload": True},
    "vllm": {"sync_backend": "gloo", "enforce_eager": True},
}


@dataclass(frozen=True)
class OwnOptions:
    """What our actors read beside OpenRLHF's arguments, as `args.marti_ext`."""

    policy: str
    training: TrainingOptions
    trust_remote_code: bool


def policy_arguments(
    config: Config, *, cpu: bool = False, needs_reference: bool = False
) -> dict[str, SimpleNamespace]:
    """{policy in Hugging Face format: its arguments}; `cpu` starts from what a machine without accelerator needs.

    `args.marti_ext` holds OwnOptions. Raises UserError naming the policy, with OpenRLHF's words where they are its.
    """
    return {
        name: _arguments(config, name, policy, cpu=cpu, needs_reference=needs_reference)
        for name, policy in config.policies.items()
        if isinstance(policy, HFPolicy)
    }


def _arguments(config: Config, name: str, policy: HFPolicy, *, cpu: bool, needs_reference: bool) -> SimpleNamespace:
    from patches.parser import openrlhf_parser, validated

    _refuse_local_keys(name, policy)
    own = merged(config.openrlhf, policy.openrlhf)
    given = merged(merged(DEFAULTS, CPU_DEFAULTS) if cpu else DEFAULTS, own)
    try:
        parser = openrlhf_parser()
    except ModuleNotFoundError as error:
        raise UserError(
            f"backend openrlhf needs the package {error.name!r}: pip install 'marti_ext[openrlhf]'"
        ) from error
    known = {option.removeprefix("--") for action in parser._actions for option in action.option_strings}
    for key, _ in flattened(own):
        if where := next((w for k, w in SAID_ELSEWHERE.items() if key == k or key.startswith(f"{k}.")), None):
            raise UserError(f"policies.{name}: openrlhf.{key} is not read here: say it under {where}")
        if key not in known:
            raise UserError(f"policies.{name}: unknown key openrlhf.{key}: {nearest(key, known)}")
    given.setdefault("ref", {})
    for key in ("num_nodes", "num_gpus_per_node"):  # OpenRLHF's default of 8 is wanted by nobody here
        if key in given["actor"]:
            given["ref"].setdefault(key, given["actor"][key])
    given = merged({"rollout": {"micro_batch_size": policy.training.micro_batch_size}}, given)
    command = [*_command(given), *_command(_from_config(config, name, policy))]
    try:
        arguments, warnings = validated(command)
    except (argparse.ArgumentError, AssertionError, SystemExit) as error:
        raise UserError(
            f"policies.{name}: openrlhf: {' '.join(str(error).split()) or 'refused by its parser'}"
        ) from error
    for warning in warnings:
        logger.warning("policy %s: openrlhf: %s", name, warning)
    arguments.reward.remote_url = None
    arguments.marti_ext = OwnOptions(name, policy.training, policy.trust_remote_code)
    _check(name, arguments)
    return arguments


def _refuse_local_keys(name: str, policy: HFPolicy) -> None:
    for key in ("device", "max_batch_size"):
        if key in policy.model_fields_set:
            raise UserError(
                f"policies.{name}.{key} is for backend local: remove it, or put it into a config of its own"
            )
    if policy.model_fields_set & {"precision"} and policy.precision == "fp32":
        raise UserError(f"policies.{name}.precision: OpenRLHF trains in bf16: say bf16, or leave it out")
    if policy.lora is not None:
        raise UserError(f"policies.{name}.lora: OpenRLHF hands whole weights to vLLM, no adapters: use backend local")
    if policy.context_window is None:
        raise UserError(f"policies.{name}.context_window is missing: backend openrlhf sets memory aside by it")


def _from_config(config: Config, name: str, policy: HFPolicy) -> dict[str, Any]:
    """What the rest of the config says in OpenRLHF's words."""
    training = policy.training
    trained = [agent for agent in config.agents if agent.policy == name and agent.trainable]
    temperatures = {agent.sampling.temperature for agent in trained}
    if len(temperatures) > 1:
        raise UserError(
            f"policies.{name}: its trained agents sample at temperatures {sorted(temperatures)}; OpenRLHF trains a "
            "policy at one: give them the same"
        )
    return {
        "actor": {
            # Ray's workers may stand in another folder.
            "model_name_or_path": str(Path(policy.model).resolve()) if Path(policy.model).is_dir() else policy.model,
            "adam": {
                "lr": training.learning_rate,
                "betas": list(training.betas),
                "weight_decay": training.weight_decay,
            },
            "max_norm": training.max_grad_norm,
            "eps_clip": training.clip_eps,
            "lr_scheduler": "constant",  # ours is put in its place: see cluster/actors.py
            "lr_warmup_ratio": 0.0,
            "gradient_checkpointing_enable": training.gradient_checkpointing,
        },
        "train": {
            "batch_size": training.batch_size,
            "micro_batch_size": training.micro_batch_size,
            "max_epochs": training.max_epochs,
            "seed": config.seed % 2**31,
            "colocate_all": config.cluster.colocate != "none",
        },
        "data": {"max_len": policy.context_window},
        # Rows of a step are not known beforehand; it bounds nothing that reaches us, but a small number cuts batches.
        "rollout": {"batch_size": 2**40, "temperature": temperatures.pop() if temperatures else 1.0},
        "algo": {
            "advantage": {"estimator": "reinforce"},
            "kl": {
                "init_coef": training.kl_loss_coef,
                "use_loss": training.kl_loss_coef > 0,
                # Unused without the loss; k1 is what OpenRLHF then expects.
                "estimator": training.kl_loss_estimator if training.kl_loss_coef > 0 else "k1",
            },
        },
        "ckpt": {"save_hf": True, "load_enable": False},
        "reward": {"remote_url": "none"},  # so that no reward model is asked for
    }


def _check(name: str, args: SimpleNamespace) -> None:
    """What OpenRLHF finds out late, by a hang or an assertion within a process."""
    ranks = data_parallel_size(args)
    for key, size in (("training", args.train.micro_batch_size), ("openrlhf.rollout", args.rollout.micro_batch_size)):
        if args.train.batch_size % (ranks * size):
            raise UserError(
                f"policies.{name}: training.batch_size {args.train.batch_size} must be a multiple of {ranks} "
                f"data-parallel ranks times {key}.micro_batch_size {size}"
            )
    if not args.vllm.num_engines:
        raise UserError(f"policies.{name}: openrlhf.vllm.num_engines is 0; replies are sampled by at least 1")


def data_parallel_size(args: SimpleNamespace) -> int:
    """Ranks that hold different rows."""
    ranks: int = args.actor.num_nodes * args.actor.num_gpus_per_node
    return int(ranks // args.ds.ring_attn_size // args.ds.tensor_parallel_size)


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _command(values: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in flattened(values):
        if value is None or value is False:
            continue
        words.append(f"--{key}")
        if value is not True:
            words += [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    return words
