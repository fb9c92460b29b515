"""The processes of every policy: vLLM engines, DeepSpeed actors, reference models."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from openrlhf.trainer.ray import vllm_engine
from openrlhf.trainer.ray.launcher import RayActorGroup
from openrlhf.utils import get_strategy
from ray.util.placement_group import PlacementGroup

from marti_ext.backends.hf_model import load_tokenizer
from marti_ext.cluster import actors
from marti_ext.cluster.placement import Role
from marti_ext.cluster.session import Session
from marti_ext.errors import LostProcessError

PORT_RACES = 3  # a port found free is taken a moment later: how often to try anew


@dataclass
class PolicyProcesses:
    """What runs for one policy; `actors` and `reference` are None where it is not trained, or needs no reference."""

    args: SimpleNamespace
    strategy: Any
    engines: list[Any]
    actors: Any
    reference: Any
    tokenizer: Any


@dataclass(frozen=True)
class Needs:
    """What a policy is started with: the places of each of its parts, and of a GPU the share of a rank beside engines.

    The places outlive a start that fails, so that the next one has them.
    """

    args: SimpleNamespace
    places: Mapping[Role, PlacementGroup]
    share: float


def start(session: Session, needs: Mapping[str, Needs]) -> dict[str, PolicyProcesses]:
    """Start all policies at the same time. Raises LostProcessError naming the policy."""
    started = {name: _create(session, name, need) for name, need in needs.items()}
    begun = {name: _begin(one) for name, one in started.items()}
    for name in needs:
        for race in range(PORT_RACES + 1):
            try:
                session.wait(f"policy {name!r}: its start", begun[name])
                break
            except LostProcessError as error:
                if "address already in use" not in str(error).lower() or race == PORT_RACES:
                    raise
                session.forget(_all_actors(started[name]))
                started[name] = _create(session, name, needs[name])
                begun[name] = _begin(started[name])
        one = started[name]
        session.watched(f"policy {name!r}: engine", one.engines)
        for label, group in (("actor", one.actors), ("reference", one.reference)):
            if group is not None:
                session.watched(f"policy {name!r}: {label}", group._actor_handlers)
    return started


def _create(session: Session, name: str, need: Needs) -> PolicyProcesses:
    args = need.args
    strategy = get_strategy(args)
    shared = need.args.ds.ring_attn_size * need.args.ds.tensor_parallel_size

    def ranks(role: Role, size: SimpleNamespace, kind: Any) -> Any:
        if role not in need.places:
            return None
        return RayActorGroup(
            size.num_nodes,
            size.num_gpus_per_node,
            kind,
            pg=need.places[role],
            num_gpus_per_actor=need.share,
            duplicate_actors=shared,
        )

    return PolicyProcesses(
        args,
        strategy,
        _engines(args, need.places["engine"]),
        ranks("actor", args.actor, actors.PolicyActor),
        ranks("ref", args.ref, actors.ReferenceActor),
        _tokenizer(args),
    )


def _tokenizer(args: SimpleNamespace) -> Any:
    tokenizer = load_tokenizer(args.actor.model_name_or_path, trust_remote_code=args.marti_ext.trust_remote_code)
    if tokenizer.pad_token is None:  # as OpenRLHF does; what pads is masked
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _engines(args: SimpleNamespace, group: PlacementGroup) -> list[Any]:
    engine = actors.engine_class(trust_remote_code=args.marti_ext.trust_remote_code)
    with mock.patch.object(vllm_engine, "RolloutRayActor", engine):
        engines: list[Any] = vllm_engine.create_vllm_engines(
            args.vllm.num_engines,
            args.vllm.tensor_parallel_size,
            args.actor.model_name_or_path,
            args.train.seed,
            args.train.full_determinism_enable,
            args.vllm.enable_prefix_caching,
            args.vllm.enforce_eager,
            args.data.max_len,
            group,
            args.vllm.gpu_memory_utilization,
            args.vllm.enable_sleep,
            "processed_logprobs",
        )
    return engines


def _begin(one: PolicyProcesses) -> list[Any]:
    model = one.args.actor.model_name_or_path
    references = [engine.pid.remote() for engine in one.engines]
    if one.actors is not None:
        references += one.actors.async_init_model_from_pretrained(one.strategy, model, 1, one.engines)
    if one.reference is not None:
        references += one.reference.async_init_model_from_pretrained(one.strategy, model)
    return references


def _all_actors(one: PolicyProcesses) -> list[Any]:
    groups = [group for group in (one.actors, one.reference) if group is not None]
    return [*one.engines, *(actor for group in groups for actor in group._actor_handlers)]
