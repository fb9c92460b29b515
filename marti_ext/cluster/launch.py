"""A config's policies on a Ray cluster: checked, placed, started."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

from marti_ext.backends.vllm import VLLMBackend
from marti_ext.cluster.placement import ENGINE_SHARE, Placement, check, plan_placement
from marti_ext.cluster.session import Session
from marti_ext.cluster.start import Needs, start
from marti_ext.config import Config, HFPolicy
from marti_ext.training.openrlhf import OpenRLHFTrainer
from patches.cpu import has_accelerator


@contextmanager
def launched(
    config: Config, arguments: Mapping[str, SimpleNamespace], *, needs_reference: bool
) -> Iterator[tuple[dict[str, VLLMBackend], dict[str, OpenRLHFTrainer]]]:
    """{policy: its backend}, {trained policy: its trainer}; every process is ended with the block.

    Raises UserError for a plan that the cluster has no room for, before anything is placed.
    """
    session = Session()
    placement = plan_placement(config, arguments, needs_reference=needs_reference)
    logical = None if has_accelerator() else placement.gpus
    with session.opened(config.cluster.address, logical=logical):
        check(placement, session.free(), "the cluster")
        processes = start(session, _needs(session, placement, arguments))
        backends, trainers = {}, {}
        for name, one in processes.items():
            policy = config.policies[name]
            assert isinstance(policy, HFPolicy)
            backends[name] = VLLMBackend(
                one.engines,
                one.tokenizer,
                context_window=one.args.data.max_len,
                failed=session.failed(f"policy {name!r}: an engine"),
                template_arguments=policy.template_arguments,
                sleeps=one.args.vllm.enable_sleep,
            )
            if one.actors is not None:
                trainers[name] = OpenRLHFTrainer(
                    one.args, one.strategy, one.actors, one.reference, backends[name], one.tokenizer, session
                )
                trainers[name].alone = config.cluster.colocate == "all"
        yield backends, trainers


def _needs(session: Session, placement: Placement, arguments: Mapping[str, SimpleNamespace]) -> dict[str, Needs]:
    """What each policy is started with; places are taken here where parts share them."""
    places = {name: session.group(bundles) for name, bundles in placement.groups.items()} if placement.shared else {}
    sharing = sum(part.role != "engine" for part in placement.parts) / max(1, len(places))  # on one GPU
    engines = sum(part.role == "engine" for part in placement.parts) / max(1, len(places))
    share = round((1 - ENGINE_SHARE * engines) / max(1, sharing), 4) - 1e-4  # Ray counts in steps of 0.0001
    needs = {}
    for name, args in arguments.items():
        roles = {part.role: part for part in placement.of(name)}
        group = places[roles["engine"].group] if placement.shared else None
        needs[name] = Needs(args, "actor" in roles, "ref" in roles, group, min(share, ENGINE_SHARE))
    return needs
