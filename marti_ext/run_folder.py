"""The folder of one run: who may write to it, and what of it is still true when the run goes on."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from marti_ext.config import Config
from marti_ext.config_file import dump_config
from marti_ext.errors import UserError
from marti_ext.records import (
    EVALUATION_FILE,
    METRICS_FILE,
    TIMINGS_FILE,
    drop_episodes_from,
    truncate_rows,
    write_text_atomically,
)

CONFIG_FILE = "config.yaml"
# May change between a stop and a resume: they move no number of the steps that are done.
FREE_KEYS = {"run_dir", "steps", "resume", "checkpoint", "tracking", "cluster", "evaluation"}


class RunFolder:
    """config.yaml, episodes-*.jsonl, metrics.jsonl and the like, plots/ and checkpoints/ of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    @contextmanager
    def opened(self, config: Config) -> Iterator[None]:
        """Hold the folder for one process. The config is written if it is new, else compared with the one there.

        Raises UserError if the folder cannot be written, is in use, or holds a run of another config.
        """
        with (writable(self.path) / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"run_dir {str(self.path)!r} is in use by another process") from error
            self._accept(config)
            write_text_atomically(self.path / CONFIG_FILE, dump_config(config))
            yield

    def forget_from(self, step: int) -> None:
        """Drop what was logged for `step` and later; the steps will be made again."""
        truncate_rows(self.path / METRICS_FILE, step)
        truncate_rows(self.path / TIMINGS_FILE, step)
        truncate_rows(self.path / EVALUATION_FILE, step + 1)  # after `step` steps nothing has changed
        drop_episodes_from(self.path, step)

    def _accept(self, config: Config) -> None:
        file = self.path / CONFIG_FILE
        if not file.exists():
            if traces := [
                *self.path.glob("episodes-*.jsonl"),
                *self.path.glob("checkpoints/*"),
                *self.path.glob("*.jsonl"),
            ]:
                raise UserError(
                    f"run_dir {str(self.path)!r} holds {traces[0].name} but no {CONFIG_FILE}: choose another"
                )
            return
        if config.resume == "never":
            raise UserError(f"run_dir {str(self.path)!r} holds a run already: choose another, or set resume: auto")
        if not any(self.checkpoints.glob("step-*/state.json")):
            return  # nothing came of it yet: a mistake in the config may be mended
        before, now = self._written(file), config.model_dump(mode="json")
        for key in sorted({*before, *now} - FREE_KEYS):
            if difference := _difference(before.get(key), now.get(key), key):
                raise UserError(f"run_dir {str(self.path)!r} holds a run with {difference}: choose another run_dir")

    def _written(self, file: Path) -> dict[str, Any]:
        try:
            values = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{file} cannot be read ({type(error).__name__}): choose another run_dir") from error
        if not isinstance(values, dict):
            raise UserError(f"{file} is no config of a run: choose another run_dir")
        return values


def writable(folder: Path) -> Path:
    """The folder, made if need be. Raises UserError if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot write to the run folder {str(folder)!r}: {reason}; choose another") from error
    return folder


def _difference(before: Any, now: Any, key: str) -> str | None:
    """The first key that differs, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for inner in [*before, *(k for k in now if k not in before)]:
            if found := _difference(before.get(inner), now.get(inner), f"{key}.{inner}"):
                return found
        return None
    return None if before == now else f"{key} = {before!r}, not {now!r}"
