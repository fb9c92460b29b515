"""`marti-ext train --dry-run`: where a run would be placed, and what it would take. It starts and writes nothing."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from marti_ext.build import build_plugins
from marti_ext.cluster import one_device
from marti_ext.cluster.account import Account, account, owners
from marti_ext.cluster.assignment import told
from marti_ext.cluster.budget import Calls, count_calls, policy_budgets
from marti_ext.cluster.memory import GIB, PHASES
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
    refusal = ""
    if config.backend == "openrlhf":
        found = account(config, shapes, needs_reference=maker.needs_reference)
        _show_account(found, shapes, console)
        refusal = found.refusal()
    else:
        one_device.show(config, shapes, console, needs_reference=maker.needs_reference)
    _show_budget(config, count_calls(config, workflow), console)
    for source in config.data.sources:
        if source.path.endswith(SUFFIXES) and not Path(source.path).exists():
            say(console, f"data         {source.path} is missing: a run needs it, this account does not")
    if refusal:
        raise UserError(refusal)


def _show_account(found: Account, shapes: Mapping[str, ModelShape], console: Console) -> None:
    cluster = found.cluster
    say(
        console,
        f"{found.placement.gpus} GPUs of {cluster.nodes} x {cluster.gpus_per_node} of {cluster.gpu_memory:g} GiB "
        f"(cluster.nodes x gpus_per_node, gpu_memory), colocate {cluster.colocate}",
    )
    _show_placement(found, console)
    _show_ranks(found, shapes, console)
    _show_peaks(found, console)
    host = ", ".join(f"node {node}: {_gib(size)} GiB" for node, size in found.host_by_node().items())
    say(console, f"host memory  {host} (optimizers that are offloaded, and what sleeps)")
    say(console, "left out     CUDA contexts, communication buffers, fragmentation, vLLM's own activations")


def _show_placement(found: Account, console: Console) -> None:
    table = Table("policy", "actor", "ref", "engines x GPUs", title="Placement")
    for name, args in found.arguments.items():
        where = {part.role: told(found.places[part.group]) for part in found.placement.of(name)}
        engines = f"{args.vllm.num_engines} x {args.vllm.tensor_parallel_size}: {where['engine']}"
        table.add_row(name, where.get("actor", "-"), where.get("ref", "-"), engines)
    show_table(console, table)


def _show_ranks(found: Account, shapes: Mapping[str, ModelShape], console: Console) -> None:
    """What each rank holds while it is awake."""
    table = Table("policy", title="Memory of a rank, GiB (ZeRO: arXiv:1910.02054)")
    for column in ("parameters", "ZeRO", "weights", "gradients", "optimizer", "gathered", "on the host", "ref"):
        table.add_column(column, justify="right")
    for column in ("vLLM weights", "vLLM share", "KV cache tokens"):
        table.add_column(column, justify="right")
    for name, one in found.memory.items():
        roles = {part.role for part in found.placement.of(name)}
        states, engine = one.states, one.engine
        actor = (states.weights, states.gradients, states.optimizer, states.gathered, one.host("actor"))
        table.add_row(
            name,
            f"{shapes[name].parameters:,}",
            str(found.arguments[name].ds.zero_stage) if "actor" in roles else "-",
            *(_gib(size) if "actor" in roles else "-" for size in actor),
            _gib(one.reference) if "ref" in roles else "-",
            _gib(engine.weights),
            _gib(engine.budget),
            f"{engine.cache_tokens:,}",
        )
    show_table(console, table)


def _show_peaks(found: Account, console: Console) -> None:
    limit = found.gpu_memory
    table = Table("GPUs", "of", *PHASES, "left to train", "longest row", title=f"Peak of a GPU, GiB of {_gib(limit)}")
    for group in found.placement.groups:
        needs, parts = found.peaks(group), found.parts(group)
        trained = [part.policy for part in parts if part.role == "actor"]
        rows = [f"{found.longest_row(name):,} of {found.arguments[name].data.max_len:,}" for name in trained]
        table.add_row(
            told(found.places[group]),
            ": ".join(owners(parts)),
            *(f"[red]{_gib(needs[p])} over[/red]" if needs[p] > limit else _gib(needs[p]) for p in PHASES),
            _gib(found.left_to_train(group)) if trained else "-",
            ", ".join(dict.fromkeys(rows)) or "-",
        )
    show_table(console, table)


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
