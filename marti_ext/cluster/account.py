"""A run laid out on the described cluster: what is where, what it takes there, and whether that is too much."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from marti_ext.cluster.assignment import Place, assign
from marti_ext.cluster.flags import policy_arguments
from marti_ext.cluster.memory import GIB, PHASES, Phase, PolicyMemory, peaks, policy_memory
from marti_ext.cluster.placement import NodeResources, Part, Placement, check, plan_placement
from marti_ext.cluster.shapes import ModelShape
from marti_ext.config import Cluster, Config


@dataclass(frozen=True)
class Account:
    """All GPUs of a group of places hold the same parts, so that numbers are by group. Sizes are in bytes."""

    cluster: Cluster
    arguments: Mapping[str, SimpleNamespace]  # by policy, as the next
    memory: Mapping[str, PolicyMemory]
    placement: Placement
    places: Mapping[str, list[Place]]  # by group

    @property
    def gpu_memory(self) -> float:
        return self.cluster.gpu_memory * GIB

    def parts(self, group: str) -> list[Part]:
        return [part for part in self.placement.parts if part.group == group]

    def peaks(self, group: str) -> dict[Phase, float]:
        return peaks(self.parts(group), self.memory, one_trains=self.cluster.colocate == "all")

    def left_to_train(self, group: str) -> float:
        return max(0.0, self.gpu_memory - self.peaks(group)["training"])

    def longest_row(self, policy: str) -> int:
        """Tokens of the longest row that a full micro batch of it can be trained on, by a rough count; no row is
        longer than the context window."""
        [group] = {part.group for part in self.placement.of(policy) if part.role == "actor"}
        args = self.arguments[policy]
        tokens = self.left_to_train(group) / self.memory[policy].activation / args.train.micro_batch_size
        return min(int(tokens), int(args.data.max_len))

    def host_by_node(self) -> dict[int, float]:
        host = dict.fromkeys(sorted({place.node for places in self.places.values() for place in places}), 0.0)
        for part in self.placement.parts:
            for place in self.places[part.group]:
                host[place.node] += self.memory[part.policy].host(part.role)
        return host

    def refusal(self) -> str:
        """Why the run would not go, with what is needed and what there is; "" if nothing is known against it."""
        for group in self.placement.groups:
            needs = self.peaks(group)
            phase = max(PHASES, key=lambda phase: needs[phase])
            if needs[phase] > self.gpu_memory:
                names, roles = owners(self.parts(group))
                return (
                    f"policies.{names}: {phase} needs {needs[phase] / GIB:.1f} GiB of a GPU ({roles}), but "
                    f"cluster.gpu_memory is {self.cluster.gpu_memory:g} GiB"
                )
        for policy, one in self.memory.items():
            window = self.arguments[policy].data.max_len
            if one.engine.cache_tokens < window:
                return (
                    f"policies.{policy}: the KV cache of its engine holds {one.engine.cache_tokens:,} tokens, but its "
                    f"context_window is {window:,}: vLLM will not start"
                )
        return ""


def account(config: Config, shapes: Mapping[str, ModelShape], *, needs_reference: bool) -> Account:
    """Raises UserError, with both numbers, for a run that the described cluster has no places for."""
    cluster = config.cluster
    arguments = policy_arguments(config, needs_reference=needs_reference)
    placement = plan_placement(config, arguments, needs_reference=needs_reference)
    nodes = [NodeResources(cluster.gpus_per_node, cluster.cpus_per_node)] * cluster.nodes
    check(placement, nodes, "the described cluster")
    memory = {name: policy_memory(shapes[name], args, cluster.gpu_memory * GIB) for name, args in arguments.items()}
    return Account(cluster, arguments, memory, placement, assign(placement, nodes))


def owners(parts: list[Part]) -> tuple[str, str]:
    """The policies of the parts, and their roles, each once."""
    return ", ".join(dict.fromkeys(p.policy for p in parts)), ", ".join(dict.fromkeys(p.role for p in parts))
