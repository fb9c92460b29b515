"""One discussion, readable in a terminal."""

import unicodedata
from collections.abc import Iterable
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from marti_ext.types import Episode, Turn


def print_episodes(episodes: Iterable[Episode], count: int, console: Console) -> None:
    """The first `count` episodes, one below the other."""
    for episode in islice(episodes, count):
        console.print(show_episode(episode))


def show_episode(episode: Episode, *, prompts: bool = False) -> RenderableType:
    """Task, label, every turn with its reply, score and reward, then the answer: for `rich.console.Console.print`.

    `prompts` adds what each turn was asked, message by message.

    All words of a task or a model are printed literally: rich markup in them is not interpreted, and control
    characters, which could repaint the terminal, are shown as escapes.
    """
    task = episode.task
    number = {id(turn): index for index, turn in enumerate(episode.turns, start=1)}
    parts: list[RenderableType] = [
        Rule(_literal(f"task {task.id} · {task.kind} · run {episode.copy}", "bold")),
        _literal(task.prompt),
        _labelled("label", task.label or "none"),
    ]
    for turn in episode.turns:
        parts += [Text(), _heading(turn, number)]
        if prompts:
            parts += [Padding(_labelled(m.role, m.labelled, "dim"), (0, 0, 0, 2)) for m in turn.messages]
        parts.append(Padding(_literal(turn.completion.text), (0, 0, 0, 4)))
    parts += [
        Rule(),
        _labelled("answer", episode.answer or "none"),
        _labelled("status", episode.status, "" if episode.status == "ok" else "bold red"),
    ]
    if episode.error:
        parts.append(_literal(episode.error, "red"))
    return Group(*parts)


def _heading(turn: Turn, number: dict[int, int]) -> Text:
    """[4] round 1 · bob (policy_b) · evaluation of [1] · length · score 3 · reward -0.25"""
    who = turn.agent if turn.agent == turn.policy else f"{turn.agent} ({turn.policy})"
    judged = ", ".join(f"[{number[id(about)]}]" for about in turn.about)
    heading = Text.assemble(
        (f"[{number[id(turn)]}] ", "bold"),
        f"round {turn.round} · ",
        _literal(who, "bold cyan"),
        " · ",
        _literal(turn.interaction, "bold"),
        f" of {judged}" if judged else "",
    )
    if turn.completion.finish_reason != "stop":
        heading.append(f" · {turn.completion.finish_reason}", "bold red")
    if turn.score and turn.score.status == "ok":
        heading.append(" · score ").append(_literal(turn.score.extracted or f"{turn.score.value:g}", "yellow"))
    elif turn.score:
        heading.append(f" · score {turn.score.status}", "bold red")
    return heading.append(" · no reward" if turn.reward is None else f" · reward {turn.reward:+.3g}", "green")


def _labelled(name: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{name}: ", "bold"), _literal(value, style))


def _literal(text: str, style: str = "") -> Text:
    return Text("".join(map(_visible, text)), style)


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    # C*: control, format (as bidirectional overrides), surrogate, unassigned; Zl and Zp: line ends of other kinds
    hidden = (category.startswith("C") or category in ("Zl", "Zp")) and character not in "\n\t"
    return character.encode("unicode_escape").decode("ascii") if hidden else character
