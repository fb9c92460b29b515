"""What a run leaves on disk, and how it is read back: rows of JSONL, and one file of episodes per step.

Every line is canonical JSON (keys sorted, ASCII only, a non-finite number written as null) and carries `schema`, so
equal runs leave byte-equal files and a reader never guesses at a newer format.
"""

import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from marti_ext.errors import UserError
from marti_ext.types import Completion, Episode, Message, Score, Task, Turn

SCHEMA_VERSION = 1  # raise it when a reader of the old version would misread a new line
METRICS_FILE = "metrics.jsonl"
TIMINGS_FILE = "timings.jsonl"
EVALUATION_FILE = "evaluation.jsonl"  # its steps are steps done

_EPISODES_FILE = re.compile(r"episodes-(\d+)\.jsonl")
_log = logging.getLogger(__name__)


# Episodes


def episode_to_json(episode: Episode, *, tokens: bool = False) -> dict[str, Any]:
    """The episode as JSON values. `tokens` adds token ids and log-probs (nats), which make up most of the size.

    Left out is `seconds`: wall-clock values would make the files of two equal runs differ.
    Raises ValueError where a turn is `about` a turn of another episode.
    """
    number = {id(turn): index for index, turn in enumerate(episode.turns)}
    task = episode.task
    record = {
        "schema": SCHEMA_VERSION,
        "task": {
            "id": task.id,
            "prompt": task.prompt,
            "label": task.label,
            "kind": task.kind,
            "metadata": task.metadata,
        },
        "copy": episode.copy,
        "turns": [_turn_to_json(turn, number, tokens) for turn in episode.turns],
        "answer": episode.answer,
        "status": episode.status,
        "error": episode.error,
    }
    return {key: _plain(value) for key, value in record.items()}


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """The episode that `episode_to_json` wrote; token fields are None unless it kept them.

    A null stands for a number that was not finite: it reads back as NaN in a score and in log-probs, as no reward in
    `reward`. Raises KeyError or TypeError where the record is not an episode.
    """
    turns = [_turn_from_json(item) for item in record["turns"]]
    for turn, item in zip(turns, record["turns"], strict=True):
        turn.about = tuple(turns[index] for index in item["about"])
    return Episode(
        Task(**record["task"]),
        copy=record["copy"],
        turns=turns,
        answer=record["answer"],
        status=record["status"],
        error=record["error"],
    )


def _turn_to_json(turn: Turn, number: Mapping[int, int], tokens: bool) -> dict[str, Any]:
    if not all(id(judged) in number for judged in turn.about):
        raise ValueError(f"turn of {turn.agent!r} ({turn.interaction}) is about a turn outside its episode")
    completion, score = turn.completion, turn.score
    record = {
        "agent": turn.agent,
        "policy": turn.policy,
        "interaction": turn.interaction,
        "round": turn.round,
        "messages": [{"role": m.role, "content": m.content, "name": m.name} for m in turn.messages],
        "completion": completion.text,
        "finish_reason": completion.finish_reason,
        "temperature": completion.temperature,
        "prompt_tokens": completion.prompt_tokens,
        "tokens": completion.reply_tokens,
        "trainable": turn.trainable,
        "about": [number[id(judged)] for judged in turn.about],
        "score": score
        and {"value": score.value, "extracted": score.extracted, "status": score.status}
        | ({"reason": score.reason} if score.reason else {}),
        "reward": turn.reward,
    }
    if turn.text != completion.text:
        record["text"] = turn.text
    if tokens:
        record |= {
            "prompt_ids": completion.prompt_ids,
            "token_ids": completion.token_ids,
            "log_probs": completion.log_probs,
        }
    return record


def _turn_from_json(record: Mapping[str, Any]) -> Turn:
    lengths: list[int] = [record[key] for key in ("prompt_tokens", "tokens") if record.get(key) is not None]
    completion = Completion(
        record["completion"],
        record["finish_reason"],
        prompt_ids=_array(record.get("prompt_ids"), np.int64),
        token_ids=_array(record.get("token_ids"), np.int64),
        log_probs=_array(record.get("log_probs"), np.float32),
        temperature=record["temperature"],
        usage=(lengths[0], lengths[1]) if len(lengths) == 2 and record.get("token_ids") is None else None,
    )
    score = record["score"]
    return Turn(
        record["agent"],
        record["policy"],
        record["interaction"],
        record["round"],
        tuple(Message(**message) for message in record["messages"]),
        completion,
        trainable=record["trainable"],
        text=record.get("text", completion.text),
        score=score and Score(_number(score["value"]), score["extracted"], score["status"], score.get("reason", "")),
        reward=record["reward"],
    )


def _array(values: list[float | None] | None, dtype: DTypeLike) -> NDArray[Any] | None:
    return None if values is None else np.array([_number(value) for value in values], dtype)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def write_episodes(folder: Path, step: int, episodes: Iterable[Episode], *, tokens: bool = False) -> Path:
    """Write the episodes of one step to `folder/episodes-00003.jsonl`, replacing what an earlier try left there."""
    path = folder / f"episodes-{step:05d}.jsonl"
    write_text_atomically(path, "".join(_line(episode_to_json(episode, tokens=tokens)) for episode in episodes))
    return path


def episode_files(folder: Path) -> dict[int, Path]:
    """Step -> its file of episodes, in the order of the steps."""
    named = ((_EPISODES_FILE.fullmatch(path.name), path) for path in folder.glob("episodes-*.jsonl"))
    return dict(sorted((int(match[1]), path) for match, path in named if match))


def read_episodes(path: Path) -> Iterator[Episode]:
    """The episodes of one file, or of all steps of a run folder in order, read one by one.

    Raises UserError where there are none, or naming the file and line that is no episode of this schema.
    """
    files = list(episode_files(path).values()) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path} holds no episodes-*.jsonl: give the folder of a run that keeps its episodes")
    missing = next((file for file in files if not file.is_file()), None)
    if missing:
        raise UserError(f"{missing} does not exist: give a file of episodes or the folder of a run")
    return (episode for file in files for episode in _episodes_of(file))


def last_episodes(folder: Path) -> Iterator[Episode]:
    """The episodes of the last step of a run folder. Raises UserError as `read_episodes` does."""
    files = episode_files(folder)
    return read_episodes(files[max(files)] if files else folder)


def _episodes_of(path: Path) -> Iterator[Episode]:
    for number, record in _records(path):
        try:
            yield episode_from_json(record)
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not an episode ({type(error).__name__}: {error})") from error


def drop_episodes_from(folder: Path, step: int) -> None:
    """Remove the episodes of `step` and later: what a resumed run is about to write anew."""
    for later, path in episode_files(folder).items():
        if later >= step:
            path.unlink()


# Rows


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a JSONL file, each stamped with `schema`; they are on the disk when this returns.

    A last line that a kill left without its end is cut off first, so it cannot swallow the new rows.
    """
    lines = "".join(_line({**row, "schema": SCHEMA_VERSION}) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        _cut_half_line(file)
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def _cut_half_line(file: BinaryIO) -> None:
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSONL file; a last line without its end (a kill in mid-write) is left out with a warning.

    Raises UserError where the file is missing, or naming the line that is no JSON object of this schema.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist: give the folder of a run")
    return [record for _, record in _records(path)]


def truncate_rows(path: Path, before_step: int) -> None:
    """Keep only rows with `step` < `before_step`, all or nothing. A missing file stays missing."""
    if path.exists():
        kept = [record for _, record in _records(path) if record["step"] < before_step]
        write_text_atomically(path, "".join(_line(record) for record in kept))


# Lines


def write_text_atomically(path: Path, text: str) -> None:
    """Write a file that readers see whole or not at all, and that a kill or power cut cannot leave half-written.

    The temporary name is fixed, so a try that was killed is overwritten by the next and leaves no litter.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself
    finally:
        os.close(folder)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, record) of every finished line."""
    *lines, rest = path.read_bytes().split(b"\n")  # not splitlines(): only "\n" ends a line
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(record, dict):
            raise UserError(f"{path}, line {number}: expected a JSON object, found {type(record).__name__}")
        if record.get("schema") != SCHEMA_VERSION:
            raise UserError(
                f"{path}, line {number}: schema {record.get('schema')!r}, but this version of marti_ext reads "
                f"schema {SCHEMA_VERSION}; use the version that wrote the file"
            )
        yield number, record
    if rest:
        _log.warning("%s: left out a half-written last line (%d bytes)", path, len(rest))


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(_plain(record), sort_keys=True, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no NaN; most readers refuse it
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
