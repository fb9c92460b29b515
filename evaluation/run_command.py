"""`python -m evaluation run`: from its options to a plan, and from the results to a table."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from evaluation.benchmark import Benchmark
from evaluation.benchmarks import BENCHMARKS, find_benchmark
from evaluation.load import Loaded, load_benchmark
from evaluation.run_file import EvaluationFolder
from evaluation.runner import EvaluationPlan, run
from evaluation.setups import find_setups
from evaluation.summary import summarise_folder
from evaluation.team import Speakers, identity, model_name, parse_team
from marti_ext.backends.base import SamplingParams
from marti_ext.config import Sampling
from marti_ext.errors import UserError
from marti_ext.progress import say


def run_command(options: argparse.Namespace, console: Console) -> None:
    """Run what is missing, then print and write the table. Raises UserError for bad input before anything is asked."""
    sampling = _sampling(options)
    team = parse_team(options.model, options.agents, options.base_url, options.set)
    setups = find_setups(options.setups)
    benchmarks = _benchmarks(options.benchmarks)
    sandbox = _sandbox(benchmarks, options.require_sandbox, console)
    loaded = [
        (b, load_benchmark(b, data_dir=options.data_dir, sample=options.sample, sample_seed=options.sample_seed))
        for b in benchmarks
    ]
    out = options.out or Path("results") / model_name(team).replace("/", "-")
    folder = EvaluationFolder(out)
    plan = EvaluationPlan(loaded, setups, range(options.seeds), options.seed, options.concurrency, options.timeout)
    speakers = Speakers(team, sampling, options.seed)
    with folder.opened():
        folder.accept(
            {"agents": identity(team), "sampling": asdict(sampling), "seed": options.seed},
            {benchmark.name: _facts(benchmark, data, options) for benchmark, data in loaded},
            {setup.name: setup.description for setup in setups},
            {"sandbox": sandbox, "endpoints": {"base_url": options.base_url}, "timeout": {"seconds": options.timeout}},
        )
        not_graded = run(plan, speakers, folder, options.price, console)
        found = summarise_folder(folder, console)
    if all(summary.rates["failed"] == 1 for summary in found):
        raise UserError(f"every task failed: `show {out} --status failed` says why; the same command asks them again")
    if not_graded:
        say(console, f"\n{not_graded} tasks FAILED; the same command asks them again, or grades them again")


def _sampling(options: argparse.Namespace) -> SamplingParams:
    try:
        sampling = Sampling(temperature=options.temperature, top_p=options.top_p, max_tokens=options.max_tokens)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']} (got {first['input']})"
        ) from error
    return sampling.params()


def _benchmarks(names: str) -> list[Benchmark]:
    if names == "paper":
        return [b for b in BENCHMARKS.values() if b.paper_size is not None]
    found = [find_benchmark(name.strip()) for name in names.split(",")]
    if len({b.name for b in found}) < len(found):
        raise UserError(f"--benchmarks {names!r} names one twice")
    return found


def _facts(benchmark: Benchmark, loaded: Loaded, options: argparse.Namespace) -> Mapping[str, Any]:
    return {
        "version": benchmark.version,
        "data": loaded.source,
        "sha256": loaded.sha256,
        "tasks": len(loaded.tasks),
        "sample": options.sample,
        "sample_seed": options.sample_seed if options.sample else None,
    }


def _sandbox(benchmarks: Sequence[Benchmark], required: bool, console: Console) -> Mapping[str, str]:
    """What protects this machine from the programs of the models; nothing where there are none."""
    if not any(b.kind == "code" for b in benchmarks):
        return {}
    from marti_ext.verifiers.sandbox import SANDBOX

    layers = SANDBOX.in_force()
    missing = SANDBOX.missing()
    if missing and required:
        raise UserError(f"--require-sandbox: {', '.join(f'{m} ({layers[m]})' for m in missing)}")
    say(console, "sandbox: " + "; ".join(f"{layer} {state}" for layer, state in layers.items()))
    return layers
