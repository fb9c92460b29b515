"""The micro laboratory: what does each part of CoMAS do to what a team learns?

python examples/micro_world/laboratory.py --variant comas repeats_critic --seeds 0 1 2 --out runs/laboratory
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from additions import write_questions
from families import split
from figures import draw, table
from lessons import Curriculum, taught
from probe import Probe
from rich.console import Console
from variants import VARIANTS, Variant

from marti_ext.config import Config
from marti_ext.config_file import load_config
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table
from marti_ext.training.loop import train
from marti_ext.types import Task

SETTINGS = Path(__file__).with_name("laboratory.yaml")
MEASURES = "measures.json"  # of one run, in its folder


@dataclass(frozen=True)
class Laboratory:
    """Where the runs go and what they share."""

    out: Path
    training_tasks: Sequence[Task]
    held_out: Sequence[Task]
    console: Console
    curriculum: Curriculum
    overrides: Sequence[str] = ()
    every: int = 20  # steps between measurements

    def run(self, name: str, seed: int) -> None:
        """Teach if need be, then train and measure one variant, or go on where it stopped. Raises UserError."""
        variant = VARIANTS[name]
        folder = self.out / name / f"seed-{seed}"
        curriculum = Curriculum(**(asdict(self.curriculum) | dict(variant.taught)))
        model = self.out / "taught" / f"dependence-{curriculum.dependence:g}"
        taught(model, self.training_tasks, curriculum, lambda line: say(self.console, line))
        config = run_config(variant, folder, model, self.out, [f"seed={seed}", *self.overrides])
        probe = Probe(config, self.held_out, folder / MEASURES, self.every, variant)
        started = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "training.log").open("a", encoding="utf-8") as log:  # a line for every step
            train(config, Console(file=log), probe.after_step)
        last = probe.rows[-1]
        say(
            self.console,
            f"{name}, seed {seed}: sampled accuracy {probe.rows[0]['sampled']:.3f} -> {last['sampled']:.3f} after "
            f"{last['step']} steps, {time.perf_counter() - started:.0f} s",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen variants and seeds and show all results in the folder: 0, or 2 for bad input (one line)."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)  # on a model this small a second one gains little, and loses much where cores are shared
    training_tasks, held_out = split()
    curriculum = Curriculum(steps=options.teaching_steps, judge_skill=options.judge_skill)
    console = Console()
    laboratory = Laboratory(options.out, training_tasks, held_out, console, curriculum, options.overrides)
    try:
        write_questions(options.out / "questions.jsonl", training_tasks)
        for seed in options.seeds:
            for name in options.variant:
                laboratory.run(name, seed)
    except UserError as error:
        print(f"laboratory: {error}", file=sys.stderr)
        return 2
    show(options.out, console)
    return 0


def _parser() -> argparse.ArgumentParser:
    meanings = "\n".join(f"  {name:<22} {variant.meaning}" for name, variant in VARIANTS.items())
    parser = argparse.ArgumentParser(
        description="Teach a tiny model to solve, to criticise and to judge; train two agents of it by one or more "
        "variants of CoMAS; measure them on held-out questions. The same command goes on where it was stopped.",
        epilog=f"variants:\n{meanings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N", help="of the training")
    parser.add_argument("--out", type=Path, default=Path("runs/laboratory"), help="where everything goes")
    parser.add_argument("--teaching-steps", type=int, default=Curriculum.steps)
    parser.add_argument(
        "--judge-skill", type=float, default=Curriculum.judge_skill, help="share of right judgements it is taught"
    )
    parser.add_argument(
        "--set", dest="overrides", nargs="+", default=[], metavar="key.path=value", help="in place of laboratory.yaml"
    )
    return parser


def run_config(variant: Variant, folder: Path, model: Path, out: Path, overrides: Sequence[str]) -> Config:
    """laboratory.yaml with the paths of this run and what the variant changes."""
    agents = variant.changes.get("agents", [{"policy": "ann"}, {"policy": "bob"}])
    changes = {
        "run_dir": str(folder),
        "data.sources.0.path": str(out / "questions.jsonl"),
        **{f"policies.{agent['policy']}.model": str(model) for agent in agents},
        **variant.changes,
    }
    return load_config(SETTINGS, [*(f"{key}={json.dumps(value)}" for key, value in changes.items()), *overrides])


def results(out: Path) -> list[dict[str, Any]]:
    """One row for each variant, seed and step measured so far in the folder."""
    return [
        {"variant": name, "seed": int(file.parent.name.removeprefix("seed-")), **row}
        for name in VARIANTS
        for file in sorted((out / name).glob(f"seed-*/{MEASURES}"))
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]


def show(out: Path, console: Console) -> None:
    """Write results.json and laboratory.png of everything in the folder, and print the table."""
    rows = results(out)
    (out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    draw(rows, out / "laboratory.png")
    show_table(console, table(rows))
    say(console, f"results  {out}/results.json, {out}/laboratory.png")


if __name__ == "__main__":
    sys.exit(main())
