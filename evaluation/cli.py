"""The command line: python -m evaluation run, show, grade, table, compare."""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from evaluation.benchmarks import BENCHMARKS
from evaluation.paper_tables import table_names
from evaluation.setups import PAPER_SETUPS
from marti_ext.cli import exit_status
from marti_ext.registry import BUILT_IN
from marti_ext.verifiers.kinds import VERIFIERS

Command = Callable[[argparse.Namespace, Console], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 if it went well, 2 for bad input, 130 after ctrl-C, 1 for a full disk."""
    options = _parser().parse_args(arguments)
    return exit_status(
        "evaluation", lambda: options.command(options, Console()), "the same command goes on where it was"
    )


def _run(options: argparse.Namespace, console: Console) -> None:
    from evaluation.run_command import run_command

    run_command(options, console)


def _show(options: argparse.Namespace, console: Console) -> None:
    from evaluation.show import show

    show(options.run, console, options.benchmark, options.setup, options.task, options.status, options.count)


def _grade(options: argparse.Namespace, console: Console) -> None:
    from evaluation.grade import grade_file

    grade_file(options.file, options.out, options.verifier, options.benchmark, options.data_dir, console)


def _table(options: argparse.Namespace, console: Console) -> None:
    from evaluation.table_command import table_command

    table_command(options.table, options.runs, options.out, console)


def _compare(options: argparse.Namespace, console: Console) -> None:
    from evaluation.compare import compare_command

    compare_command(options.first, options.second, options.out, console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evaluation", description="Evaluate teams on benchmarks.")
    commands = parser.add_subparsers(required=True, metavar="run | show | grade | table | compare")
    _add_run(commands.add_parser("run", help="ask, grade and count; goes on where it was stopped"))
    show = _add(commands, "show", _show, "prompts, replies, extracted answers and verdicts")
    show.add_argument("run", type=Path, help="the --out folder of a run")
    for name in ("benchmark", "setup", "task"):
        show.add_argument(f"--{name}", help=f"only this {name}")
    show.add_argument("--status", help="only right, wrong, unparsed, truncated, failed, timeout or no_label ones")
    show.add_argument("-n", "--count", type=_positive, default=3, help="how many (default 3)")
    grade = _add(commands, "grade", _grade, "grade stored replies: no model, no network")
    grade.add_argument("file", type=Path, help='JSONL rows {"id", "gold", "pred"}; for code {"id", "task", "reply"}')
    grade.add_argument("--verifier", choices=list(VERIFIERS), help="how to grade")
    grade.add_argument("--benchmark", help='rows {"id", "reply"} answer the tasks of this benchmark')
    grade.add_argument("--data-dir", type=Path, help="a folder with the benchmark's file, in place of the hub")
    grade.add_argument("--out", type=Path, required=True, help="where the graded rows go")
    table = _add(commands, "table", _table, "a published table, with our numbers beside it")
    table.add_argument("table", help=", ".join(table_names()))
    table.add_argument("runs", nargs="*", metavar="METHOD=RUN", help="a row's method, and the run that measured it")
    table.add_argument("--out", type=Path, help="a folder for Markdown, CSV and a plot")
    compare = _add(commands, "compare", _compare, "two runs on the same tasks; or lm-eval: a run and its graders")
    compare.add_argument("first", help="a run's folder, or lm-eval")
    compare.add_argument("second", type=Path, help="a run's folder")
    compare.add_argument("--out", type=Path, help="for lm-eval: a JSONL file for every disagreement")
    return parser


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, command: Command, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.set_defaults(command=_run)
    who = run.add_argument_group("who answers")
    who.add_argument("--model", help="a folder, a hub name, a name that --base-url serves; gold or wrong: scripted")
    who.add_argument("--agents", metavar="a=M,b=M", help="several models in place of one")
    who.add_argument("--base-url", help="an OpenAI-compatible endpoint, up to /v1")
    who.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the models' policies")
    who.add_argument("--temperature", type=float, default=0.7)
    who.add_argument("--top-p", type=float, default=1.0)
    who.add_argument("--max-tokens", type=_positive, default=2048, help="the longest reply (default 2048)")
    what = run.add_argument_group("what is asked")
    what.add_argument("--benchmarks", required=True, metavar="a,b", help=f"of {', '.join(BENCHMARKS)}; or paper")
    what.add_argument(
        "--setups",
        default="vanilla",
        metavar="a,b",
        help=f"of {', '.join(BUILT_IN['workflow'])}, file.py:Class; or paper: {', '.join(PAPER_SETUPS)} as there",
    )
    what.add_argument("--data-dir", type=Path, help="a folder with the benchmarks' files, in place of the hub")
    what.add_argument("--sample", type=_sample, metavar="N", help="a random subset of N tasks; or paper: its sizes")
    what.add_argument("--sample-seed", type=int, default=0)
    what.add_argument("--seeds", type=_positive, default=1, metavar="N", help="repetitions (default 1)")
    what.add_argument("--seed", type=int, default=0, help="that of all repetitions")
    how = run.add_argument_group("how")
    how.add_argument("--out", type=Path, help="the run's folder (default results/MODEL)")
    how.add_argument("--concurrency", type=_positive, default=32, help="tasks at once (default 32)")
    how.add_argument("--timeout", type=_seconds, help="seconds for one task")
    how.add_argument("--price", type=_price, metavar="P,R", help="dollars per million prompt and reply tokens")
    how.add_argument("--require-sandbox", action="store_true", help="refuse to run code if a layer is missing")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _sample(text: str) -> int | str:
    return text if text == "paper" else _positive(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _price(text: str) -> tuple[float, float]:
    try:
        prompt, reply = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write two numbers, as 0.15,0.60") from None
    if not (0 <= prompt < math.inf and 0 <= reply < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r}: prices are 0 or more")
    return prompt, reply
