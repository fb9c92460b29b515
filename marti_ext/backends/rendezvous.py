"""Where running episodes wait for replies, so that one padded batch can answer many of them.

A batch is formed when no running episode can go on without a reply, never by a timer: which requests share a batch,
and with them every number of a run, depends on the episodes alone.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from marti_ext.backends.base import Backend, BatchBackend, Request
from marti_ext.types import Completion

# Passes of the event loop without a new request after which every branch of an episode counts as waiting. A branch
# needs about two passes per level of nested gather or task group between a reply and the next request.
QUIET_PASSES = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    episode: object
    backend: BatchBackend
    request: Request
    future: asyncio.Future[Completion]


class Rendezvous:
    """Answers the requests of all running episodes together, once none of them can go on without a reply."""

    def __init__(self) -> None:
        self._running: set[object] = set()
        self._waiting: list[_Waiting] = []
        self._elsewhere = 0  # calls in flight on backends that answer one request at a time
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve requests until the block ends."""
        with ThreadPoolExecutor(1, "batches") as thread:  # one thread, so that torch keeps one set of workers
            server = asyncio.create_task(self._serve(thread))
            try:
                yield
            finally:
                server.cancel()
                await asyncio.wait([server])

    @contextmanager
    def running(self, episode: object) -> Iterator[None]:
        """Mark an episode as one that others must wait for until it asks or ends."""
        self._running.add(episode)
        try:
            yield
        finally:
            self._running.discard(episode)
            self._changed.set()

    async def ask(self, episode: object, backend: Backend, request: Request) -> Completion:
        """One reply for one running episode."""
        if isinstance(backend, BatchBackend):
            future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(episode, backend, request, future))
            self._changed.set()
            return await future
        self._elsewhere += 1
        try:
            return await backend.complete(request)
        finally:
            self._elsewhere -= 1
            self._changed.set()

    async def _serve(self, thread: ThreadPoolExecutor) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._quiet() and self._nobody_can_go_on():
                await self._answer(thread)

    async def _quiet(self) -> bool:
        for _ in range(QUIET_PASSES):
            await asyncio.sleep(0)
            if self._changed.is_set():
                return False
        return True

    def _nobody_can_go_on(self) -> bool:
        self._waiting = [w for w in self._waiting if not w.future.done()]  # a deadline may have cancelled some
        return bool(self._waiting) and not self._elsewhere and self._running <= {w.episode for w in self._waiting}

    async def _answer(self, thread: ThreadPoolExecutor) -> None:
        """Answer all that wait. Nobody is woken before the last batch is done, so that no batch depends on timing."""
        batch, self._waiting = self._waiting, []
        by_backend: dict[BatchBackend, list[_Waiting]] = {}
        # In the order of seeds: that of arrival may depend on the speed of other backends.
        for waiting in sorted(batch, key=lambda waiting: waiting.request.seed):
            by_backend.setdefault(waiting.backend, []).append(waiting)
        loop = asyncio.get_running_loop()
        outcomes = await asyncio.gather(
            *(
                loop.run_in_executor(thread, _complete, backend, [w.request for w in group])
                for backend, group in by_backend.items()
            ),
            return_exceptions=True,
        )
        replies: dict[_Waiting, Completion | BaseException] = {}
        for group, outcome in zip(by_backend.values(), outcomes, strict=True):
            answers = [outcome] * len(group) if isinstance(outcome, BaseException) else outcome
            replies.update(zip(group, answers, strict=True))
        for waiting in batch:
            if waiting.future.done():
                continue
            reply = replies[waiting]
            if isinstance(reply, BaseException):
                waiting.future.set_exception(reply)
            else:
                waiting.future.set_result(reply)


def _complete(backend: BatchBackend, requests: list[Request]) -> list[Completion | Exception]:
    """A reply for every request, or an error that a future can carry."""
    try:
        replies = backend.complete_batch(requests)
    except StopIteration as error:
        raise RuntimeError(f"{type(backend).__name__} ran out of replies") from error
    if len(replies) != len(requests):
        raise RuntimeError(f"{type(backend).__name__} gave {len(replies)} replies to {len(requests)} requests")
    return replies
