"""The micro world: teach a tiny model, let two agents train on its mistakes, and measure how often they are right.

python examples/micro_world/run.py --out runs/micro_world
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from additions import split, write_questions
from rich.console import Console
from rich.table import Table
from teach import Teaching, taught_model, teach

from marti_ext.agent import Agent
from marti_ext.config import Config
from marti_ext.config_file import load_config
from marti_ext.errors import UserError
from marti_ext.progress import say
from marti_ext.rollout import run_episodes
from marti_ext.training.loop import train
from marti_ext.types import Task
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.workflows.vanilla import Vanilla

LEARN = Path(__file__).with_name("learn.yaml")
EVERY = 10  # steps between evaluations
COPIES = 6  # samples of each held-out question


@dataclass(frozen=True)
class Accuracy:
    """How often one agent was right on the held-out questions after so many steps."""

    step: int
    agent: str
    sampled: float
    standard_error: float  # of `sampled`
    greedy: float  # at temperature 0


@dataclass
class Measurements:
    """Evaluates the team as the training goes on, and keeps what was found in a file."""

    tasks: Sequence[Task]
    file: Path
    steps: int  # of the whole run
    console: Console
    rows: list[Accuracy] = field(default_factory=list)
    seconds: float = 0.0

    def after_step(self, steps_done: int, agents: Sequence[Agent]) -> None:
        """Evaluate before the first step, every few steps and after the last; what is measured again is replaced."""
        if steps_done % EVERY and steps_done != self.steps:
            return
        started = time.perf_counter()
        new = evaluate(agents, self.tasks, steps_done)
        self.seconds += time.perf_counter() - started
        self.rows = [*(row for row in self.rows if row.step < steps_done), *new]
        self.file.write_text(json.dumps([asdict(row) for row in self.rows], indent=1), encoding="utf-8")
        shown = ", ".join(f"{row.agent} {row.sampled:.3f} ± {row.standard_error:.3f}" for row in new)
        say(self.console, f"after {steps_done} steps: sampled accuracy {shown}")

    def read(self) -> None:
        """Take up what an earlier start of the same run has measured."""
        if self.file.exists():
            self.rows = [Accuracy(**row) for row in json.loads(self.file.read_text(encoding="utf-8"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it, or go on where it stopped: 0, or 2 for bad input (one line on stderr)."""
    parser = argparse.ArgumentParser(description="Teach a tiny model additions, train two agents, measure them.")
    parser.add_argument("--out", type=Path, default=Path("runs/micro_world"), help="where everything goes")
    parser.add_argument("--steps", type=int, help="training steps, in place of those in learn.yaml")
    parser.add_argument("--seed", type=int, default=0, help="of teaching and training")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="in place of what learn.yaml says")
    options = parser.parse_args(arguments)
    steps = [] if options.steps is None else [f"steps={options.steps}"]
    # A second thread saves a fifth of the time on a model this small, and where other programs need the cores,
    # two threads that wait for each other lose many times that.
    torch.set_num_threads(1)
    try:
        learn(options.out, Teaching(seed=options.seed), [*steps, *options.overrides], Console())
    except UserError as error:
        print(f"micro world: {error}", file=sys.stderr)
        return 2
    return 0


def learn(out: Path, teaching: Teaching, overrides: Sequence[str], console: Console) -> list[Accuracy]:
    """Teach, train and evaluate in the folder `out`, and print what came of it. Raises UserError for bad input."""
    training_tasks, held_out = split()
    config = run_config(out, teaching.seed, overrides)
    write_questions(out / "questions.jsonl", training_tasks)
    started = time.perf_counter()
    report = partial(say, console)
    taught_model(out / "taught", teaching, lambda folder: teach(folder, training_tasks, teaching, report))
    seconds = {"teaching": time.perf_counter() - started}
    measured = Measurements(held_out, out / "results.json", config.steps, console)
    measured.read()
    started = time.perf_counter()
    with (out / "training.log").open("a", encoding="utf-8") as log:  # a line for every step
        checkpoint = train(config, Console(file=log), measured.after_step)
    seconds |= {"training": time.perf_counter() - started - measured.seconds, "evaluation": measured.seconds}
    draw(measured.rows, out / "accuracy.png")
    console.print(table(measured.rows))
    say(console, ", ".join(f"{stage} {spent:.0f} s" for stage, spent in seconds.items()))
    places = {
        "accuracy": f"{out}/accuracy.png, {out}/results.json",
        "taught model": f"{out}/taught",
        "trained": ", ".join(f"{checkpoint}/{policy}" for policy in config.policies),
        "episodes": f"{config.run_dir}/episodes-*.jsonl",
        "next": f"marti-ext report {config.run_dir}",
    }
    for what, place in places.items():
        say(console, f"{what:<12}  {place}")
    return measured.rows


def run_config(out: Path, seed: int, overrides: Sequence[str]) -> Config:
    """learn.yaml with the paths and the seed of this run."""
    paths = {
        "run_dir": out / "training",
        "data.sources.0.path": out / "questions.jsonl",
        **{f"policies.{name}.model": out / "taught" for name in load_config(LEARN).policies},
    }
    own = [f"{key}={json.dumps(str(path))}" for key, path in paths.items()]  # quoted, so that any path is YAML
    return load_config(LEARN, [*own, f"seed={seed}", *overrides])


def evaluate(agents: Sequence[Agent], tasks: Sequence[Task], step: int, copies: int = COPIES) -> list[Accuracy]:
    """One row per agent. The draws are the same at every step, so that only the weights make a difference.

    The standard error is that of a mean over questions, since samples of one question are alike (Miller,
    arXiv:2411.00640, section 2.2).
    """
    sampled = graded(agents, tasks, copies)
    greedy_team = [replace(a, sampling=replace(a.sampling, temperature=0.0), trainable=False) for a in agents]
    greedy = graded(greedy_team, tasks, copies=1)
    return [
        Accuracy(
            step,
            agent.name,
            sampled=float(sampled[agent.name].mean()),
            standard_error=float(sampled[agent.name].mean(1).std(ddof=1) / np.sqrt(len(tasks))),
            greedy=float(greedy[agent.name].mean()),
        )
        for agent in agents
    ]


def graded(agents: Sequence[Agent], tasks: Sequence[Task], copies: int) -> Mapping[str, np.ndarray]:
    """{agent: (questions, copies) of 1 for right and 0 for wrong}. Raises RuntimeError if an episode failed."""
    episodes = asyncio.run(run_episodes(Vanilla(), tasks, agents, copies=copies))
    values: dict[str, list[float]] = {agent.name: [] for agent in agents}
    for episode in episodes:
        if episode.status != "ok":
            raise RuntimeError(f"the evaluation failed on {episode.task.id}: {episode.error}")
        for turn in episode.turns:
            score = verifier_for(episode.task.kind).verify(episode.task, turn.completion.text)
            values[turn.agent].append(score.value)
    return {name: np.reshape(row, (len(tasks), copies)) for name, row in values.items()}


def table(rows: Sequence[Accuracy]) -> Table:
    """Sampled and greedy accuracy by step."""
    agents = list(dict.fromkeys(row.agent for row in rows))
    made = Table("steps", *(f"{name}, {how}" for name in agents for how in ("sampled", "greedy")))
    for step in sorted({row.step for row in rows}):
        at = {row.agent: row for row in rows if row.step == step}
        cells = [
            cell
            for name in agents
            for cell in (f"{at[name].sampled:.3f} ± {at[name].standard_error:.3f}", f"{at[name].greedy:.3f}")
        ]
        made.add_row(str(step), *cells)
    return made


def draw(rows: Sequence[Accuracy], path: Path) -> None:
    """Sampled accuracy with one standard error either way, and greedy accuracy, over the steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for name, colour in zip(dict.fromkeys(row.agent for row in rows), ("#0072B2", "#D55E00"), strict=True):
        of = [row for row in rows if row.agent == name]
        steps = [row.step for row in of]
        errors = [row.standard_error for row in of]
        axis.errorbar(steps, [row.sampled for row in of], errors, color=colour, capsize=3, label=f"{name}, sampled")
        axis.plot(steps, [row.greedy for row in of], color=colour, linestyle=":", label=f"{name}, greedy")
    axis.set(xlabel="training steps", ylabel="accuracy on held-out additions", ylim=(0, 1.02))
    axis.grid(axis="y", color="#DDDDDD")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    sys.exit(main())
