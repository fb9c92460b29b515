"""MATH-500: competition problems (arXiv:2103.03874; the subset of arXiv:2305.20050)."""

from evaluation.benchmark import MathBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Task


class MATH500(MathBenchmark):
    """The label is the row's answer in LaTeX."""

    name = "math500"
    hub = "HuggingFaceH4/MATH-500"
    paper_size = 500

    def task(self, row: Row) -> Task:
        return self.math_task(row.text("problem"), row.text("answer"), id=row.text("unique_id"))
