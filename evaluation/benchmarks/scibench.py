"""SciBench: college physics, chemistry and mathematics with a numeric answer (arXiv:2307.10635)."""

from evaluation.benchmark import NumericBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Task

ASK = (
    "{problem}\n\n{unit}Reason step by step, and put the final answer as a decimal number, without its unit, in "
    "\\boxed{{}}."
)


class SciBench(NumericBenchmark):
    """Graded by a relative tolerance of 0.05, as the CoMAS paper does; SciBench's own scorer has changed over time."""

    name = "scibench"
    hub = "xw27/scibench"
    split = "train"
    paper_size = 499

    def task(self, row: Row) -> Task:
        unit = str(row.columns.get("unit") or "").strip()
        stated = f"Give the answer in units of {unit}. " if unit else ""
        problem = row.text("problem_text").strip()
        source = f"{row.columns.get('source') or ''}-{row.columns.get('problemid') or ''}".replace(" ", "")
        return Task(
            self.id_of(problem, source),
            ASK.format(problem=problem, unit=stated),
            row.text("answer_number").strip(),
            self.kind,
            {"unit": unit},
        )
