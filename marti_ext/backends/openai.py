"""Any OpenAI-compatible chat-completions endpoint. It reports no token ids, so its agents cannot be trained."""

import asyncio
import math
import os
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from typing import Any, cast

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from marti_ext.backends.base import Backend, Request
from marti_ext.errors import UserError
from marti_ext.types import Completion, FinishReason

OPENAI_URL = "https://api.openai.com/v1"
CONNECT_SECONDS = 10.0  # for one attempt to connect; everything else is under the total deadline
CHECK_SECONDS = 10.0
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0  # seconds
FINISH_REASONS: Mapping[str | None, FinishReason] = {"stop": "stop", "length": "length"}
OWN_FIELDS = frozenset({"model", "messages", "temperature", "top_p", "max_tokens", "seed", "n", "stream"})
OVERFLOW = re.compile(r"context.?(length|window|size)|max(imum)? model len(gth)?|prompt is too long", re.IGNORECASE)
JITTER = random.Random()  # not the global generator, which a run may have seeded


class EndpointError(RuntimeError):
    """The endpoint refused a request, or kept failing until the retries were used up."""


@dataclass(slots=True)
class _Shared:
    """One event loop's client, and how many calls are using it."""

    client: openai.AsyncOpenAI
    calls: int = 0


@dataclass(frozen=True, eq=False)
class OpenAIBackend(Backend):
    """Replies from `model` behind `base_url` (default: the environment's OPENAI_BASE_URL, else OpenAI itself).

    `timeout` is the total deadline of one call in seconds, all retries and waits included. `max_retries` bounds the
    further tries after lost connections and statuses 408, 409, 429 and 5xx; other refusals fail at once. The key is
    read from the environment variable `api_key_env` at every call and kept nowhere; a server of one's own needs none.
    `extra_body` is sent along with every request, e.g. {"chat_template_kwargs": {"enable_thinking": False}}.

    Raises UserError where a field cannot be right.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout: float = 600.0
    max_retries: int = 5
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    _open: dict[asyncio.AbstractEventLoop, _Shared] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.model:
            raise UserError("model is empty: name a model that the endpoint serves")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env):  # not echoed: it may be the key itself
            raise UserError("api_key_env is no environment variable's name: give the name, not the key")
        if re.search(r"[@?]", self.url):  # not echoed: it may hold a password
            raise UserError(f"base_url holds a user name or a query: leave it out; the key goes in {self.api_key_env}")
        if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", self.url):
            raise UserError(f"base_url {self.url!r} is no web address: write it as http://HOST:PORT/v1")
        if not (math.isfinite(self.timeout) and self.timeout > 0) or self.max_retries < 0:
            raise UserError(
                f"timeout {self.timeout} and max_retries {self.max_retries}: the first must be a positive number of "
                "seconds, the second 0 or more"
            )
        if taken := sorted(OWN_FIELDS & self.extra_body.keys()):
            raise UserError(f"extra_body sets {', '.join(taken)}: that belongs to the backend or the agent's sampling")

    @property
    def url(self) -> str:
        """Where the requests go."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL

    async def complete(self, request: Request) -> Completion:
        """One reply; a prompt too long for the model gives "" with finish reason "context_overflow".

        Raises TimeoutError over the deadline, EndpointError for refusals and used-up retries, UserError without a
        usable key.
        """
        try:
            async with self._client() as client, asyncio.timeout(self.timeout) as limit:
                return await self._ask(client, request, cast(float, limit.when()))
        except TimeoutError as late:
            because = f" ({late})" if str(late) else ""
            message = f"{self.url}, model {self.model!r}: no reply within {self.timeout:g} seconds{because}"
            raise TimeoutError(message) from None

    async def check(self) -> None:
        """Ask the endpoint for its models before a run. Raises UserError where it cannot be reached or bars the key.

        Any other answer counts as alive, since not every server lists its models.
        """
        try:
            async with self._client() as client, asyncio.timeout(CHECK_SECONDS):
                await client.models.with_raw_response.list()
        except openai.APIStatusError as error:
            if error.status_code not in (401, 403):
                return
            wrong = "is not accepted" if os.environ.get(self.api_key_env) else "is not set"
            problem = f"answers {error.status_code}; the key in {self.api_key_env} {wrong}: export one valid there"
        except (openai.APIConnectionError, TimeoutError) as error:
            problem = f"cannot be reached ({self._words(error)}): start the server or correct base_url"
        else:
            return
        raise UserError(f"endpoint {self.url} {problem}")

    async def _ask(self, client: openai.AsyncOpenAI, request: Request, deadline: float) -> Completion:
        """Try until there is a reply. The client's own retries fit no total deadline, so the tries are made here."""
        for tries in range(self.max_retries + 1):
            try:
                return _completion(await self._send(client, request))
            except (openai.APIError, ValueError) as error:  # ValueError: a reply that is no JSON
                failure = error
            if _is_overflow(failure):
                return Completion("", "context_overflow")
            if tries == self.max_retries or not _may_pass(failure):
                break
            pause = _pause(failure, tries)
            if asyncio.get_running_loop().time() + pause >= deadline:
                raise TimeoutError(f"{self._words(failure)}; the next try was due {pause:.1f} seconds later")
            await asyncio.sleep(pause)
        # Raised out here and not in the except clause: a chained error could show the key.
        raise EndpointError(f"{self.url}, model {self.model!r}: {self._words(failure)} (tries: {tries + 1})")

    async def _send(self, client: openai.AsyncOpenAI, request: Request) -> ChatCompletion:
        messages = [{"role": message.role, "content": message.labelled} for message in request.messages]
        return await client.chat.completions.create(
            model=self.model,
            messages=cast(list[ChatCompletionMessageParam], messages),
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            max_tokens=request.sampling.max_tokens,
            seed=request.seed,
            extra_body=dict(self.extra_body),
        )

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """The running loop's client: opened by the first call in flight, closed by the last.

        A client belongs to one event loop, and a loop may end at any time between calls.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            limits = openai.Timeout(None, connect=CONNECT_SECONDS)
            client = openai.AsyncOpenAI(api_key=self._key(), base_url=self.url, timeout=limits, max_retries=0)
            self._open[loop] = _Shared(client)
        shared = self._open[loop]
        shared.calls += 1
        try:
            yield shared.client
        finally:
            shared.calls -= 1
            if not shared.calls:
                del self._open[loop]
                await shared.client.close()

    def _key(self) -> str:
        key = os.environ.get(self.api_key_env, "").strip()
        if not key and self.url == OPENAI_URL:
            raise UserError(f"{self.url} needs a key: export {self.api_key_env}, or set base_url to a server of yours")
        if not (key.isascii() and key.isprintable()):
            raise UserError(f"the key in {self.api_key_env} holds characters that no key has: export it again")
        return key or "none"

    def _words(self, error: Exception) -> str:
        """What went wrong, in one short line without the key."""
        text = error.message if isinstance(error, openai.APIError) else str(error) or "no answer"
        if isinstance(error, openai.APIConnectionError) and error.__cause__:
            text = f"{text} {error.__cause__}"
        key = os.environ.get(self.api_key_env, "").strip()
        text = " ".join(text.replace(key, "[key]").split() if key else text.split())
        return text if len(text) <= 300 else text[:300] + " ..."


def _completion(reply: ChatCompletion) -> Completion:
    if not isinstance(reply, ChatCompletion) or not reply.choices:  # the client passes other answers through
        raise ValueError(f"the answer is no chat completion: {reply!r}")
    choice = reply.choices[0]
    if not choice or not choice.message or not isinstance(choice.message.content, str | None):
        raise ValueError(f"the answer's choice has no message with text: {choice!r}")
    text = choice.message.content or ""
    if choice.finish_reason == "length" and not text and reply.usage and reply.usage.completion_tokens == 0:
        return Completion("", "context_overflow")  # some servers answer so where the prompt leaves no room
    return Completion(text, FINISH_REASONS.get(choice.finish_reason, "error"), usage=_usage(reply))


def _usage(reply: ChatCompletion) -> tuple[int, int] | None:
    """Prompt and reply tokens; None where the server counts none, or what it says is no count."""
    if not reply.usage:
        return None
    prompt, words = reply.usage.prompt_tokens, reply.usage.completion_tokens
    return (prompt, words) if all(type(n) is int and n >= 0 for n in (prompt, words)) else None


def _is_overflow(error: Exception) -> bool:
    return isinstance(error, openai.BadRequestError) and bool(OVERFLOW.search(f"{error.code} {error.message}"))


def _may_pass(error: Exception) -> bool:
    if isinstance(error, openai.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError)


def _pause(error: Exception, tries: int) -> float:
    """Seconds to the next try: what the server asks for, and a doubling share on top so that callers spread out."""
    backoff = min(FIRST_BACKOFF * 2.0 ** min(tries, 10), LONGEST_BACKOFF) * JITTER.uniform(0.5, 1.0)
    return backoff + (_retry_after(error.response.headers) if isinstance(error, openai.APIStatusError) else 0.0)


def _retry_after(headers: Mapping[str, str]) -> float:
    """The seconds that the server asks to wait; 0 where it asks for none or cannot be understood."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / per_second
        except ValueError:
            continue
        return max(seconds, 0.0) if not math.isnan(seconds) else 0.0
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return max(mktime_tz(date) - time.time(), 0.0) if date else 0.0
    except (ValueError, OverflowError):  # a date with impossible parts
        return 0.0
