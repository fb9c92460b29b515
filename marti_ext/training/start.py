"""From a config to a team that can be trained, in this process or on a cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from marti_ext.agent import Agent
from marti_ext.backends.base import Backend
from marti_ext.build import Plan, build_agents, build_backends, build_trainers
from marti_ext.cluster.placement import check, plan_placement
from marti_ext.config import Config, HFPolicy
from marti_ext.errors import UserError
from marti_ext.stages import check_backends
from marti_ext.training.base import PolicyTrainer


@dataclass(frozen=True)
class Started:
    """What the steps of a run work with."""

    agents: list[Agent]
    backends: Mapping[str, Backend]
    trainers: Mapping[str, PolicyTrainer]


@contextmanager
def started(config: Config, plan: Plan) -> Iterator[Started]:
    """Models loaded, processes running; ended with the block. Raises UserError for what cannot be had."""
    if config.backend == "openrlhf":
        with _on_cluster(config, plan) as on_cluster:
            yield on_cluster
        return
    backends = build_backends(config.policies, config.seed)
    agents = build_agents(config, backends)
    trainers = build_trainers(config, agents, backends, keep_reference=plan.maker.needs_reference)
    check_backends(backends)
    yield Started(agents, backends, trainers)


@contextmanager
def _on_cluster(config: Config, plan: Plan) -> Iterator[Started]:
    """Compared with the cluster before OpenRLHF and vLLM are imported: a plan without room fails within seconds."""
    needs_reference = plan.maker.needs_reference
    with _packages():
        from marti_ext.cluster.flags import policy_arguments
        from marti_ext.cluster.session import Session
        from patches.cpu import activate_training, has_accelerator

        arguments = policy_arguments(config, cpu=not has_accelerator(), needs_reference=needs_reference)
    placement = plan_placement(config, arguments, needs_reference=needs_reference)
    session = Session()
    with session.opened(config.cluster.address, logical=None if has_accelerator() else placement.gpus):
        check(placement, session.free(), "the cluster")
        with _packages():
            activate_training()  # before OpenRLHF's models are imported
            from marti_ext.cluster.launch import launch
        backends, trainers = launch(session, placement, config, arguments)
        others = {name: policy for name, policy in config.policies.items() if not isinstance(policy, HFPolicy)}
        elsewhere = build_backends(others, config.seed)
        check_backends(elsewhere)
        everywhere = {**elsewhere, **backends}
        yield Started(build_agents(config, everywhere), everywhere, trainers)


@contextmanager
def _packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            f"backend openrlhf needs the package {error.name!r}: pip install 'marti_ext[openrlhf]'"
        ) from error
