import json
import math
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.errors import UserError
from marti_ext.records import (
    SCHEMA_VERSION,
    append_rows,
    drop_episodes_from,
    episode_files,
    episode_from_json,
    episode_to_json,
    read_episodes,
    read_rows,
    truncate_rows,
    write_episodes,
    write_text_atomically,
)
from marti_ext.types import Completion, Episode, FinishReason, Message, Score, Task, Turn

# Any text at all, lone surrogates and line separators included: a model may say it.
texts = st.text(st.characters(), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    finish_reason: FinishReason = draw(st.sampled_from(["stop", "length", "context_overflow", "error"]))
    if draw(st.booleans()):
        return Completion(draw(texts), finish_reason, temperature=draw(numbers))
    ids = draw(st.lists(st.integers(0, 2**40), max_size=4))
    log_probs = draw(st.lists(st.floats(-50, 0, width=32), min_size=len(ids), max_size=len(ids)))
    return Completion(
        draw(texts),
        finish_reason,
        np.array(ids[::-1], np.int64),
        np.array(ids, np.int64),
        np.array(log_probs, np.float32),
    )


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    messages = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), texts, texts)
    scores = st.builds(Score, numbers, texts, st.sampled_from(["ok", "unparsed", "truncated"]))
    turns: list[Turn] = []
    for _ in range(draw(st.integers(0, 4))):
        completion = draw(completions())
        about = draw(st.lists(st.sampled_from(turns), max_size=2)) if turns else []
        turns.append(
            Turn(
                draw(texts),
                draw(texts),
                draw(texts),
                draw(st.integers(0, 9)),
                tuple(draw(st.lists(messages, max_size=2))),
                completion,
                trainable=draw(st.booleans()),
                about=tuple(about),
                text=draw(st.one_of(st.just(completion.text), texts)),
                score=draw(st.none() | scores),
                reward=draw(st.none() | numbers),
            )
        )
    metadata = draw(
        st.dictionaries(texts, st.none() | texts | st.integers() | st.lists(numbers, max_size=2), max_size=2)
    )
    return Episode(
        Task(draw(texts), draw(texts), draw(texts), draw(texts), metadata),
        copy=draw(st.integers(0, 9)),
        turns=turns,
        answer=draw(texts),
        status=draw(st.sampled_from(["ok", "failed", "timeout"])),
        error=draw(st.none() | texts),
    )


def values(record: Any, turns: list[Turn]) -> Any:
    """The record as plain nested values that == compares; a turn that another is about is its place in the episode."""
    if is_dataclass(record) and not isinstance(record, type):
        return {
            field.name: [turns.index(judged) for judged in record.about]  # turns are equal only to themselves
            if isinstance(record, Turn) and field.name == "about"
            else values(getattr(record, field.name), turns)
            for field in fields(record)
        }
    if isinstance(record, np.ndarray):
        return (record.dtype.name, record.tolist())
    if isinstance(record, list | tuple):
        return [values(item, turns) for item in record]
    return record


@settings(max_examples=60, deadline=None)
@given(st.lists(episodes(), max_size=3))
def test_episodes_come_back_from_disk_as_they_were(before: list[Episode]) -> None:
    with TemporaryDirectory() as folder:
        after = list(read_episodes(write_episodes(Path(folder), 3, before, tokens=True)))
    assert [values(e, e.turns) for e in after] == [values(e, e.turns) for e in before]


def discussion() -> Episode:
    """A solution of three tokens, and a judgement of it that ran out of tokens."""
    question = Message("user", "What is 6 * 7?")
    solution = Turn(
        "ann",
        "shared",
        "solution",
        0,
        (question,),
        Completion(
            "<think>6*7</think>42",
            prompt_ids=np.array([1, 2], np.int64),
            token_ids=np.array([5, 6, 0], np.int64),
            log_probs=np.array([-0.5, -0.25, 0.0], np.float32),
        ),
        text="42",
        reward=0.75,
    )
    scoring = Turn(
        "bob", "shared", "scoring", 1, (question, Message("user", "42", "ann")), Completion("hm", "length"), text="hm"
    )
    scoring.about, scoring.score = (solution,), Score(0.0, "", "truncated")
    return Episode(Task("t1", "What is 6 * 7?", "42"), copy=2, turns=[solution, scoring], answer="42", seconds=1.5)


def test_a_line_holds_the_length_in_tokens_but_their_ids_only_on_demand() -> None:
    first, second = episode_to_json(discussion())["turns"]
    assert (first["tokens"], second["tokens"]) == (3, None)  # three ids; a backend without ids
    assert not {"prompt_ids", "token_ids", "log_probs"} & set(first)
    kept = episode_to_json(discussion(), tokens=True)["turns"][0]
    assert (kept["prompt_ids"], kept["token_ids"], kept["log_probs"]) == ([1, 2], [5, 6, 0], [-0.5, -0.25, 0.0])


def test_a_line_holds_what_others_saw_only_where_it_differs_from_the_reply() -> None:
    first, second = episode_to_json(discussion())["turns"]
    assert first["text"] == "42"
    assert "text" not in second
    assert [turn.text for turn in episode_from_json(episode_to_json(discussion())).turns] == ["42", "hm"]


def test_about_is_kept_as_places_in_the_episode() -> None:
    assert [turn["about"] for turn in episode_to_json(discussion())["turns"]] == [[], [0]]
    solution, scoring = episode_from_json(episode_to_json(discussion())).turns
    assert scoring.about[0] is solution


def test_a_turn_about_another_episode_is_refused() -> None:
    stray = discussion()
    stray.turns[1].about = (discussion().turns[0],)
    with pytest.raises(ValueError, match="turn of 'bob' \\(scoring\\) is about a turn outside its episode"):
        episode_to_json(stray)


def test_wall_clock_time_is_not_kept_so_equal_episodes_give_equal_bytes(tmp_path: Path) -> None:
    slow = discussion()
    slow.seconds = 99.0
    one, two = (write_episodes(tmp_path / name, 1, [e]) for name, e in (("a", discussion()), ("b", slow)))
    assert one.read_bytes() == two.read_bytes()


def test_numbers_that_are_not_finite_become_null_and_read_back_as_nan_or_no_reward(tmp_path: Path) -> None:
    odd = discussion()
    odd.turns[0].reward = math.nan
    odd.turns[1].score = Score(math.inf)
    path = write_episodes(tmp_path, 1, [odd])
    assert "NaN" not in path.read_text()
    assert "Infinity" not in path.read_text()
    (back,) = read_episodes(path)
    assert back.turns[0].reward is None
    assert back.turns[1].score is not None
    assert math.isnan(back.turns[1].score.value)


def test_a_run_folder_gives_the_episodes_of_all_steps_in_order(tmp_path: Path) -> None:
    for step in (100000, 2, 3):  # 100000 has six digits: the order is by number, not by name
        write_episodes(tmp_path, step, [Episode(Task(str(step), ""))])
    (tmp_path / "episodes-00002.jsonl.bak").write_text("not mine")
    assert [episode.task.id for episode in read_episodes(tmp_path)] == ["2", "3", "100000"]
    assert list(episode_files(tmp_path)) == [2, 3, 100000]
    assert episode_files(tmp_path)[3].name == "episodes-00003.jsonl"


def test_episodes_from_a_step_on_can_be_dropped_and_written_anew(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_episodes(tmp_path, step, [Episode(Task(f"old {step}", ""))])
    drop_episodes_from(tmp_path, 2)
    write_episodes(tmp_path, 2, [Episode(Task("new 2", ""))])
    assert [episode.task.id for episode in read_episodes(tmp_path)] == ["old 1", "new 2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"schema": 2}', "line 2: schema 2, but this version of marti_ext reads schema 1"),
        ('{"step": 1}', "line 2: schema None"),
        ("[1]", "line 2: expected a JSON object, found list"),
        ('{"schema": 1', "line 2: not JSON"),
        ('{"schema": 1}', "line 2: not an episode .KeyError: 'turns'"),
    ],
)
def test_a_line_that_is_no_episode_of_this_schema_is_refused_by_file_and_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = write_episodes(tmp_path, 1, [discussion()])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UserError, match=f"episodes-00001.jsonl, {reason}"):
        list(read_episodes(path))


def test_a_place_without_episodes_is_refused_before_the_first_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no episodes-\*\.jsonl"):
        read_episodes(tmp_path)
    with pytest.raises(UserError, match=r"none\.jsonl does not exist"):
        read_episodes(tmp_path / "none.jsonl")


def test_rows_carry_the_schema_and_sorted_keys_and_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    append_rows(path, [{"step": 1, "kl": math.nan, "loss": np.float32(0.5)}])
    append_rows(path, [{"loss": 1.0, "step": 2, "scores": {"2": 1, "1": 3}}])
    assert path.read_text() == (
        '{"kl": null, "loss": 0.5, "schema": 1, "step": 1}\n'
        '{"loss": 1.0, "schema": 1, "scores": {"1": 3, "2": 1}, "step": 2}\n'
    )
    assert read_rows(path)[1] == {"loss": 1.0, "schema": SCHEMA_VERSION, "scores": {"1": 3, "2": 1}, "step": 2}


def test_a_kill_at_any_byte_of_an_append_costs_only_the_unfinished_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    append_rows(path, [{"step": step, "policy": "naïve"} for step in (1, 2, 3)])
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        finished = list(range(1, whole[:length].count(b"\n") + 1))
        caplog.clear()
        assert [row["step"] for row in read_rows(path)] == finished
        assert ("half-written" in caplog.text) == (length > 0 and whole[length - 1 : length] != b"\n")
        append_rows(path, [{"step": 9}])
        caplog.clear()
        assert [row["step"] for row in read_rows(path)] == [*finished, 9]
        assert not caplog.text


def test_rows_from_a_step_on_are_cut_so_that_a_resumed_run_replaces_them(tmp_path: Path) -> None:
    straight, resumed = tmp_path / "straight.jsonl", tmp_path / "resumed.jsonl"
    rows = [{"step": step, "policy": policy} for step in (1, 2, 3) for policy in ("a", "b")]
    append_rows(straight, rows)
    append_rows(resumed, rows[:5])  # stopped within step 3; the last checkpoint is that of step 1
    truncate_rows(resumed, 2)
    assert [row["step"] for row in read_rows(resumed)] == [1, 1]
    append_rows(resumed, rows[2:])
    assert resumed.read_bytes() == straight.read_bytes()


def test_cutting_a_file_that_was_never_written_leaves_it_so(tmp_path: Path) -> None:
    truncate_rows(tmp_path / "timings.jsonl", 5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"timings\.jsonl does not exist"):
        read_rows(tmp_path / "timings.jsonl")


def test_a_write_that_fails_leaves_the_old_file_and_the_next_leaves_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_text_atomically(path, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(path, "new \ud800")  # fails within the write, as a full disk would
    assert path.read_text() == "old\n"
    write_text_atomically(path, "new\n")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("state.json", "new\n")]


def test_reading_records_loads_no_heavy_package() -> None:
    code = (
        "import sys, marti_ext.records, marti_ext.transcript, marti_ext.episode_metrics, marti_ext.tracking, "
        "marti_ext.report; print([name for name in ('torch', 'matplotlib', 'wandb') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
