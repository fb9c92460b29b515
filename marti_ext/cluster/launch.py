"""A config's policies started on a Ray cluster."""

from collections.abc import Mapping
from types import SimpleNamespace

from marti_ext.backends.vllm import VLLMBackend
from marti_ext.cluster.placement import Placement
from marti_ext.cluster.session import Session
from marti_ext.cluster.start import Needs, start
from marti_ext.config import Config, HFPolicy
from marti_ext.training.openrlhf import OpenRLHFTrainer


def launch(
    session: Session, placement: Placement, config: Config, arguments: Mapping[str, SimpleNamespace]
) -> tuple[dict[str, VLLMBackend], dict[str, OpenRLHFTrainer]]:
    """{policy: its backend}, {trained policy: its trainer}; the session ends every process.

    Raises LostProcessError naming the policy.
    """
    processes = start(session, _needs(session, placement, arguments))
    backends: dict[str, VLLMBackend] = {}
    trainers: dict[str, OpenRLHFTrainer] = {}
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
    return backends, trainers


def _needs(session: Session, placement: Placement, arguments: Mapping[str, SimpleNamespace]) -> dict[str, Needs]:
    """What each policy is started with; the places of all are taken here."""
    places = {group: session.group(bundles) for group, bundles in placement.groups.items()}
    needs = {}
    for name, args in arguments.items():
        parts = placement.of(name)
        share = min(placement.share(part.group) for part in parts)
        needs[name] = Needs(args, {part.role: places[part.group] for part in parts}, share)
    return needs
