"""Every finished call of an unfinished run, on disk: after a kill no finished request is asked again."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from marti_ext.backends.base import Backend, BatchBackend, Request
from marti_ext.records import append_rows, read_rows
from marti_ext.types import Completion

DURABLE = 64  # requests of a batch after which their replies are put on the disk


class Journal:
    """Completions by who was asked what: agent's name, conversation, sampling and seed.

    The seed of a call is that of its place in its episode, so equal questions at two places stay two calls.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        rows = read_rows(path) if path.exists() else []
        self._known = {
            row["key"]: Completion(
                row["text"],
                row["finish_reason"],
                temperature=row["temperature"],
                usage=None if row["usage"] is None else (row["usage"][0], row["usage"][1]),
            )
            for row in rows
        }

    def recall(self, agent: str, request: Request) -> Completion | None:
        """The reply of an earlier process, None if there is none."""
        return self._known.get(_key(agent, request))

    def keep(self, agent: str, calls: Iterable[tuple[Request, Completion]]) -> None:
        """Add finished calls; they are on the disk when this returns."""
        rows = [
            {
                "key": _key(agent, request),
                "text": reply.text,
                "finish_reason": reply.finish_reason,
                "temperature": reply.temperature,
                "usage": None if reply.reply_tokens is None else [reply.prompt_tokens, reply.reply_tokens],
            }
            for request, reply in calls
        ]
        with self._lock:
            append_rows(self.path, rows)


def _key(agent: str, request: Request) -> str:
    asked = [agent, [asdict(m) for m in request.messages], asdict(request.sampling), request.seed]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def journaled(backend: Backend, agent: str, journal: Journal) -> Backend:
    """The backend, with every reply kept in the journal and none asked for twice."""
    if isinstance(backend, BatchBackend):
        return _JournaledBatches(backend, agent, journal)
    return _Journaled(backend, agent, journal)


class _Journaled(Backend):
    def __init__(self, inner: Backend, agent: str, journal: Journal) -> None:
        self.context_window = inner.context_window
        self._inner, self._agent, self._journal = inner, agent, journal

    async def complete(self, request: Request) -> Completion:
        known = self._journal.recall(self._agent, request)
        if known is not None:
            return known
        reply = await self._inner.complete(request)
        self._journal.keep(self._agent, [(request, reply)])
        return reply


class _JournaledBatches(BatchBackend):
    def __init__(self, inner: BatchBackend, agent: str, journal: Journal) -> None:
        self.context_window = inner.context_window
        self._inner, self._agent, self._journal = inner, agent, journal

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        known = [self._journal.recall(self._agent, request) for request in requests]
        asked = [request for request, reply in zip(requests, known, strict=True) if reply is None]
        new: list[Completion | Exception] = []
        for start in range(0, len(asked), DURABLE):
            part = asked[start : start + DURABLE]
            replies = self._inner.complete_batch(part)
            finished = [(r, reply) for r, reply in zip(part, replies, strict=True) if isinstance(reply, Completion)]
            self._journal.keep(self._agent, finished)
            new += replies
        fresh = iter(new)
        return [reply if reply is not None else next(fresh) for reply in known]
