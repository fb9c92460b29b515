"""What a GPU holds in each phase of a step, by formula. Sizes are in bytes; P = parameters, N = data-parallel ranks.

Left out, since only the running processes know them: CUDA contexts, communication buffers, fragmentation, and the
activations and CUDA graphs that vLLM measures when it starts. Leave one or two GiB free for the first three.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

from marti_ext.cluster.placement import Part
from marti_ext.cluster.shapes import ModelShape

GIB = 2**30
# Of parameters that ZeRO stage 3 gathers for use: DeepSpeed's default of stage3_max_live_parameters.
MOST_LIVE_PARAMETERS = 1_000_000_000

Phase = Literal["rollout", "hand-over", "training"]
PHASES: tuple[Phase, ...] = ("rollout", "hand-over", "training")


@dataclass(frozen=True)
class States:
    """A training rank's model states on its GPU, and what of them is on the host."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float  # weights of other ranks, while they are used
    host: float

    @property
    def all(self) -> float:
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class Engine:
    """A vLLM rank: of its `budget` on the GPU, what its weights leave is the KV cache of so many tokens."""

    weights: float
    budget: float
    cache_tokens: int


@dataclass(frozen=True)
class PolicyMemory:
    """What one rank of each part of a policy takes. Engines and states may sleep, that is leave the GPU, in turn."""

    states: States
    reference: float
    reference_host: float
    engine: Engine
    engine_sleeps: bool
    states_sleep: bool
    activation: float  # of a token of a micro batch

    @property
    def states_at_rest(self) -> float:
        """OpenRLHF's ds.enable_sleep leaves the bf16 weights on the GPU."""
        return self.states.weights if self.states_sleep else self.states.all

    def host(self, role: str) -> float:
        """What a rank of the part keeps on the host at its most; engines that sleep (level 1) keep their weights."""
        if role == "engine":
            return self.engine.weights if self.engine_sleeps else 0.0
        if role == "ref":
            return self.reference_host
        return self.states.host + self.states.all - self.states_at_rest


def policy_memory(shape: ModelShape, args: SimpleNamespace, gpu: float) -> PolicyMemory:
    """The parts of a policy with OpenRLHF's arguments on GPUs of `gpu` bytes."""
    split = args.ds.tensor_parallel_size
    own = shape.parameters / split
    stage = args.ds.zero_stage
    ranks = args.actor.num_nodes * args.actor.num_gpus_per_node // split
    reference_ranks = args.ref.num_nodes * args.ref.num_gpus_per_node // split if stage == 3 else 1
    reference = 2 * own / reference_ranks
    offloaded = args.ref.offload
    return PolicyMemory(
        states=model_states(
            own,
            ranks=ranks,
            stage=stage,
            adam_offload=args.ds.adam_offload,
            gradient_bytes=4 if args.ds.grad_accum_dtype == "fp32" else 2,
        ),
        reference=0.0 if offloaded else reference,
        reference_host=reference if offloaded else 0.0,
        engine=engine_memory(shape, args.vllm.tensor_parallel_size, args.vllm.gpu_memory_utilization * gpu),
        engine_sleeps=args.vllm.enable_sleep,
        states_sleep=args.ds.enable_sleep and not args.ds.adam_offload,
        activation=activation_per_token(shape, checkpointing=args.actor.gradient_checkpointing_enable)
        / (split * args.ds.ring_attn_size),
    )


def model_states(parameters: float, *, ranks: int, stage: int, adam_offload: bool, gradient_bytes: int = 2) -> States:
    """Mixed-precision AdamW under ZeRO (arXiv:1910.02054, section 3 and figure 1).

    2P weights and 2P gradients in bf16 (4P in float32 with ds.grad_accum_dtype fp32), 12P of float32 master weights
    and two moments. Stage 1 splits the 12P over N ranks, stage 2 the gradients, too, stage 3 the weights, too; of
    these at most 10^9 are gathered at a time (bf16). With adam_offload the 12P / N are on the host, with float32
    gradients of 4P / N (as DeepSpeed's estimate_zero3_model_states_mem_needs counts them).
    """
    weights, gradients, optimizer = 2 * parameters, gradient_bytes * parameters, 12 * parameters
    if stage >= 1:
        optimizer /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage >= 3:
        weights /= ranks
    return States(
        weights,
        gradients,
        optimizer=0.0 if adam_offload else optimizer,
        gathered=2 * min(parameters, MOST_LIVE_PARAMETERS) if stage >= 3 and ranks > 1 else 0.0,
        host=optimizer + optimizer / 3 if adam_offload else 0.0,
    )


def engine_memory(shape: ModelShape, tensor_parallel: int, budget: float) -> Engine:
    """vLLM in bf16: 2P weights over its ranks; what is left of `budget` (gpu_memory_utilization of the GPU) caches.

    A cached token takes a key and a value of each key-value head in each layer; where ranks outnumber the heads,
    each still has one.
    """
    weights = 2 * shape.parameters / tensor_parallel
    heads = max(1, shape.key_value_heads // tensor_parallel)
    token = 2 * 2 * shape.layers * heads * shape.head_width
    return Engine(weights, budget, max(0, int((budget - weights) // token)))


def activation_per_token(shape: ModelShape, *, checkpointing: bool) -> float:
    """What a token of a micro batch takes in the backward pass: 10 V + 2 h L + 17 h + 8 f with checkpointing.

    h = width, f = inner width, L = layers, V = vocabulary. After Korthikanti et al. (arXiv:2205.05198, section 4)
    for bf16 with flash attention (no attention matrix): a layer keeps 11 h of its attention, 2 h + 8 f of a gated MLP
    and 4 h of its norms; with checkpointing (their section 5) each layer keeps its input of 2 h, and one at a time
    the rest. Of the logits, OpenRLHF keeps float32 ones and their gradient, and the gradient in bf16: 4 + 4 + 2.
    A rough number: kernels differ.
    """
    layer = 17 * shape.width + 8 * shape.inner_width
    kept = 2 * shape.width * shape.layers + layer if checkpointing else layer * shape.layers
    return kept + 10 * shape.vocabulary


def peaks(parts: Sequence[Part], policies: Mapping[str, PolicyMemory], *, one_trains: bool) -> dict[Phase, float]:
    """{phase: what a GPU that holds these parts needs}, activations of training aside.

    Rollout: engines are awake, trained states at rest. Hand-over: new weights go to engines whose weights are awake,
    one parameter at a time. Training: engines at rest; with `one_trains` one policy after the other.
    """
    engines = [policies[part.policy] for part in parts if part.role == "engine"]
    actors = [policies[part.policy] for part in parts if part.role == "actor"]
    references = sum(policies[part.policy].reference for part in parts if part.role == "ref")
    rest = sum(one.states_at_rest for one in actors)
    waking = [one.states.all + one.states.gathered - one.states_at_rest for one in actors]
    return {
        "rollout": sum(one.engine.budget for one in engines) + rest + references,
        "hand-over": sum(one.engine.weights if one.engine_sleeps else one.engine.budget for one in engines)
        + rest
        + references,
        "training": sum(0.0 if one.engine_sleeps else one.engine.budget for one in engines)
        + rest
        + (max(waking, default=0.0) if one_trains else sum(waking))
        + references,
    }
