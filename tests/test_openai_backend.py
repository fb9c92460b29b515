"""The backend against a real HTTP server on this machine, scripted reply by reply."""

import asyncio
import gc
import logging
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest
from endpoint import Answer, Endpoint, refusal, reply, serve

from marti_ext.backends.base import Request, SamplingParams
from marti_ext.backends.openai import EndpointError, OpenAIBackend, _retry_after
from marti_ext.errors import UserError
from marti_ext.types import Completion, Message

KEY = "sk-a-secret-of-the-tests"
ASK = Request((Message("user", "2+2?"),), SamplingParams(), seed=0)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve(Endpoint()) as state:
        yield state


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def ask(endpoint: Endpoint, request: Request = ASK, **options: Any) -> Completion:
    return asyncio.run(OpenAIBackend("m", endpoint.url, **options).complete(request))


def seconds_of(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def refused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# What is sent, and what is made of the answer


def test_every_sampling_parameter_is_sent_and_the_reply_is_returned(endpoint: Endpoint) -> None:
    endpoint.answers = [reply("It is 4.")]
    messages = (Message("system", "Be brief."), Message("user", "2+2?"))
    request = Request(messages, SamplingParams(temperature=0.7, top_p=0.9, max_tokens=33), seed=11)
    completion = ask(endpoint, request, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert completion == Completion("It is 4.", "stop")
    assert completion.prompt_ids is None
    assert completion.token_ids is None
    assert completion.log_probs is None
    [(path, body, headers, _)] = endpoint.seen
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 33,
        "seed": 11,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_default_sampling_parameters_are_sent_too(endpoint: Endpoint) -> None:
    endpoint.answers = [reply()]
    ask(endpoint)
    body = endpoint.seen[0][1]
    assert {name: body[name] for name in ("temperature", "top_p", "max_tokens", "seed")} == {
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 512,
        "seed": 0,
    }


def test_the_words_of_another_participant_carry_its_name_once(endpoint: Endpoint) -> None:
    endpoint.answers = [reply()]
    messages = (
        Message("user", "Discuss."),
        Message("user", "It is 5.", name="critic 2"),
        Message("user", "solver: It is 4.", name="solver"),
    )
    ask(endpoint, Request(messages, SamplingParams()))
    assert endpoint.seen[0][1]["messages"] == [
        {"role": "user", "content": "Discuss."},
        {"role": "user", "content": "critic 2: It is 5."},
        {"role": "user", "content": "solver: It is 4."},
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply("a", "stop"), Completion("a", "stop")),
        (reply("a", "length"), Completion("a", "length")),
        (reply("a", "content_filter"), Completion("a", "error")),
        (reply("a", "tool_calls"), Completion("a", "error")),
        (reply("a", None), Completion("a", "error")),
        (reply(None, "stop"), Completion("", "stop")),
        (reply(None, "length"), Completion("", "length")),
        # no token came back because the prompt left no room
        (
            reply("", "length", usage={"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}),
            Completion("", "context_overflow"),
        ),
    ],
)
def test_finish_reasons(endpoint: Endpoint, answer: Answer, expected: Completion) -> None:
    endpoint.answers = [answer]
    assert ask(endpoint) == expected


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
        refusal(400, "Too long.", code="context_length_exceeded"),
        refusal(400, "The input (9 tokens) is longer than the model's context length (8 tokens)."),
        refusal(400, "The decoder prompt (length 9) is longer than the maximum model length of 8."),
        refusal(400, "the request exceeds the available context size, try increasing it"),
    ],
)
def test_a_prompt_too_long_is_context_overflow_and_not_tried_again(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.answers = [answer]
    assert ask(endpoint) == Completion("", "context_overflow")
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>login</html>", headers={"content-type": "text/html"}),
        Answer(body=b"{broken"),
        Answer(body={"error": {"message": "upstream down"}}),
        Answer(body={"choices": []}),
    ],
)
def test_an_answer_that_is_no_completion_fails_at_once(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.answers = [answer]
    with pytest.raises(EndpointError, match=re.escape(f"{endpoint.url}, model 'm'")):
        ask(endpoint)
    assert len(endpoint.seen) == 1


# Retries and the deadline


@pytest.mark.parametrize(
    ("headers", "least"),
    [
        ({"Retry_After": "1"}, 1.0),
        ({"retry_after_ms": "400"}, 0.4),
    ],
)
def test_a_rate_limit_is_waited_out(endpoint: Endpoint, headers: dict[str, str], least: float) -> None:
    endpoint.answers = [refusal(429, **headers), reply()]
    assert ask(endpoint) == Completion("4", "stop")
    first, second = (seen[3] for seen in endpoint.seen)
    assert least <= second - first < least + 2.0


def test_passing_failures_are_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers = [*(refusal(status) for status in (408, 409, 429, 500, 502, 503)), reply()]
    backend = OpenAIBackend("m", endpoint.url)

    async def six() -> list[Completion]:
        return await asyncio.gather(*(backend.complete(ASK) for _ in range(6)))

    assert asyncio.run(six()) == [Completion("4", "stop")] * 6
    assert len(endpoint.seen) == 12


def test_retries_are_bounded_and_the_last_failure_is_told(endpoint: Endpoint) -> None:
    endpoint.answers = [refusal(500, "engine died")]
    with pytest.raises(EndpointError, match=r"model 'm': .*500.*engine died.*tries: 2"):
        ask(endpoint, max_retries=1)
    assert len(endpoint.seen) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_other_refusals_are_not_tried_again(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [refusal(status, x_should_retry="true")]
    with pytest.raises(EndpointError, match=str(status)):
        ask(endpoint)
    assert len(endpoint.seen) == 1


def test_a_slow_server_is_left_at_the_deadline(endpoint: Endpoint) -> None:
    endpoint.answers = [Answer(seconds=20.0)]

    def call() -> None:
        with pytest.raises(TimeoutError, match=re.escape(f"{endpoint.url}, model 'm': no reply within 0.5 seconds")):
            ask(endpoint, timeout=0.5)

    assert 0.45 <= seconds_of(call) < 15.0  # the server takes 20


def test_the_deadline_spans_all_tries(endpoint: Endpoint) -> None:
    endpoint.answers = [Answer(500, {}, {"retry-after-ms": "1"}, seconds=0.3)]

    def call() -> None:
        with pytest.raises(TimeoutError, match="within 1 seconds"):
            ask(endpoint, timeout=1.0, max_retries=50)

    assert seconds_of(call) < 12.0  # all tries would take 15


@pytest.mark.parametrize("asked", ["30", "200", "1e9", "inf", "a date"])
def test_a_wait_beyond_the_deadline_fails_at_once(endpoint: Endpoint, asked: str) -> None:
    when = formatdate(time.time() + 3600, usegmt=True) if asked == "a date" else asked
    endpoint.answers = [refusal(429, "slow down", Retry_After=when)]

    def call() -> None:
        with pytest.raises(TimeoutError, match=r"within 5 seconds .*slow down"):
            ask(endpoint, timeout=5.0)

    assert seconds_of(call) < 2.0
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "12", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 99999999999 99:99:99 GMT"}, 0.0),
    ],
)
def test_the_wait_a_server_asks_for(headers: dict[str, str], seconds: float) -> None:
    assert _retry_after(headers) == seconds


def test_a_refused_connection_is_tried_again_and_then_told() -> None:
    backend = OpenAIBackend("m", f"http://127.0.0.1:{refused_port()}/v1", max_retries=1)
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1.*model 'm'.*tries: 2"):
        asyncio.run(backend.complete(ASK))


# Calls and event loops


def test_five_identical_requests_are_five_calls(endpoint: Endpoint) -> None:
    endpoint.answers = [reply(str(n)) for n in range(5)]
    backend = OpenAIBackend("m", endpoint.url)

    async def five() -> list[Completion]:
        return await asyncio.gather(*(backend.complete(ASK) for _ in range(5)))

    assert sorted(completion.text for completion in asyncio.run(five())) == ["0", "1", "2", "3", "4"]
    assert len(endpoint.seen) == 5


@pytest.mark.filterwarnings("error")
def test_one_backend_serves_several_event_loops_and_leaves_nothing_open(endpoint: Endpoint) -> None:
    endpoint.answers = [reply()]
    backend = OpenAIBackend("m", endpoint.url)
    assert asyncio.run(backend.complete(ASK)).text == "4"
    assert asyncio.run(backend.complete(ASK)).text == "4"
    threads = [threading.Thread(target=asyncio.run, args=(backend.complete(ASK),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(endpoint.seen) == 5
    gc.collect()  # an unclosed connection would warn here


@pytest.mark.filterwarnings("error")
def test_a_cancelled_call_leaves_nothing_open(endpoint: Endpoint) -> None:
    endpoint.answers = [Answer(seconds=20.0)]
    backend = OpenAIBackend("m", endpoint.url)

    async def cancelled() -> None:
        call = asyncio.create_task(backend.complete(ASK))
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    gc.collect()


# Keys and the probe


def test_the_key_shows_in_no_repr_log_or_error(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.answers = [refusal(401, f"Incorrect API key provided: {KEY}"), refusal(500, f"Bearer {KEY} is unlucky")]
    backend = OpenAIBackend("m", endpoint.url, max_retries=0)
    shown = [repr(backend)]
    for _ in range(2):
        with pytest.raises(EndpointError) as caught:
            asyncio.run(backend.complete(ASK))
        shown += traceback.format_exception(caught.value)
    with pytest.raises(TimeoutError) as late:
        asyncio.run(OpenAIBackend("m", endpoint.url, timeout=0.1).complete(ASK))
    shown += traceback.format_exception(late.value)
    assert endpoint.seen[0][2]["authorization"] == f"Bearer {KEY}"
    assert "[key]" in "".join(shown)
    assert KEY not in "".join(shown)
    assert KEY not in caplog.text


def test_a_server_of_ones_own_needs_no_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    endpoint.answers = [reply()]
    assert ask(endpoint).text == "4"


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="export OPENAI_API_KEY"):
        asyncio.run(OpenAIBackend("m").complete(ASK))


def test_a_key_that_no_header_can_carry_is_refused_unseen(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\u20acuro")
    with pytest.raises(UserError, match="OPENAI_API_KEY") as caught:
        ask(endpoint)
    assert "uro" not in str(caught.value)


@pytest.mark.parametrize("answer", [Answer(body={"object": "list", "data": []}), refusal(404), refusal(500)])
def test_the_probe_passes_a_server_that_answers(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.answers = [answer]
    asyncio.run(OpenAIBackend("m", endpoint.url).check())
    assert [seen[0] for seen in endpoint.seen] == ["/v1/models"]


@pytest.mark.parametrize("status", [401, 403])
def test_the_probe_tells_of_a_rejected_key(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [refusal(status, f"bad key {KEY}")]
    with pytest.raises(UserError, match=rf"{re.escape(endpoint.url)} answers {status}.*OPENAI_API_KEY") as caught:
        asyncio.run(OpenAIBackend("m", endpoint.url).check())
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_probe_tells_of_a_refused_connection() -> None:
    url = f"http://127.0.0.1:{refused_port()}/v1"
    with pytest.raises(UserError, match=rf"{re.escape(url)} cannot be reached.*start the server"):
        asyncio.run(OpenAIBackend("m", url).check())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": ""}, "model is empty"),
        ({"base_url": "localhost:8000"}, "'localhost:8000' is no web address"),
        ({"base_url": "http://me:pass@host/v1"}, "user name or a query"),
        ({"api_key_env": "sk-pass"}, "api_key_env"),
        ({"timeout": 0.0}, "timeout 0.0"),
        ({"max_retries": -1}, "max_retries -1"),
        ({"extra_body": {"seed": 1, "temperature": 0}}, "seed, temperature"),
    ],
)
def test_fields_that_cannot_be_right_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        OpenAIBackend(**{"model": "m", "base_url": "http://127.0.0.1:9/v1", **options})
    assert "pass" not in str(caught.value)
