"""What is asked once is never asked again, and nothing else is taken for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.journal import DURABLE, Journal, journaled
from marti_ext.backends.base import BatchBackend, Request, SamplingParams
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.records import read_rows
from marti_ext.types import Completion, Message

ASK = Request((Message("user", "2+2?"),), SamplingParams(0.7), seed=1)


class Echo(BatchBackend):
    """Answers with the seed; a seed below 0 fails. `asked` keeps the sizes of the batches."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self.asked.append(len(requests))
        return [ValueError("no") if r.seed < 0 else Completion(f"{r.seed}", usage=(3, 1)) for r in requests]


def ask(backend: ScriptedBackend, journal: Journal, request: Request, source: str = "a") -> Completion:
    return asyncio.run(journaled(backend, source, journal).complete(request))


def test_a_reply_survives_the_process_and_is_not_asked_for_again(tmp_path: Path) -> None:
    backend = ScriptedBackend([Completion("4", "length", usage=(7, 1), temperature=0.7), "5"])
    first = ask(backend, Journal(tmp_path / "calls.jsonl"), ASK)
    again = ask(backend, Journal(tmp_path / "calls.jsonl"), ASK)
    assert (again.text, again.finish_reason, again.usage, again.temperature) == ("4", "length", (7, 1), 0.7)
    assert first.text == "4"
    assert len(backend.requests) == 1


def test_another_seed_temperature_conversation_or_agent_is_another_call(tmp_path: Path) -> None:
    backend = ScriptedBackend(["x"])
    ask(backend, Journal(tmp_path / "calls.jsonl"), ASK)
    others = [
        replace(ASK, seed=2),
        replace(ASK, sampling=SamplingParams(0.9)),
        replace(ASK, messages=(Message("user", "2+3?"),)),
        replace(ASK, messages=(Message("user", "2+2?", "bob"),)),
    ]
    for request in others:
        ask(backend, Journal(tmp_path / "calls.jsonl"), request)
    ask(backend, Journal(tmp_path / "calls.jsonl"), ASK, source="b")
    assert len(backend.requests) == 6


def test_of_a_batch_only_the_missing_are_asked_in_order_and_failures_are_not_kept(tmp_path: Path) -> None:
    requests = [replace(ASK, seed=seed) for seed in (1, -1, 2, 3)]
    echo = Echo()
    backend = journaled(echo, "a", Journal(tmp_path / "calls.jsonl"))
    assert isinstance(backend, BatchBackend)
    backend.complete_batch(requests[:2])
    again = journaled(echo, "a", Journal(tmp_path / "calls.jsonl"))
    assert isinstance(again, BatchBackend)
    replies = again.complete_batch(requests)
    assert [r.text if isinstance(r, Completion) else type(r) for r in replies] == ["1", ValueError, "2", "3"]
    assert echo.asked == [2, 3]


def test_a_large_batch_is_put_on_the_disk_part_by_part(tmp_path: Path) -> None:
    echo = Echo()
    backend = journaled(echo, "a", Journal(tmp_path / "calls.jsonl"))
    assert isinstance(backend, BatchBackend)
    backend.complete_batch([replace(ASK, seed=seed) for seed in range(DURABLE + 1)])
    assert echo.asked == [DURABLE, 1]
    assert len(read_rows(tmp_path / "calls.jsonl")) == DURABLE + 1
