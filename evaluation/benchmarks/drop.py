"""DROP: questions over a passage that ask for counting, sorting, adding (arXiv:1903.00161)."""

from evaluation.benchmark import Benchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task

ASK = (
    "{context}\n\nAnswer from the passage. Reason briefly, then put the shortest exact answer (a number, a date, or "
    "words of the passage; several separated by commas) in \\boxed{{}}."
)


class DROP(Benchmark):
    """The validation split, in the hub's columns or in those of the prepared copies that hold context and ref_text."""

    name = "drop"
    hub = "ucinlp/drop"
    split = "validation"
    kind = "drop"

    def task(self, row: Row) -> Task:
        if "ref_text" in row.columns:
            context = row.text("context").removesuffix("Answer:").rstrip()
            answers = [[answer] for answer in row.text("ref_text").split("|") if answer.strip()]
            id = self.id_of(context)
        else:
            passage, question = row.text("passage").strip(), row.text("question").strip()
            context = f"Passage: {passage}\nQuestion: {question}"
            answers = _annotations(row)
            id = str(row.columns.get("query_id") or self.id_of(context))
        label = "|".join(", ".join(spans) for spans in answers)
        return Task(id, ASK.format(context=context), label, self.kind, {"answers": answers})


def _annotations(row: Row) -> list[list[str]]:
    """The hub's rows hold one answer, of one or more spans."""
    spans = row.value("answers_spans")
    try:
        found = [str(span) for span in spans["spans"]]
    except (KeyError, TypeError):
        raise UserError(f"{row.place}: column 'answers_spans' must hold spans, found {spans!r:.80}") from None
    if not found:
        raise UserError(f"{row.place}: column 'answers_spans' holds no answer: remove the row")
    return [found]
