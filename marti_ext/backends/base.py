"""Where tokens come from."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from marti_ext.types import Completion, Message


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a reply is sampled. `max_tokens` counts the reply alone; temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One conversation to answer. The same request on the same weights gives the same reply where a backend can."""

    messages: tuple[Message, ...]
    sampling: SamplingParams
    seed: int = 0


class Backend(ABC):
    """Answers conversations. `context_window` is its longest prompt and reply together in tokens, None if unknown."""

    context_window: int | None = None

    async def check(self) -> None:
        """Raise UserError, before anything runs, if no reply is to be had."""
        return

    async def start_rollout(self) -> None:
        """Called before the first request of a stage 1."""
        return

    async def end_rollout(self) -> None:
        """Called after its last."""
        return

    @abstractmethod
    async def complete(self, request: Request) -> Completion:
        """One reply. Raises what the source raises; the rollout keeps it as data."""


class TokenBackend(Backend):
    """A backend that reports the ids and log-probs it sampled: what a trainable agent needs."""


class BatchBackend(TokenBackend):
    """A token backend that answers many requests in one blocking call, in this process."""

    async def complete(self, request: Request) -> Completion:
        [reply] = await asyncio.to_thread(self.complete_batch, [request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    @abstractmethod
    def complete_batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """One reply per request, in order; an error in the place of a request that cannot be answered."""
