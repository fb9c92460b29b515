"""Data that flows from a rollout to a gradient: Task -> Turn -> Episode -> Sample.

Shapes: P = prompt tokens, A = action (reply) tokens, T = P + A. Log-probs are in nats, times in seconds, lengths in
tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "context_overflow", "error"]
ScoreStatus = Literal["ok", "unparsed", "truncated", "no_label", "timeout", "failed"]
EpisodeStatus = Literal["ok", "failed", "timeout"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `name` labels the words of another participant; the agent's own words have none."""

    role: Role
    content: str
    name: str = ""

    @property
    def labelled(self) -> str:
        """The words, after the name of another participant who said them."""
        named = not self.name or self.content.startswith(f"{self.name}:")
        return self.content if named else f"{self.name}: {self.content}"


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `label` is the reference answer ("" where there is none); `kind` says which verifier reads it."""

    id: str
    prompt: str
    label: str = ""
    kind: str = "math"
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """What a verifier returns: a value in [0, 1], and how it was come by.

    `value` counts only where `status` is "ok"; with any other status the text was not graded and `value` is 0.0.
    `extracted` is what was read out of the text, `reason` says in one line what is wrong with it, where that is known.
    """

    value: float
    extracted: str = ""
    status: ScoreStatus = "ok"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """One model reply. Token fields are None where the backend cannot report them.

    `log_probs` are those of softmax(logits / temperature) before any top-p cut, at the time of sampling. `usage` is
    (prompt, reply) in tokens as an endpoint counts them that reports no ids.
    """

    text: str
    finish_reason: FinishReason = "stop"
    prompt_ids: Ints | None = None  # (P,)
    token_ids: Ints | None = None  # (A,), the end token included where one was sampled
    log_probs: Floats | None = None  # (A,)
    temperature: float = 1.0
    usage: tuple[int, int] | None = None

    @property
    def silent(self) -> bool:
        """Whether no reply was made: the call failed, or had no room for one."""
        return self.finish_reason in ("context_overflow", "error")

    @property
    def prompt_tokens(self) -> int | None:
        """The length of the prompt, None if unknown."""
        return len(self.prompt_ids) if self.prompt_ids is not None else self.usage and self.usage[0]

    @property
    def reply_tokens(self) -> int | None:
        """The length of the reply, None if unknown."""
        return len(self.token_ids) if self.token_ids is not None else self.usage and self.usage[1]


@dataclass(slots=True, eq=False)
class Turn:
    """One model call by one agent. `reward` is set by a RewardFunction after the episode; None = not trained on.

    `interaction` is the workflow's word for the call (solution, evaluation, scoring, ...). `about` names the earlier
    turns that this one judges. `text` is the reply as other agents may see it, that is without thinking. `score` is
    the workflow's reading of a judgement.
    """

    agent: str
    policy: str
    interaction: str
    round: int
    messages: tuple[Message, ...]
    completion: Completion
    trainable: bool = True
    about: tuple["Turn", ...] = ()
    text: str = ""
    score: Score | None = None
    reward: float | None = None


@dataclass(slots=True)
class Episode:
    """One run of one workflow on one task. `copy` counts the runs on the same task within a batch."""

    task: Task
    copy: int = 0
    turns: list[Turn] = field(default_factory=list)  # by round, then in the order in which they were asked for
    answer: str = ""
    status: EpisodeStatus = "ok"
    error: str | None = None
    seconds: float = 0.0


Group = tuple[str, str, str, int]  # task id, agent, interaction, round


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One training row, unpadded. Samples with the same `group` answer the same question in the same part."""

    policy: str
    group: Group
    token_ids: Ints  # (T,)
    action_mask: Bools  # (T,) True where the policy sampled the token
    rollout_log_probs: Floats  # (T,) 0 where action_mask is False
    reward: float
    temperature: float = 1.0
    truncated: bool = False
    pair: int | None = (
        None  # of preferences: two rows of a policy share it, of which the chosen has advantages above 0
    )
    advantages: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # (T,) 0 where action_mask is False
    kl: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # (T,) log pi - log pi_ref, where computed

    @property
    def interaction(self) -> str:
        return self.group[2]
