"""`marti-ext train --dry-run`: where a run would be placed, and what it would take. It starts and writes nothing."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console
from rich.table import Table

from marti_ext.build import build_plugins
from marti_ext.cluster import one_device
from marti_ext.cluster.assignment import Place, assign, by_node, told
from marti_ext.cluster.budget import Calls, count_calls, policy_budgets
from marti_ext.cluster.flags import policy_arguments
from marti_ext.cluster.memory import GIB, PHASES, Phase, PolicyMemory, peaks, policy_memory
from marti_ext.cluster.placement import NodeResources, Part, Placement, check, plan_placement
from marti_ext.cluster.shapes import ModelShape, model_shape
from marti_ext.config import Config, HFPolicy
from marti_ext.datasets.rows import SUFFIXES
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table


def dry_run(config: Config, console: Console) -> None:
    """Print placement, memory and token budget; of `backend: local` those of one device.

    Raises UserError, with both numbers, for a run that the described cluster has no room for.
    """
    workflow, _, maker = build_plugins(config)
    shapes = {
        name: model_shape(policy.model, trust_remote_code=policy.trust_remote_code)
        for name, policy in config.policies.items()
        if isinstance(policy, HFPolicy)
    }
    if config.backend == "openrlhf":
        refusal = _account(config, shapes, console, needs_reference=maker.needs_reference)
    else:
        refusal = ""
        one_device.show(config, shapes, console, needs_reference=maker.needs_reference)
    _show_budget(config, count_calls(config, workflow), console)
    for source in config.data.sources:
        if source.path.endswith(SUFFIXES) and not Path(source.path).exists():
            say(console, f"data         {source.path} is missing: a run needs it, this account does not")
    if refusal:
        raise UserError(refusal)


def _account(config: Config, shapes: Mapping[str, ModelShape], console: Console, *, needs_reference: bool) -> str:
    """Placement and memory, printed; why the run would not fit, or nothing. Raises UserError for no placement."""
    cluster = config.cluster
    arguments = policy_arguments(config, needs_reference=needs_reference)
    placement = plan_placement(config, arguments, needs_reference=needs_reference)
    nodes = [NodeResources(cluster.gpus_per_node, cluster.cpus_per_node)] * cluster.nodes
    check(placement, nodes, "the described cluster")
    places = assign(placement, nodes)
    say(
        console,
        f"{placement.gpus} GPUs of {cluster.nodes} x {cluster.gpus_per_node} of {cluster.gpu_memory:g} GiB "
        f"(cluster.nodes x gpus_per_node, gpu_memory), colocate {cluster.colocate}",
    )
    memory = {name: policy_memory(shapes[name], args, cluster.gpu_memory * GIB) for name, args in arguments.items()}
    _show_placement(placement, places, arguments, console)
    _show_states(shapes, memory, arguments, console)
    _show_peaks(config, placement, places, memory, console)
    _show_host(placement, places, memory, console)
    return _refusal(config, placement, memory)


def _show_placement(
    placement: Placement,
    places: Mapping[str, list[Place]],
    arguments: Mapping[str, SimpleNamespace],
    console: Console,
) -> None:
    table = Table("policy", "actor", "ref", "engines x GPUs", title="Placement")
    for name, args in arguments.items():
        where = {part.role: told(places[part.group]) for part in placement.of(name)}
        engines = f"{args.vllm.num_engines} x {args.vllm.tensor_parallel_size}: {where['engine']}"
        table.add_row(name, where.get("actor", "-"), where.get("ref", "-"), engines)
    show_table(console, table)


def _show_states(
    shapes: Mapping[str, ModelShape],
    memory: Mapping[str, PolicyMemory],
    arguments: Mapping[str, SimpleNamespace],
    console: Console,
) -> None:
    table = Table(title="Memory of a rank, GiB (ZeRO: arXiv:1910.02054)")
    for column in ("policy", "parameters", "ZeRO", "weights", "gradients", "optimizer", "gathered", "on the host"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for column in ("vLLM weights", "vLLM share", "KV cache tokens"):
        table.add_column(column, justify="right")
    for name, one in memory.items():
        states, engine = one.states, one.engine
        sizes = (states.weights, states.gradients, states.optimizer, states.gathered, one.host("actor"))
        table.add_row(
            name,
            f"{shapes[name].parameters:,}",
            str(arguments[name].ds.zero_stage),
            *(_gib(size) for size in (*sizes, engine.weights, engine.budget)),
            f"{engine.cache_tokens:,}",
        )
    show_table(console, table)


def _show_peaks(
    config: Config,
    placement: Placement,
    places: Mapping[str, list[Place]],
    memory: Mapping[str, PolicyMemory],
    console: Console,
) -> None:
    limit = config.cluster.gpu_memory
    table = Table("GPUs", "of", *PHASES, "left to train", "longest row", title=f"Peak of a GPU, GiB of {limit:g}")
    for group in placement.groups:
        parts = _parts(placement, group)
        needs = _needs(config, parts, memory)
        cells = [f"[red]{_gib(needs[p])} over[/red]" if needs[p] > limit * GIB else _gib(needs[p]) for p in PHASES]
        left = limit * GIB - needs["training"]
        trained = [part.policy for part in parts if part.role == "actor"]
        rows = [_longest_row(config, name, left, memory[name]) for name in trained]
        owners = (
            f"{', '.join(dict.fromkeys(p.policy for p in parts))}: {', '.join(dict.fromkeys(p.role for p in parts))}"
        )
        table.add_row(
            told(places[group]),
            owners,
            *cells,
            _gib(max(0.0, left)) if trained else "-",
            ", ".join(dict.fromkeys(rows)) or "-",
        )
    show_table(console, table)


def _longest_row(config: Config, name: str, left: float, memory: PolicyMemory) -> str:
    """Rows of this many tokens still train in the memory that is left, by a rough count of activations."""
    policy = config.policies[name]
    assert isinstance(policy, HFPolicy)
    assert policy.context_window is not None
    tokens = max(0, int(left / memory.activation / policy.training.micro_batch_size))
    if tokens >= policy.context_window:
        return f"{policy.context_window:,} (all)"
    return f"~{tokens:,} of {policy.context_window:,}"


def _show_host(
    placement: Placement,
    places: Mapping[str, list[Place]],
    memory: Mapping[str, PolicyMemory],
    console: Console,
) -> None:
    host: dict[int, float] = {}
    for part in placement.parts:
        for node, ranks in by_node(places, part.group).items():
            host[node] = host.get(node, 0.0) + ranks * memory[part.policy].host(part.role)
    told_nodes = ", ".join(f"node {node}: {_gib(size)} GiB" for node, size in sorted(host.items()) if size)
    say(console, f"host memory  {told_nodes or 'none set aside'} (optimizers that are offloaded, and what sleeps)")
    say(console, "left out     CUDA contexts, communication buffers, fragmentation, vLLM's own activations")


def _refusal(config: Config, placement: Placement, memory: Mapping[str, PolicyMemory]) -> str:
    limit = config.cluster.gpu_memory
    for group in placement.groups:
        parts = _parts(placement, group)
        needs = _needs(config, parts, memory)
        phase = max(PHASES, key=lambda phase: needs[phase])
        if needs[phase] > limit * GIB:
            names, roles = (
                ", ".join(dict.fromkeys(words)) for words in zip(*((p.policy, p.role) for p in parts), strict=True)
            )
            return (
                f"policies.{names}: {phase} needs {_gib(needs[phase])} GiB of a GPU ({roles}), but cluster.gpu_memory "
                f"is {limit:g} GiB"
            )
    for name, one in memory.items():
        policy = config.policies[name]
        assert isinstance(policy, HFPolicy)
        if policy.context_window is not None and one.engine.cache_tokens < policy.context_window:
            return (
                f"policies.{name}: the KV cache of its engine holds {one.engine.cache_tokens:,} tokens, but its "
                f"context_window is {policy.context_window:,}: vLLM will not start"
            )
    return ""


def _parts(placement: Placement, group: str) -> list[Part]:
    return [part for part in placement.parts if part.group == group]


def _needs(config: Config, parts: list[Part], memory: Mapping[str, PolicyMemory]) -> dict[Phase, float]:
    return peaks(parts, memory, one_trains=config.cluster.colocate == "all")


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def _show_budget(config: Config, calls: Calls, console: Console) -> None:
    rollout = config.rollout
    episodes = rollout.tasks_per_step * rollout.copies_per_task
    say(console, f"\nepisodes     {episodes} a step ({rollout.tasks_per_step} tasks x {rollout.copies_per_task})")
    if calls.failure:
        say(console, f"calls        not counted: the workflow fails on a made-up task: {calls.failure}")
        return
    about = "~" if calls.random else ""
    each = ", ".join(f"{about}{number:.4g} {name}" for name, number in calls.by_interaction().items())
    chance = "; ~ expected, since chance decides who speaks" if calls.random else ""
    say(console, f"calls        {about}{calls.total():.4g} an episode: {each}{chance}")
    table = Table("policy", title=f"A step, of {config.steps}; rows and tokens at the most")
    for column in ("calls", "rows", "updates", "batch", "generated tokens", "training tokens", "updates of the run"):
        table.add_column(column, justify="right")
    for one in policy_budgets(config, calls):
        policy = config.policies[one.policy]
        table.add_row(
            one.policy,
            f"{about}{one.calls:,.0f}",
            f"{about}{one.rows:,.0f}",
            f"{about}{one.updates}",
            str(policy.training.batch_size) if isinstance(policy, HFPolicy) else "-",
            f"{about}{one.generated_tokens:,.0f}",
            "-" if one.training_tokens is None else f"{about}{one.training_tokens:,.0f}",
            f"{about}{one.updates * config.steps:,}",
        )
    show_table(console, table)
    say(console, "             a row for each call of a trained agent, less those that the reward leaves out")
