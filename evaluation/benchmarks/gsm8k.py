"""GSM8K: grade-school word problems (arXiv:2110.14168)."""

from evaluation.benchmark import MathBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Task


class GSM8K(MathBenchmark):
    """The label is the row's rationale, which ends in `#### 18`; one without the mark is none."""

    name = "gsm8k"
    hub = "openai/gsm8k"
    subset = "main"
    paper_size = 500

    def task(self, row: Row) -> Task:
        answer = row.text("answer")
        return self.math_task(row.text("question"), answer if "####" in answer else "")
