"""Replies that are written beforehand: whole rollouts run offline and by heart."""

import itertools
from collections.abc import Callable, Sequence

from marti_ext.backends.base import Backend, Request
from marti_ext.types import Completion


class ScriptedBackend(Backend):
    """Answers by a function of the request, or from a list of replies, over and over.

    `requests` keeps what was asked, in order. No token ids: an agent on it cannot be trained.
    """

    def __init__(self, script: Callable[[Request], str | Completion] | Sequence[str | Completion]) -> None:
        if not callable(script) and not script:
            raise ValueError("a scripted backend needs at least one reply")
        self._script = script if callable(script) else None
        self._replies = None if callable(script) else itertools.cycle(script)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        if self._script is not None:
            reply = self._script(request)
        else:
            assert self._replies is not None
            reply = next(self._replies)
        return Completion(reply) if isinstance(reply, str) else reply
