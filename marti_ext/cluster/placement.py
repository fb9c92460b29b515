"""What a run's processes need of a cluster, compared with what it has before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

from marti_ext.config import Config
from marti_ext.errors import UserError

Role = Literal["actor", "ref", "engine"]
ENGINE_SHARE = 0.2  # of a GPU: what OpenRLHF's engines take where they share one
MOST_SHARING = 4  # policies on one GPU: their engines take 0.8 of it, their actors the rest


@dataclass(frozen=True)
class NodeResources:
    """What one node has, or has free."""

    gpus: float
    cpus: float


@dataclass(frozen=True)
class Part:
    """The actor ranks, reference ranks or engines of one policy. `group` names the places that they are put on.

    `node_gpus` is how many GPUs have to be on one node.
    """

    policy: str
    role: Role
    gpus: int
    node_gpus: int
    group: str


@dataclass(frozen=True)
class Placement:
    """The parts, and {group: its places}; a place is one GPU and one CPU. `shared` says whether parts share places."""

    parts: tuple[Part, ...]
    groups: Mapping[str, int]
    shared: bool

    @property
    def gpus(self) -> int:
        return sum(self.groups.values())

    def of(self, policy: str) -> list[Part]:
        return [part for part in self.parts if part.policy == policy]

    def share(self, group: str) -> float:
        """Of a GPU, what Ray counts for a rank of the group that is no engine."""
        engines = sum(part.role == "engine" for part in self.parts if part.group == group)
        others = sum(part.role != "engine" for part in self.parts if part.group == group)
        share = round((1 - ENGINE_SHARE * engines) / max(1, others), 4) - 1e-4  # Ray counts in steps of 0.0001
        return min(share, ENGINE_SHARE)


def plan_placement(config: Config, arguments: Mapping[str, SimpleNamespace], *, needs_reference: bool) -> Placement:
    """The parts of every policy. Raises UserError for numbers that `cluster.colocate` cannot bring together."""
    if config.cluster.async_rollout and config.cluster.colocate != "none":
        raise UserError(
            f"cluster.async_rollout: engines sample while actors train, so they cannot share GPUs: with it "
            f"cluster.colocate must be none, not {config.cluster.colocate}"
        )
    trained = {agent.policy for agent in config.agents if agent.trainable}
    parts: list[Part] = []
    groups: dict[str, int] = {}
    for name, args in arguments.items():
        own = _sizes(args, trained=name in trained, needs_reference=needs_reference)
        for role, (gpus, node_gpus) in own.items():
            group = _group(config.cluster.colocate, name, role, args)
            if groups.setdefault(group, gpus) != gpus:
                raise UserError(
                    f"policies.{name}: its {role} needs {gpus} GPUs, but shares {groups[group]} (cluster.colocate "
                    f"{config.cluster.colocate}): give actor.num_nodes x actor.num_gpus_per_node, the same of ref, "
                    "and vllm.num_engines x vllm.tensor_parallel_size one size"
                )
            parts.append(Part(name, role, gpus, node_gpus, group))
    if config.cluster.colocate == "all" and len(arguments) > MOST_SHARING:
        raise UserError(
            f"cluster.colocate all: {len(arguments)} policies share GPUs, and OpenRLHF's engines take {ENGINE_SHARE} "
            f"of one each: at most {MOST_SHARING}"
        )
    return Placement(tuple(parts), groups, config.cluster.colocate != "none")


def check(placement: Placement, nodes: Sequence[NodeResources], source: str) -> None:
    """Raise UserError, with both numbers, for a placement that the nodes have no room for now."""
    widest = max(placement.parts, key=lambda part: part.node_gpus)
    if widest.node_gpus > max((node.gpus for node in nodes), default=0):
        raise UserError(
            f"policies.{widest.policy}: its {widest.role} needs {widest.node_gpus} GPUs on one node; the largest of "
            f"{source} has {max((node.gpus for node in nodes), default=0):g}"
        )
    for what, free in (("GPUs", [n.gpus for n in nodes]), ("CPUs", [n.cpus for n in nodes])):
        if placement.gpus > sum(int(count) for count in free):
            raise UserError(
                f"the run needs {placement.gpus} {what} ({_needs(placement)}), but {source} has {sum(free):g} free"
            )
    places = sum(int(min(node.gpus, node.cpus)) for node in nodes)
    if placement.gpus > places:
        raise UserError(
            f"the run needs {placement.gpus} places of one GPU and one CPU on the same node ({_needs(placement)}), "
            f"but {source} has {places}"
        )


def _needs(placement: Placement) -> str:
    if placement.shared:
        return ", ".join(f"{group}: {count}" for group, count in placement.groups.items())
    return ", ".join(f"{part.policy}: {part.gpus} for its {part.role}" for part in placement.parts)


def _sizes(args: SimpleNamespace, *, trained: bool, needs_reference: bool) -> dict[Role, tuple[int, int]]:
    """{role: (GPUs, GPUs on one node)}"""
    engines = args.vllm.num_engines * args.vllm.tensor_parallel_size
    sizes: dict[Role, tuple[int, int]] = {"engine": (engines, args.vllm.tensor_parallel_size)}
    if trained:
        sizes["actor"] = (args.actor.num_nodes * args.actor.num_gpus_per_node, args.actor.num_gpus_per_node)
        if needs_reference or args.algo.kl.use_loss:
            sizes["ref"] = (args.ref.num_nodes * args.ref.num_gpus_per_node, args.ref.num_gpus_per_node)
    return sizes


def _group(colocate: str, policy: str, role: Role, args: SimpleNamespace) -> str:
    if colocate == "all":
        return "all"
    if colocate == "per_policy":
        return policy
    if role == "ref" and args.train.colocate_actor_ref:
        return f"{policy}.actor"
    return f"{policy}.{role}"
