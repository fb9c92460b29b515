"""A run as one YAML file: every key, its default and what it means. `marti-ext train --help` prints it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from marti_ext.backends.base import SamplingParams
from marti_ext.backends.options import ModelOptions
from marti_ext.datasets.load import DataConfig
from marti_ext.training.options import TrainingOptions


class Section(BaseModel):
    """A mapping of the YAML file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


# A policy's name is also that of its folder.
PolicyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Sampling(Section):
    """How replies are sampled."""

    temperature: float = Field(1.0, ge=0)
    """Softmax temperature; 0 is greedy, and not for agents that are trained."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling. Log-probs are those before the cut, so below 1 training has a bias."""
    max_tokens: int = Field(512, ge=1)
    """The longest reply, in tokens."""

    def params(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_p, self.max_tokens)


class AgentConfig(Section):
    """One participant."""

    name: str
    """Its name: letters, digits, '_' and '-'; each agent has its own."""
    policy: str = "default"
    """The policy that it samples from; agents that name the same one share weights."""
    persona: str = ""
    """A system prompt."""
    trainable: bool = True
    """Whether its turns train its policy."""
    sampling: Sampling = Sampling()
    """What differs from the sampling of all agents."""


class HFPolicy(ModelOptions):
    """Weights in Hugging Face format, sampled from and trained in this process."""

    backend: Literal["hf"] = "hf"
    """hf: weights in Hugging Face format · openai: an OpenAI-compatible endpoint · scripted: fixed replies."""
    training: TrainingOptions = TrainingOptions()
    """What differs from the training of all policies."""
    openrlhf: dict[str, Any] = Field({})
    """What differs from the openrlhf of all policies."""


class OpenAIPolicy(Section):
    """Any OpenAI-compatible endpoint. Agents on it need trainable: false."""

    backend: Literal["openai"]
    """An OpenAI-compatible endpoint."""
    model: str
    """The name that the endpoint serves the model under."""
    base_url: str | None = None
    """The endpoint's URL up to /v1; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key."""
    timeout: float = Field(600.0, gt=0)
    """Seconds for one call, all its retries included."""
    max_retries: int = Field(5, ge=0)
    """Further tries after connection errors, rate limits and server errors."""
    extra_body: dict[str, Any] = {}
    """Further fields of the request, for example {chat_template_kwargs: {enable_thinking: false}}."""


class ScriptedPolicy(Section):
    """Fixed replies in turn. Agents on it need trainable: false."""

    backend: Literal["scripted"]
    """Fixed replies."""
    replies: list[str] = Field(min_length=1)
    """Given out one after the other, over and over, to whoever asks next; rollout.concurrency: 1 keeps their order."""


def _backend_of(policy: Any) -> str:
    if isinstance(policy, OpenAIPolicy | ScriptedPolicy):
        return policy.backend
    return str(policy.get("backend", "hf")) if isinstance(policy, dict) else "hf"


Policy = Annotated[
    Annotated[HFPolicy, Tag("hf")]
    | Annotated[OpenAIPolicy, Tag("openai")]
    | Annotated[ScriptedPolicy, Tag("scripted")],
    Discriminator(_backend_of),
]


class Plugin(BaseModel):
    """A plug-in: its name, and its own fields beside it."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    name: str
    """A built-in one, package.module:Class, or path/to/file.py:Class. Its options stand beside the name."""

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Rollout(Section):
    """Stage 1."""

    tasks_per_step: int = Field(8, ge=1)
    """Tasks of one training step."""
    copies_per_task: int = Field(1, ge=1)
    """Episodes of each task (OpenRLHF's n_samples_per_prompt)."""
    concurrency: int = Field(256, ge=1)
    """Episodes that run at once."""
    timeout: float | None = Field(None, gt=0)
    """Deadline of an episode in seconds; an episode past it is left out. It ends what a workflow waits for, not code
    of its own that never waits."""


class Cluster(Section):
    """Where and how `backend: openrlhf` runs; `backend: local` does not read it."""

    colocate: Literal["all", "per_policy", "none"] = "none"
    """Which processes share GPUs: all of all policies, a policy's trainer and engines, or none."""
    address: str | None = None
    """A running Ray cluster to join, for example auto; by default Ray is started here and ended with the run."""
    max_restarts: int = Field(0, ge=0)
    """How often a run that lost a process goes on by itself from the last checkpoint."""
    async_rollout: bool = False
    """Roll out step t+1 while step t trains: its replies come from weights that are one step old."""
    nodes: int = Field(1, ge=1)
    """Nodes of the cluster that --dry-run plans for, as the next three."""
    gpus_per_node: int = Field(8, ge=0)
    """GPUs of a node."""
    cpus_per_node: int = Field(64, ge=1)
    """CPU cores of a node."""
    gpu_memory: float = Field(80.0, gt=0)
    """Memory of a GPU in GiB."""


class Checkpoint(Section):
    """What is kept to go on from."""

    every: int = Field(1, ge=1)
    """Steps between checkpoints; there is always one after the last step."""
    keep: int = Field(2, ge=1)
    """How many of the latest are kept."""
    keep_weights: int = Field(0, ge=0)
    """Of how many before these the Hugging Face folders are kept, as checkpoints/weights-00003/POLICY, without the
    optimizer's state."""


class Evaluation(Section):
    """Accuracy on tasks that are not trained on, while a run goes on. The verifier is asked; no reward comes of it."""

    data: DataConfig
    """The held-out tasks, with labels."""
    every: int = Field(5, ge=1)
    """Steps between evaluations, each with a checkpoint; there is one before the first step and one after the last."""
    workflow: Plugin = Plugin(name="vanilla")
    """How a task is answered. Every trained policy answers alone, as the first of its agents."""
    copies: int = Field(1, ge=1)
    """Answers to each task, of which the accuracy is the mean."""


class Wandb(Section):
    """Weights & Biases."""

    project: str
    """The project's name."""
    name: str | None = None
    """The run's name."""
    mode: Literal["online", "offline", "disabled"] = "online"
    """offline keeps the run in the run folder."""


class Tracking(Section):
    """Where metrics go beside metrics.jsonl, which is always written."""

    tensorboard: bool = False
    """Write TensorBoard event files into the run folder."""
    wandb: Wandb | None = None
    """Log to Weights & Biases."""


class Config(Section):
    """One run."""

    run_dir: str = Field(min_length=1)
    """The run folder: what the run writes, and resumes from."""
    seed: int = 0
    """The same config and seed give the same run on a CPU, bit for bit."""
    backend: Literal["local", "openrlhf"] = "local"
    """Where policies are sampled and trained; local: in this process, with plain torch · openrlhf: on a Ray cluster,
    each policy with vLLM engines and DeepSpeed actors of its own."""
    steps: int = Field(1, ge=1)
    """Training steps: rollout, experience, an update of every policy."""
    resume: Literal["auto", "never"] = "auto"
    """auto goes on from the latest checkpoint of run_dir, with the same config but for steps, checkpoint and tracking;
    never refuses a folder that holds a run."""
    data: DataConfig
    """The tasks."""
    agents: list[AgentConfig] = Field(min_length=1)
    """The team, in the order in which workflows see it."""
    policies: dict[PolicyName, Policy] = Field(min_length=1)
    """Policies by name: letters, digits, '_' and '-', as for agents."""
    sampling: Sampling = Sampling()
    """How all agents sample."""
    workflow: Plugin
    """Stage 1: how agents work on a task."""
    reward: Plugin
    """Between stages 1 and 2: who deserves what."""
    experience: Plugin = Plugin(name="reinforce_pp")
    """Stage 2: from rewarded episodes to training rows."""
    training: TrainingOptions = TrainingOptions()
    """Stage 3: how all policies are trained."""
    rollout: Rollout = Rollout()
    """Stage 1: how many episodes."""
    checkpoint: Checkpoint = Checkpoint()
    """Checkpoints."""
    evaluation: Evaluation | None = None
    """Held-out tasks, by which the best weights of each policy are kept as checkpoints/best-POLICY-00003."""
    judge_quality: bool = False
    """Compare the scores that judges give in training with the verifier's verdicts, where tasks have labels."""
    tracking: Tracking = Tracking()
    """Trackers."""
    cluster: Cluster = Cluster()
    """The cluster of backend openrlhf."""
    openrlhf: dict[str, Any] = {}
    """OpenRLHF's own flags as a nested mapping, for example {vllm: {num_engines: 2}}, for backend openrlhf. What this
    config says elsewhere (training, sampling, data, checkpoint, tracking) is said there."""

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        """Agents and policies say only what differs from the common sampling and training."""
        if not isinstance(values, dict):
            return values
        inherited = dict(values)
        if isinstance(values.get("agents"), list):
            inherited["agents"] = [_over(values.get("sampling"), agent, "sampling") for agent in values["agents"]]
        if isinstance(values.get("policies"), dict):
            inherited["policies"] = {
                name: _over(values.get("training"), policy, "training") if _is_hf(policy) else policy
                for name, policy in values["policies"].items()
            }
        return inherited

    @model_validator(mode="after")
    def _agents_have_policies(self) -> "Config":
        for agent in self.agents:
            if agent.policy not in self.policies:
                raise ValueError(f"agent {agent.name!r} names policy {agent.policy!r}, which is not under policies")
        for name in self.policies.keys() - {agent.policy for agent in self.agents}:
            raise ValueError(f"policy {name!r} is used by no agent; remove it or let an agent name it")
        return self


def _is_hf(policy: Any) -> bool:
    return isinstance(policy, dict) and _backend_of(policy) == "hf"


def _over(common: Any, one: Any, key: str) -> Any:
    if not isinstance(one, dict) or not isinstance(common, dict):
        return one
    own = one.get(key) or {}
    return {**one, key: {**common, **own} if isinstance(own, dict) else own}
