"""GPQA: questions by experts of biology, physics and chemistry (arXiv:2311.12022)."""

import hashlib

from evaluation.benchmark import ChoiceBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Task


class GPQA(ChoiceBenchmark):
    """The main set of 448. The order of the options follows from the question alone, so it is the same in every
    process, subset and rerun."""

    name = "gpqa"
    hub = "Idavidrein/gpqa"
    subset = "gpqa_main"
    split = "train"
    paper_size = 448

    def task(self, row: Row) -> Task:
        question = row.text("Question").strip()
        choices = [row.text("Correct Answer"), *(row.text(f"Incorrect Answer {number}") for number in (1, 2, 3))]
        order = sorted(range(4), key=lambda place: hashlib.sha256(f"{question}\n{place}".encode()).digest())
        return self.choice_task(question, [choices[place] for place in order], order.index(0))
