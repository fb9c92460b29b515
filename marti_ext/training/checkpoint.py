"""Checkpoints: every policy or none, written beside and renamed; of older ones the weights, or nothing, are kept."""

import json
import os
import pickle
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from marti_ext.errors import UserError
from marti_ext.training.base import DEEPSPEED_STATE, LOCAL_STATE, PolicyTrainer

SCHEMA_VERSION = 1
# Folders that a run goes on from, those that hold weights alone, and those of the best of a policy.
STEP, WEIGHTS, BEST = "step", "weights", "best"
STATE_FILE = "state.json"
RNG_FILE = "rng.pt"
# What reading a damaged file raises, in json, torch, safetensors and transformers.
DAMAGES = (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError)


class Checkpoints:
    """The checkpoints of one run: `folder/step-00003/<policy>/` is a Hugging Face folder after three steps.

    The latest `keep` can be gone on from; of `keep_weights` before them `folder/weights-00003/<policy>/` stays, the
    Hugging Face folders alone.
    """

    def __init__(self, folder: Path, keep: int, keep_weights: int = 0) -> None:
        self.folder = folder
        self.keep = keep
        self.keep_weights = keep_weights

    def latest(self) -> Path | None:
        """The latest whole checkpoint; what a kill left half-written is not one."""
        whole = self._whole()
        return whole[-1] if whole else None

    def save(self, steps_done: int, trainers: Mapping[str, PolicyTrainer]) -> Path:
        """Write every policy after `steps_done` steps, then let the oldest go. The step is the data position."""
        target = self.folder / f"{STEP}-{steps_done:05d}"
        unfinished = self.folder / f".unfinished-{target.name}"
        self.sweep()
        for name, trainer in trainers.items():
            (unfinished / name).mkdir(parents=True)
            trainer.save(unfinished / name)
        torch.save(_rng_state(), unfinished / RNG_FILE)
        state = {"schema": SCHEMA_VERSION, "steps_done": steps_done, "policies": sorted(trainers)}
        (unfinished / STATE_FILE).write_text(json.dumps(state, indent=1), encoding="utf-8")
        _flush(unfinished)
        unfinished.rename(target)
        for old in self._whole()[: -self.keep]:
            weights = self.folder / old.name.replace(STEP, WEIGHTS)
            self._remove([weights] if weights.exists() else [])  # of steps that were made again
            old.rename(weights)
        self._remove(self._numbered(WEIGHTS)[: -self.keep_weights or None])
        return target

    def keep_best(self, policy: str, steps_done: int) -> None:
        """Keep a policy's weights after `steps_done` steps, of which there is a checkpoint, and no earlier best of it.

        `folder/best-<policy>-00003/` is a Hugging Face folder.
        """
        target = self.folder / f"{BEST}-{policy}-{steps_done:05d}"
        self._remove([target] if target.exists() else [])  # a kill came before it was recorded
        unfinished = self.folder / f".unfinished-{target.name}"
        state = shutil.ignore_patterns(LOCAL_STATE, DEEPSPEED_STATE)
        shutil.copytree(self.folder / f"{STEP}-{steps_done:05d}" / policy, unfinished, ignore=state)
        _flush(unfinished)
        unfinished.rename(target)
        self._remove([path for path in self._numbered(f"{BEST}-{policy}") if path != target])

    def _remove(self, folders: Sequence[Path]) -> None:
        for old in folders:
            old.rename(self.folder / f".unfinished-{old.name}")  # a kill must not leave half of it under its name
        self.sweep()

    def sweep(self) -> None:
        """Remove what a kill left half-written or half-removed."""
        for stale in self.folder.glob(".unfinished-*"):
            shutil.rmtree(stale)
        for weights in self._numbered(WEIGHTS):
            for state in (STATE_FILE, RNG_FILE, f"*/{LOCAL_STATE}", f"*/{DEEPSPEED_STATE}"):
                for stale in weights.glob(state):
                    shutil.rmtree(stale) if stale.is_dir() else stale.unlink()

    def load(self, checkpoint: Path, trainers: Mapping[str, PolicyTrainer]) -> int:
        """Take every policy back: the number of steps done. Raises UserError if one is missing."""
        try:
            return self._load(checkpoint, trainers)
        except DAMAGES as error:
            raise UserError(
                f"{checkpoint} cannot be read ({type(error).__name__}: {error}): remove this folder to go on from the "
                "one before"
            ) from error

    def _load(self, checkpoint: Path, trainers: Mapping[str, PolicyTrainer]) -> int:
        state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        if state["steps_done"] != _steps_done(checkpoint):
            raise ValueError(f"its state is of step {state['steps_done']}")
        if state["schema"] != SCHEMA_VERSION:
            raise UserError(f"{checkpoint} has schema {state['schema']}; this version reads {SCHEMA_VERSION}")
        lacking = [n for n in trainers if n not in state["policies"] or not _is_whole(checkpoint / n)]
        if lacking:
            raise UserError(
                f"{checkpoint} lacks policy {lacking[0]!r} (it has {', '.join(state['policies'])}): restore its "
                "folder, or start anew in another run_dir"
            )
        generators = torch.load(checkpoint / RNG_FILE, weights_only=False)
        for name, trainer in trainers.items():
            trainer.load(checkpoint / name)
        _set_rng_state(generators)
        return int(state["steps_done"])

    def _whole(self) -> list[Path]:
        return [path for path in self._numbered(STEP) if (path / STATE_FILE).is_file()]

    def _numbered(self, kind: str) -> list[Path]:
        """By steps; a copy under another name is the user's."""
        found = {_steps_done(path, kind): path for path in self.folder.glob(f"{kind}-*")}
        return [found[steps] for steps in sorted(steps for steps in found if steps is not None)]


def _is_whole(policy: Path) -> bool:
    """Weights, and the state of either trainer."""
    state = (policy / LOCAL_STATE).is_file() or (policy / DEEPSPEED_STATE / "latest").is_file()
    return state and any(policy.glob("*.safetensors"))


def _flush(folder: Path) -> None:
    """On the disk before it gets its name, since older checkpoints go then."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _steps_done(checkpoint: Path, kind: str = STEP) -> int | None:
    match = re.fullmatch(rf"{kind}-(\d{{5,}})", checkpoint.name)
    return int(match[1]) if match else None


def seed_generators(seed: int) -> None:
    """Seed the global generators, for plug-ins that draw from them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _rng_state() -> dict[str, Any]:
    """The global generators: this package draws from seeds alone, but a user's plug-in may not."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}


def _set_rng_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
