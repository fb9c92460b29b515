"""Where the numbers of a step go: always to JSONL in the run folder, and, if wanted, to wandb and TensorBoard.

A row is one step of one policy (`step`, `policy` and its metrics), its accuracy on held-out tasks after so many steps
(with ACCURACY), or, without `policy`, the timings of one step.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from marti_ext.errors import UserError
from marti_ext.records import EVALUATION_FILE, METRICS_FILE, TIMINGS_FILE, append_rows

if TYPE_CHECKING:
    import wandb
    from torch.utils.tensorboard import SummaryWriter

Rows = Sequence[Mapping[str, Any]]
ACCURACY = "held_out_accuracy"

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A place for rows. `start` opens it; where `required` is False a failure costs the tracker, not the run."""

    required: ClassVar[bool]

    def start(self) -> None: ...

    def log(self, rows: Rows) -> None: ...

    def close(self) -> None: ...


class Trackers:
    """Hands every row to every tracker. One that fails and is not required is named once in a warning and dropped."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        """Starts them all. Raises what a required tracker raises."""
        self._trackers = list(trackers)
        self._each(lambda tracker: tracker.start())

    def log(self, rows: Rows) -> None:
        """Raises UserError where JSONL cannot be written."""
        self._each(lambda tracker: tracker.log(rows))

    def close(self) -> None:
        """Closing twice is fine."""
        self._each(lambda tracker: tracker.close())
        self._trackers = []

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                act(tracker)
            except Exception as error:  # whatever a foreign logger raises, training goes on
                if tracker.required:
                    raise
                self._trackers.remove(tracker)
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                _log.warning("%s failed and is off from here on (%s)", type(tracker).__name__, reason)


class JsonlTracker:
    """`metrics.jsonl`, `evaluation.jsonl` and `timings.jsonl` in the run folder: the record of the run.

    Wall-clock values stay in the last file, so that the others are byte-equal for equal runs.
    """

    required: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        self.log([])  # a folder that cannot be written should stop the run before its first step

    def log(self, rows: Rows) -> None:
        """Raises UserError where the files cannot be written."""
        try:
            by_file: dict[str, list[Mapping[str, Any]]] = {METRICS_FILE: [], TIMINGS_FILE: []}
            for row in rows:
                by_file.setdefault(_file_of(row), []).append(row)
            for name, own in by_file.items():
                append_rows(self.folder / name, own)
        except OSError as error:
            raise UserError(f"cannot write the metrics of the run to {self.folder}: {error.strerror}") from error

    def close(self) -> None:
        """Nothing is left open between two calls."""


def _file_of(row: Mapping[str, Any]) -> str:
    if "policy" not in row:
        return TIMINGS_FILE
    return EVALUATION_FILE if ACCURACY in row else METRICS_FILE


class WandbTracker:
    """Weights & Biases, its files under `folder/wandb`. Offline and disabled need neither key nor network.

    A resumed training run is a new wandb run of the same name, beginning at the step it resumes from: resuming a
    wandb run that was kept offline loses data.
    """

    required: ClassVar[bool] = False

    def __init__(
        self, folder: Path, project: str, name: str, mode: Literal["online", "offline", "disabled"] = "online"
    ) -> None:
        self.folder, self.project, self.name, self.mode = folder, project, name, mode
        self._run: wandb.Run | None = None

    def start(self) -> None:
        import wandb

        if self.mode == "online" and not wandb.login(prompt=False, verify=False):  # init would wait at a prompt
            raise RuntimeError("no API key: run `wandb login`, or track offline")
        self.folder.mkdir(parents=True, exist_ok=True)  # where it is missing, wandb quietly uses a temporary one
        self._run = wandb.init(
            dir=self.folder,
            project=self.project,
            name=self.name,
            mode=self.mode,
            reinit="create_new",  # a run that the caller has open stays theirs
            settings=wandb.Settings(console="off", silent=True),  # the terminal is not its to capture
        )

    def log(self, rows: Rows) -> None:
        if self._run is None:
            raise RuntimeError("start() has not been called")
        for row in rows:
            self._run.log(scalars(row), step=row["step"])

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


class TensorBoardTracker:
    """TensorBoard event files under `folder/tensorboard`; a resumed run hides what was logged after its checkpoint."""

    required: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: SummaryWriter | None = None

    def start(self) -> None:
        import torch.utils.tensorboard  # noqa: F401  a missing package should show before the first step

    def log(self, rows: Rows) -> None:
        for row in rows:
            if self._writer is None:
                self._writer = self._open(row["step"])
            for name, value in scalars(row).items():
                self._writer.add_scalar(name, value, row["step"])
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, first_step: int) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(self.folder / "tensorboard", purge_step=first_step)


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """`<policy>/<metric>` (`timing/<metric>` in a row without policy) -> number.

    Nested dicts are flattened (`solver/scores/unparsed`); what is not recorded (None) or no number is left out.
    """
    prefix = row.get("policy", "timing")
    metrics = {key: value for key, value in row.items() if key not in ("schema", "step", "policy")}
    return dict(_flat(prefix, metrics))


def _flat(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}/{key}", item)
    elif isinstance(value, Real):
        yield name, float(value)
