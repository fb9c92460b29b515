"""`python -m evaluation table`: a published table with our runs beside it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evaluation.metrics import Estimate
from evaluation.paper_tables import PaperTable, as_markdown, as_table_csv, draw_table, lines, load_table
from evaluation.run_file import EvaluationFolder
from evaluation.summary import summaries
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table
from marti_ext.records import write_text_atomically
from marti_ext.registry import nearest


def table_command(name: str, runs: Sequence[str], out: Path | None, console: Console) -> None:
    """Print the table; with `out` also as Markdown, CSV and a figure. `runs` are METHOD=RUN.

    Code counts as the paper counts it, by any of a reply's blocks. Raises UserError for an unknown table or method.
    """
    table = load_table(name)
    measured: dict[tuple[str, str, str], Estimate] = {}
    about = []
    for method, folder in _runs(table, runs):
        run = EvaluationFolder(folder)
        found = summaries(run)
        for summary in found:
            # The paper's rule for code, where the benchmark has it.
            measured[method, summary.setup, summary.benchmark] = summary.measures.get("any", summary.accuracy)
        tasks = ", ".join(
            f"{s.setup} {s.benchmark} {s.tasks}" + (f" ({s.missing} results missing)" if s.missing else "")
            for s in found
        )
        sampling = run.read()["identity"]["sampling"]
        about.append(f"{method}: {folder}; tasks: {tasks}; code by any of its blocks; sampling {sampling}")
    columns, rows = lines(table, measured)
    shown = Table(*columns, title=table.source)
    for row in rows:
        if row["whose"] == "published" or any(row[column] for column in table.columns):
            shown.add_row(*(row[column] for column in columns))
    show_table(console, shown)
    for note in (*table.notes, *about):
        say(console, f"- {note}")
    if out is not None:
        write_text_atomically(out / f"{name}.md", as_markdown(table, measured, about))
        write_text_atomically(out / f"{name}.csv", as_table_csv(table, measured))
        draw_table(table, measured, out / f"{name}.png")
        say(console, f"{out}/{name}.md, {name}.csv, {name}.png")


def _runs(table: PaperTable, runs: Sequence[str]) -> list[tuple[str, Path]]:
    """(method, folder) of each METHOD=RUN; a method's own name may have an =."""
    methods = list(dict.fromkeys(row.method for row in table.rows))
    found = []
    for run in runs:
        named = [method for method in methods if run.lower().startswith(f"{method.lower()}=")]
        if not named:
            method, equals, _ = run.rpartition("=")
            if not method or not equals:
                raise UserError(f"{run!r}: write METHOD=RUN, such as {methods[0]}=results/mine")
            raise UserError(f"{run!r}: the table has no method {method!r}: {nearest(method, methods)}")
        method = max(named, key=len)
        folder = run[len(method) + 1 :]
        if not folder:
            raise UserError(f"{run!r}: write METHOD=RUN, such as {methods[0]}=results/mine")
        found.append((method, Path(folder)))
    return found
