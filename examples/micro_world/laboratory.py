"""The micro laboratory: what does each part of CoMAS do to what a team learns?

python examples/micro_world/laboratory.py --variant comas repeats_critic --seeds 0 1 2 --out runs/laboratory
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from additions import write_questions
from families import split
from lessons import Curriculum, taught
from probe import Probe
from rich.console import Console
from teams import NAMES, Team
from variants import VARIANTS

from marti_ext.comparison import draw, table
from marti_ext.config_file import load_config
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table
from marti_ext.training.loop import train
from marti_ext.types import Task

SETTINGS = Path(__file__).with_name("laboratory.yaml")
MEASURES = "measures.json"  # of one run, in its folder
QUESTIONS = "questions.jsonl"


PANELS = {
    "sampled": "accuracy of solutions, sampled",
    "greedy": "accuracy of solutions, greedy",
    "solver_reward": "reward of solutions (mean)",
    "objection_rate": "objections (share of critiques)",
    "exam": "score and truth agree, same solutions",
    "judge_truth": "score and truth agree, own solutions",
    "judge_critic": "score and critique agree",
    "critic_truth": "critique and truth agree",
    "invalid_rate": "scores that cannot be read (share)",
}
SHOWN = ("sampled", "greedy", "solver_reward", "objection_rate", "exam", "judge_critic")  # of them in the table


@dataclass(frozen=True)
class Laboratory:
    """Where the runs go and what they share."""

    out: Path
    training_tasks: Sequence[Task]
    held_out: Sequence[Task]
    console: Console
    curriculum: Curriculum
    team: Team = field(default_factory=Team)
    overrides: Sequence[str] = ()
    every: int = 20  # steps between measurements

    def run(self, name: str, seed: int) -> None:
        """Teach if need be, then train and measure one variant, or go on where it stopped. Raises UserError."""
        variant = VARIANTS[name]
        label = self.team.label(name)
        folder = self.out / label / f"seed-{seed}"
        models = {False: self._taught(variant.taught)}
        if variant.apart:
            models[True] = self._taught({**variant.taught, **variant.apart})
        changes = {
            "run_dir": str(folder),
            "data.sources.0.path": str(self.out / QUESTIONS),
            "seed": seed,
            **self.team.changes(variant, models),
        }
        own = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        config = load_config(SETTINGS, [*own, *self.overrides])
        probe = Probe(config, self.held_out, folder / MEASURES, self.every, variant)
        started = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "training.log").open("a", encoding="utf-8") as log:  # a line for every step
            train(config, Console(file=log), probe.after_step)
        last = probe.rows[-1]
        say(
            self.console,
            f"{label}, seed {seed}: sampled accuracy {probe.rows[0]['sampled']:.3f} -> {last['sampled']:.3f} after "
            f"{last['step']} steps, {time.perf_counter() - started:.0f} s",
        )

    def _taught(self, knobs: Mapping[str, Any]) -> Path:
        """The folder of the model that a curriculum with these knobs makes."""
        kind = "-".join(f"{name}-{value:g}" for name, value in sorted(knobs.items())) or "plain"
        curriculum = replace(self.curriculum, **knobs)
        return taught(
            self.out / "taught" / kind, self.training_tasks, curriculum, lambda line: say(self.console, line)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen variants and seeds and show all results in the folder: 0, or 2 for bad input (one line)."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)  # on a model this small a second one gains little, and loses much where cores are shared
    training_tasks, held_out = split()
    curriculum = Curriculum(steps=options.teaching_steps, judge_skill=options.judge_skill)
    console = Console()
    team = Team(options.agents, options.shared)
    laboratory = Laboratory(options.out, training_tasks, held_out, console, curriculum, team, options.overrides)
    try:
        write_questions(options.out / QUESTIONS, training_tasks)
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
    parser.add_argument("--agents", type=int, choices=range(1, len(NAMES) + 1), default=Team.size, metavar="N")
    parser.add_argument("--shared", action="store_true", help="all agents are one policy")
    parser.add_argument("--out", type=Path, default=Path("runs/laboratory"), help="where everything goes")
    parser.add_argument("--teaching-steps", type=int, default=Curriculum.steps)
    parser.add_argument(
        "--judge-skill", type=float, default=Curriculum.judge_skill, help="share of right judgements it is taught"
    )
    parser.add_argument(
        "--set", dest="overrides", nargs="+", default=[], metavar="key.path=value", help="in place of laboratory.yaml"
    )
    return parser


def results(out: Path) -> list[dict[str, Any]]:
    """One row for each variant, seed and step measured so far in the folder."""
    files = sorted(out.glob(f"*/seed-*/{MEASURES}"), key=lambda file: (_place(file.parts[-3]), file))
    return [
        {"line": file.parts[-3], "seed": int(file.parts[-2].removeprefix("seed-")), **row}
        for file in files
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]


def _place(label: str) -> int:
    """Of a variant among all, whatever the team."""
    return max(place for place, name in enumerate(["", *VARIANTS]) if label.startswith(name))


def show(out: Path, console: Console) -> None:
    """Write results.json and laboratory.png of everything in the folder, and print the table."""
    rows = results(out)
    (out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    draw(rows, PANELS, out / "laboratory.png")
    show_table(console, table(rows, {key: PANELS[key] for key in SHOWN}))
    say(console, f"results  {out}/results.json, {out}/laboratory.png")


if __name__ == "__main__":
    sys.exit(main())
