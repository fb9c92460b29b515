from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from marti_ext.transcript import show_episode
from marti_ext.types import Completion, Episode, Message, Score, Task, Turn


def discussion(reply: str = "<think>6*7</think>42", scorer: str = "bob") -> Episode:
    """A solution, and a judgement of it that ran out of tokens."""
    question = Message("user", "What is 6 * 7?")
    solution = Turn("ann", "shared", "solution", 0, (question,), Completion(reply), reward=0.75)
    scoring = Turn(scorer, "shared", "scoring", 1, (question,), Completion("hm", "length"), about=(solution,))
    scoring.score = Score(0.0, "", "truncated")
    return Episode(Task("t1", "What is 6 * 7?", "42"), copy=2, turns=[solution, scoring], answer="42")


@contextmanager
def terminal() -> Iterator[Console]:
    """A terminal of 100 columns with colours, whose output `export_text` gives as a reader sees it."""
    with Path("/dev/null").open("w") as nowhere:
        yield Console(record=True, width=100, file=nowhere, force_terminal=True)


def test_a_discussion_is_shown_turn_by_turn() -> None:
    with terminal() as console:
        console.print(show_episode(discussion()))
    shown = [line.strip() for line in console.export_text().splitlines()]
    assert "task t1 · math · run 2" in shown[0]
    assert "[1] round 0 · ann (shared) · solution · reward +0.75" in shown
    assert "[2] round 1 · bob (shared) · scoring of [1] · length · score truncated · no reward" in shown
    assert "<think>6*7</think>42" in shown
    assert {"label: 42", "answer: 42", "status: ok"} <= set(shown)


def test_words_of_a_model_are_shown_literally() -> None:
    reply = "[red]x[/red] [/nothing] :smile: \x1b[2J\x07\r a\u202eb \ud800 héé\u2028"
    with terminal() as console:
        console.print(show_episode(discussion(reply, scorer="[bold]bob")))
        styled = console.export_text(clear=False, styles=True)
    assert "\x1b[2J" not in styled
    assert r"[red]x[/red] [/nothing] :smile: \x1b[2J\x07\r a\u202eb \ud800 héé\u2028" in console.export_text()
    assert "[bold]bob" in styled


def test_a_failed_episode_shows_its_error() -> None:
    with terminal() as console:
        console.print(show_episode(Episode(Task("t", "p"), status="failed", error="Traceback\nValueError: [x]")))
    shown = console.export_text()
    assert "status: failed" in shown
    assert "ValueError: [x]" in shown
