"""MMLU: four-way questions of 57 subjects (arXiv:2009.03300)."""

from evaluation.benchmark import ChoiceBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task


class MMLU(ChoiceBenchmark):
    """The test split of all subjects; options in their own order."""

    name = "mmlu"
    hub = "cais/mmlu"
    subset = "all"
    paper_size = 500

    def task(self, row: Row) -> Task:
        choices = row.items("choices")
        if not all(isinstance(choice, str) for choice in choices):
            raise UserError(f"{row.place}: choices must be texts, found {choices!r:.80}")
        answer = row.value("answer")
        if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
            raise UserError(
                f"{row.place}: answer must be the place of one of {len(choices)} choices, found {answer!r}"
            )
        return self.choice_task(row.text("question").strip(), choices, answer, str(row.columns.get("subject") or ""))
