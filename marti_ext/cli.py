"""The command line: marti-ext train, rollout, report."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from marti_ext.config import Config
from marti_ext.config_file import load_config, reference
from marti_ext.errors import LostProcessError, UserError
from marti_ext.progress import say
from marti_ext.registry import plugin_reference
from marti_ext.training.base import NonFiniteError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: its exit status is that of `exit_status`."""
    options = _parse(arguments)
    return exit_status(
        "marti-ext", lambda: options.run(options, Console()), "the same command goes on from the last checkpoint"
    )


def exit_status(program: str, command: Callable[[], None], stopped: str) -> int:
    """Run a command: 0 if it went well, 2 for bad input, 130 after ctrl-C (`stopped` says how to go on).

    1 for a full disk, a loss that is no number, or a process of a policy that died. What went wrong is one line on
    stderr.
    """
    # Read when torch loads. Threads that wait by spinning slow a busy machine down many times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        command()
    except UserError as error:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (NonFiniteError, LostProcessError, OSError) as error:  # OSError: a full disk, most of all
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: stopped; {stopped}", file=sys.stderr)
        return 130
    return 0


def _train(options: argparse.Namespace, console: Console) -> None:
    config = load_config(options.config, options.overrides)
    if options.dry_run:
        from marti_ext.cluster.dry_run import dry_run

        dry_run(config, console)
        return
    from marti_ext.report import draw
    from marti_ext.training.loop import train

    checkpoint = train(config, console)
    run = Path(config.run_dir)
    say(console, f"\nepisodes     {run}/episodes-*.jsonl")
    say(console, f"metrics      {run}/metrics.jsonl, {run}/timings.jsonl")
    draw(run)
    say(console, f"plots        {run}/plots/*.png")
    for policy in sorted(path.name for path in checkpoint.iterdir() if path.is_dir()):
        say(console, f"checkpoint   {checkpoint}/{policy}")
    say(console, f"next         marti-ext report {run}")


def _rollout(options: argparse.Namespace, console: Console) -> None:
    config: Config = load_config(options.config, options.overrides)
    from marti_ext.rollout_command import rollout

    rollout(config, console, show=options.show)


def _report(options: argparse.Namespace, console: Console) -> None:
    from marti_ext.records import last_episodes
    from marti_ext.report import report
    from marti_ext.transcript import print_episodes

    first, *others = options.run_folders
    if others:
        from marti_ext.comparison import compare

        compare(options.run_folders, options.figure, console)
        return
    plots = report(first, console)
    if options.show:
        print_episodes(last_episodes(first), options.show, console)
    for path in plots:
        say(console, f"plot         {path}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)  # argparse leaves overrides that stand behind an option
    for word in rest:
        if word.startswith("-") or "overrides" not in options:
            parser.error(f"unrecognized argument: {word}")
        options.overrides.append(word)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="marti-ext", description="Train and evolve teams of language-model agents.")
    commands = parser.add_subparsers(required=True, metavar="train | rollout | report")
    train = commands.add_parser(
        "train",
        help="train a team",
        description="Train a team as a YAML config says. The same command goes on from the last checkpoint.",
        epilog=_key_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.add_argument(
        "--dry-run",
        action="store_true",
        help="print where the run would be placed and what it would take; run nothing",
    )
    rollout = commands.add_parser(
        "rollout",
        help="let a team work without training it",
        description="The episodes of the config's first step, with the models that it names, kept in run_dir/rollout "
        "in place of earlier ones. For a trained model set policies.NAME.model=RUN_DIR/checkpoints/STEP/NAME. "
        "The keys are those of `marti-ext train --help`.",
    )
    rollout.add_argument("--show", type=_count, default=0, metavar="N", help="print N episodes")
    for command, run in ((train, _train), (rollout, _rollout)):
        command.add_argument("config", type=Path, help="a YAML file")
        command.add_argument("overrides", nargs="*", metavar="key.path=value", help="in place of what the file says")
        command.set_defaults(run=run)
    report = commands.add_parser(
        "report",
        help="plots and a table of a run, or of several side by side",
        description="Of one run: a table, plots in its folder, and episodes to read. Of several: one table and one "
        "figure; runs whose configs differ in the seed alone are one line, with a band.",
    )
    report.add_argument("run_folders", nargs="+", type=Path, metavar="RUN", help="the run_dir of a run")
    report.add_argument("--figure", type=Path, default=Path("comparison.png"), help="where several runs are drawn")
    report.add_argument("--show", type=_count, default=0, metavar="N", help="print N episodes of the last step")
    report.set_defaults(run=_report)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of episodes")
    return int(text)


def _key_table() -> str:
    """Every key with its default and meaning."""
    lines = ["keys of the config, with their defaults (* stands for a place in a list, or a name of your own):", ""]
    for key, default, meaning in reference():
        lines.append(f"  {key}" + (f" = {default}" if default else ""))
        lines.append(f"      {meaning}")
    lines += [
        "",
        "plug-ins that come along; their options stand beside the name (workflow: {name: comas, rounds: 2}):",
    ]
    for slot, name, meaning, options in plugin_reference():
        lines += ["", f"  {slot}: {name}", *(f"      {line}" for line in meaning.splitlines())]
        lines += [f"      {name}.{option} = {default}" for option, default in options.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
