"""`python -m evaluation compare`: two runs on the same tasks, or our verdicts beside another harness's."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from evaluation.paired import Comparison, compare
from evaluation.run_file import EvaluationFolder
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table


def compare_command(first: str, second: Path, out: Path | None, console: Console) -> None:
    """Compare every benchmark and set-up that both runs have. Raises UserError where there is none."""
    if out is not None and first != "lm-eval":
        raise UserError("--out is for lm-eval: of two runs the table is all there is")
    if first == "lm-eval":
        from evaluation.peers.lm_eval import compare_run

        compare_run(EvaluationFolder(second), out, console)
        return
    comparisons = compare_runs(EvaluationFolder(Path(first)), EvaluationFolder(second))
    table = Table("benchmark", "setup", "tasks", "only first right", "only second right", "McNemar p", "second run")
    for found in comparisons:
        p = "" if found.p is None else f"{found.p:.3g}"
        row = (found.benchmark, found.setup, str(found.tasks), str(found.only_first), str(found.only_second), p)
        table.add_row(*row, found.verdict)
    show_table(console, table)
    for side in (EvaluationFolder(Path(first)), EvaluationFolder(second)):
        failed = sum(outcome.score.status in ("failed", "timeout") for outcome in side.outcomes())
        if failed:
            say(console, f"{side.path}: {failed} tasks failed and count as wrong; run it again before you compare")
    for found in comparisons:
        if found.unpaired:
            say(console, f"{found.benchmark} {found.setup}: {found.unpaired} tasks of one run alone are left out")


def compare_runs(first: EvaluationFolder, second: EvaluationFolder) -> list[Comparison]:
    """One comparison for each benchmark and set-up that both have. Raises UserError where the data differ."""
    facts = first.read()["benchmarks"], second.read()["benchmarks"]
    for name in facts[0].keys() & facts[1].keys():
        for key in ("sha256", "version"):
            if facts[0][name][key] != facts[1][name][key]:
                one, other = facts[0][name][key], facts[1][name][key]
                raise UserError(f"{name}: {key} is {one!r} and {other!r}: compare runs on the same file and version")
    groups = first.outcomes_by_setup(), second.outcomes_by_setup()
    shared = [key for key in groups[0] if key in groups[1]]
    if not shared:
        raise UserError(f"{first.path} and {second.path} have no benchmark and set-up in common")
    return [compare(groups[0][key], groups[1][key]) for key in shared]
