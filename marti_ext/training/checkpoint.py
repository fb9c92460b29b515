"""Checkpoints: every policy or none, written beside and renamed, the latest few kept."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from marti_ext.errors import UserError
from marti_ext.training.base import PolicyTrainer

SCHEMA_VERSION = 1
STATE_FILE = "state.json"
RNG_FILE = "rng.pt"


class Checkpoints:
    """The checkpoints of one run: `folder/step-00003/<policy>/` is a Hugging Face folder after three steps."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def latest(self) -> Path | None:
        """The latest whole checkpoint; what a kill left half-written is not one."""
        whole = self._whole()
        return whole[-1] if whole else None

    def save(self, steps_done: int, trainers: Mapping[str, PolicyTrainer]) -> Path:
        """Write every policy after `steps_done` steps, then let the oldest go. The step is the data position."""
        target = self.folder / f"step-{steps_done:05d}"
        unfinished = self.folder / f".unfinished-{target.name}"
        for stale in self.folder.glob(".unfinished-*"):
            shutil.rmtree(stale)
        for name, trainer in trainers.items():
            (unfinished / name).mkdir(parents=True)
            trainer.save(unfinished / name)
        torch.save(_rng_state(), unfinished / RNG_FILE)
        state = {"schema": SCHEMA_VERSION, "steps_done": steps_done, "policies": sorted(trainers)}
        (unfinished / STATE_FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")
        if target.exists():  # a resumed run reaches the step again
            shutil.rmtree(target)
        unfinished.rename(target)
        for old in self._whole()[: -self.keep]:
            shutil.rmtree(old)
        return target

    def load(self, checkpoint: Path, trainers: Mapping[str, PolicyTrainer]) -> int:
        """Take every policy back: the number of steps done. Raises UserError if one is missing."""
        state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        if state["schema"] != SCHEMA_VERSION:
            raise UserError(f"{checkpoint} has schema {state['schema']}; this version reads {SCHEMA_VERSION}")
        lacking = [n for n in trainers if n not in state["policies"] or not (checkpoint / n / "trainer.pt").is_file()]
        if lacking:
            raise UserError(
                f"{checkpoint} lacks policy {lacking[0]!r} (it has {', '.join(state['policies'])}): restore its "
                "folder, or start anew in another run_dir"
            )
        for name, trainer in trainers.items():
            trainer.load(checkpoint / name)
        _set_rng_state(torch.load(checkpoint / RNG_FILE, weights_only=False))
        return int(state["steps_done"])

    def _whole(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob(f"step-*/{STATE_FILE}"))


def _rng_state() -> dict[str, Any]:
    """The global generators: this package draws from seeds alone, but a user's plug-in may not."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}


def _set_rng_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
