"""Which GPUs of a described cluster a placement takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from marti_ext.cluster.placement import NodeResources, Part, Placement
from marti_ext.errors import UserError


@dataclass(frozen=True, order=True)
class Place:
    """One GPU, by the numbers of its node and on it."""

    node: int
    gpu: int


def assign(placement: Placement, nodes: Sequence[NodeResources]) -> dict[str, list[Place]]:
    """{group: its places}. As Ray's PACK: a group goes onto one node if it can, else onto few.

    What has to be on one node (an engine's tensor-parallel ranks, an actor's GPUs per node) is; the widest are placed
    first. Raises UserError, with both numbers, where the free GPUs lie on too many nodes for that.
    """
    free = [list(range(int(min(node.gpus, node.cpus)))) for node in nodes]
    widest = {
        group: max((part for part in placement.parts if part.group == group), key=lambda part: part.node_gpus)
        for group in placement.groups
    }
    places: dict[str, list[Place]] = {}
    for group, part in sorted(widest.items(), key=lambda item: -item[1].node_gpus):
        count, width = placement.groups[group], part.node_gpus
        one_node = any(len(gpus) >= count for gpus in free)
        sizes = [count] if one_node else [width] * (count // width) + [1] * (count % width)
        places[group] = sorted(place for size in sizes for place in _take(free, size, part))
    return {group: places[group] for group in placement.groups}


def _take(free: list[list[int]], size: int, part: Part) -> list[Place]:
    """Take `size` GPUs of the first node that has them."""
    for node, gpus in enumerate(free):
        if len(gpus) >= size:
            taken, free[node] = gpus[:size], gpus[size:]
            return [Place(node, gpu) for gpu in taken]
    raise UserError(
        f"policies.{part.policy}: its {part.role} needs {size} GPUs on one node; beside the other parts no node of "
        f"the described cluster has more than {max(map(len, free))}"
    )


def told(places: Sequence[Place]) -> str:
    """node 0: GPUs 0-1, node 1: GPU 3"""
    return ", ".join(
        f"node {node}: {_numbers([place.gpu for place in on_node])}"
        for node, on_node in groupby(sorted(places), key=lambda place: place.node)
    )


def _numbers(gpus: Sequence[int]) -> str:
    """GPUs 0-2, 5"""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    numbers = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"GPU{'s' if len(gpus) > 1 else ''} {numbers}"
