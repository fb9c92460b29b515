"""A named participant: which policy it samples from, and how it is instructed."""

import re
from dataclasses import dataclass, field, replace
from typing import Self

from marti_ext.backends.base import Backend, Request, SamplingParams, TokenBackend
from marti_ext.backends.rendezvous import Rendezvous
from marti_ext.errors import UserError
from marti_ext.seeds import derive_seed
from marti_ext.thinking import strip_thinking
from marti_ext.types import Completion, Message, Turn

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what chat endpoints accept as a name


class Recording:
    """The turns of one running episode, and the seed of each call: by its place in the episode, not by its time."""

    def __init__(self, seed: int = 0, rendezvous: Rendezvous | None = None) -> None:
        self.seed = seed
        self.rendezvous = rendezvous
        self._calls = 0
        self._turns: dict[int, Turn] = {}

    async def ask(self, backend: Backend, request: Request) -> Completion:
        if self.rendezvous is None:
            return await backend.complete(request)
        return await self.rendezvous.ask(self, backend, request)

    def next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def keep(self, call: int, turn: Turn) -> None:
        self._turns[call] = turn

    @property
    def turns(self) -> list[Turn]:
        """By round, then in the order in which they were asked for, whenever the replies came."""
        return sorted((self._turns[call] for call in sorted(self._turns)), key=lambda turn: turn.round)


@dataclass(frozen=True)
class Agent:
    """One participant. Agents that name the same policy share weights.

    Raises UserError for a name that an endpoint would refuse, or a trainable agent on a backend without token ids.
    """

    name: str
    backend: Backend
    policy: str = "default"
    persona: str = ""  # system prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    trainable: bool = True
    recording: Recording = field(default_factory=Recording, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(f"agent name {self.name!r}: use 1 to 64 letters, digits, '_' or '-'")
        if not self.trainable:
            return
        if not isinstance(self.backend, TokenBackend):
            source = type(self.backend).__name__
            raise UserError(
                f"agent {self.name!r} cannot be trained: {source} reports no token ids; set trainable: false"
            )
        if self.sampling.temperature == 0:
            raise UserError(f"agent {self.name!r} cannot be trained at temperature 0; sample above 0")

    def recording_to(self, recording: Recording) -> Self:
        return replace(self, recording=recording)

    async def reply(self, *messages: str | Message, interaction: str = "solution", round: int = 0) -> str:
        """Answer one conversation (strings are user messages): the reply as other agents may see it."""
        return (await self.turn(*messages, interaction=interaction, round=round)).text

    async def turn(
        self,
        *messages: str | Message,
        interaction: str = "solution",
        round: int = 0,
        about: tuple[Turn, ...] = (),
    ) -> Turn:
        """Answer one conversation; the call is recorded in the running episode, a failed one too."""
        conversation = tuple(m if isinstance(m, Message) else Message("user", m) for m in messages)
        if self.persona:
            conversation = (Message("system", self.persona), *conversation)
        call = self.recording.next_call()
        request = Request(conversation, self.sampling, derive_seed(self.recording.seed, call))
        completion = Completion("", "error")
        try:
            completion = await self.recording.ask(self.backend, request)
        finally:
            turn = Turn(
                self.name, self.policy, interaction, round, conversation, completion, self.trainable, about,
                text=strip_thinking(completion.text),
            )  # fmt: skip
            self.recording.keep(call, turn)
        return turn
