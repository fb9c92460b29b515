"""From a config to the objects of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marti_ext.agent import Agent
from marti_ext.backends.base import Backend
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.config import Config, Evaluation, HFPolicy, OpenAIPolicy, Policy, ScriptedPolicy
from marti_ext.datasets.load import load_stream, load_tasks
from marti_ext.datasets.stream import TaskStream
from marti_ext.errors import UserError
from marti_ext.experience.base import ExperienceMaker
from marti_ext.registry import build_plugin
from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.verifier import VerifierReward
from marti_ext.rollout import refuse_doubles
from marti_ext.seeds import derive_seed
from marti_ext.types import Task
from marti_ext.workflows.base import Workflow

if TYPE_CHECKING:
    from marti_ext.backends.hf import HFBackend
    from marti_ext.training.base import PolicyTrainer


@dataclass(frozen=True)
class HeldOutTasks:
    """What is evaluated while a run goes on."""

    workflow: Workflow
    tasks: Sequence[Task]


@dataclass(frozen=True)
class Plan:
    """What a run needs and is cheap to build: wrong plug-ins and data fail here, before a model is loaded."""

    workflow: Workflow
    reward: RewardFunction
    maker: ExperienceMaker
    stream: TaskStream
    held_out: HeldOutTasks | None = None


def build_plan(config: Config) -> Plan:
    """The plug-ins and the tasks. Raises UserError naming the key, or the file and line."""
    workflow, reward, maker = build_plugins(config)
    stream = load_stream(config.data, needs_label=reward.needs_label, seed=config.seed)
    if config.rollout.tasks_per_step > len(stream):
        raise UserError(
            f"rollout.tasks_per_step is {config.rollout.tasks_per_step}, but there are {len(stream)} tasks; lower it, "
            "or use rollout.copies_per_task for more episodes of each"
        )
    workflow.check(stream.tasks)
    reward.check(stream.tasks)
    held_out = None if config.evaluation is None else _held_out(config.evaluation, config.seed)
    return Plan(workflow, reward, maker, stream, held_out)


def _held_out(options: Evaluation, seed: int) -> HeldOutTasks:
    tasks = [task for source in options.data.sources for task in load_tasks(source, needs_label=True, seed=seed)]
    workflow = build_plugin("workflow", Workflow, options.workflow.name, options.workflow.options)  # type: ignore[type-abstract]
    workflow.check(tasks)
    VerifierReward().check(tasks)
    return HeldOutTasks(workflow, tasks)


def build_plugins(config: Config) -> tuple[Workflow, RewardFunction, ExperienceMaker]:
    """What the three stages are made of. Raises UserError naming the key."""
    workflow = build_plugin("workflow", Workflow, config.workflow.name, config.workflow.options)  # type: ignore[type-abstract]
    reward = build_plugin("reward", RewardFunction, config.reward.name, config.reward.options)  # type: ignore[type-abstract]
    maker = build_plugin("experience", ExperienceMaker, config.experience.name, config.experience.options)  # type: ignore[type-abstract]
    _check_losses(config, maker)
    return workflow, reward, maker


def _check_losses(config: Config, maker: ExperienceMaker) -> None:
    """Raise UserError for a loss that cannot read the rows that are made for it."""
    for name in sorted({agent.policy for agent in config.agents if agent.trainable}):
        policy = config.policies[name]
        if not isinstance(policy, HFPolicy):
            continue
        loss = policy.training.loss
        if (loss == "dpo") != maker.gives_pairs:
            raise UserError(
                f"policies.{name}: training.loss is {loss}, but experience {config.experience.name!r} makes "
                f"{'pairs' if maker.gives_pairs else 'no pairs'}: loss dpo and experience preference_pairs go together"
            )
        if loss == "dpo" and config.backend != "local":
            raise UserError(f"policies.{name}: training.loss dpo is for backend local, not {config.backend}")


def build_backends(policies: Mapping[str, Policy], seed: int) -> dict[str, Backend]:
    """{policy: where it samples}. Raises UserError for a model that cannot be loaded, or a missing package."""
    backends: dict[str, Backend] = {}
    for name, policy in policies.items():
        if isinstance(policy, ScriptedPolicy):
            backends[name] = ScriptedBackend(policy.replies)
        elif isinstance(policy, OpenAIPolicy):
            backends[name] = _openai_backend(policy)
    hf = {name: policy for name, policy in policies.items() if isinstance(policy, HFPolicy)}
    backends.update(_hf_backends(hf, seed) if hf else {})
    return backends


def build_agents(config: Config, backends: Mapping[str, Backend], *, training: bool = True) -> list[Agent]:
    """The team. Raises UserError for one that cannot be trained (if it is to be) or cannot speak at all."""
    agents = [
        Agent(
            agent.name,
            backends[agent.policy],
            agent.policy,
            agent.persona,
            agent.sampling.params(),
            agent.trainable and training,
        )
        for agent in config.agents
    ]
    refuse_doubles("agent name", [agent.name for agent in agents])
    for agent in agents:
        window = agent.backend.context_window
        if window is not None and agent.sampling.max_tokens >= window:
            raise UserError(
                f"agent {agent.name!r}: sampling.max_tokens is {agent.sampling.max_tokens}, but the window of policy "
                f"{agent.policy!r} holds {window} tokens, prompt included; lower max_tokens"
            )
    return agents


def build_trainers(
    config: Config, agents: list[Agent], backends: Mapping[str, Backend], *, keep_reference: bool
) -> dict[str, "PolicyTrainer"]:
    """{policy: its trainer} of every policy with a trainable agent. Raises UserError if there is none."""
    from marti_ext.backends.hf import HFBackend
    from marti_ext.training.local import LocalTrainer

    trainers: dict[str, PolicyTrainer] = {}
    for name in sorted({agent.policy for agent in agents if agent.trainable}):
        backend, policy = backends[name], config.policies[name]
        assert isinstance(backend, HFBackend)
        assert isinstance(policy, HFPolicy)
        seed = derive_seed(config.seed, "training")
        trainers[name] = LocalTrainer(backend, policy.training, seed=seed, keep_reference=keep_reference)
    if not trainers:
        raise UserError("no agent is trainable: set trainable: true for one, or use `marti-ext rollout`")
    return trainers


def _openai_backend(policy: OpenAIPolicy) -> Backend:
    try:
        from marti_ext.backends.openai import OpenAIBackend
    except ModuleNotFoundError as error:
        raise UserError(f"backend openai needs the package {error.name!r}: pip install 'marti_ext[openai]'") from error

    return OpenAIBackend(
        policy.model, policy.base_url, policy.api_key_env, policy.timeout, policy.max_retries, policy.extra_body
    )


def _hf_backends(policies: Mapping[str, HFPolicy], seed: int) -> dict[str, "HFBackend"]:
    try:
        import transformers

        from marti_ext.backends.hf import HFBackend
        from marti_ext.backends.hf_model import load_policies
    except ModuleNotFoundError as error:
        raise UserError(f"backend hf needs the package {error.name!r}: pip install 'marti_ext[hf]'") from error

    transformers.logging.disable_progress_bar()  # a run shows bars of its own
    models = load_policies(policies, seed=derive_seed(seed, "adapters"))
    return {
        name: HFBackend(
            models[name],
            template_arguments=policy.template_arguments,
            context_window=policy.context_window,
            max_batch_size=policy.max_batch_size,
        )
        for name, policy in policies.items()
    }
