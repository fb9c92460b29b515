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
    """The different answers of the annotators, which the hub's rows string together without a border.

    A number or a date is an answer of its own. Of spans, a list that repeats itself is the same answer given again;
    any other is one answer of several spans, since nothing tells it from several answers of one.
    """
    value = row.value("answers_spans")
    try:
        pairs = [(str(span), kind) for span, kind in zip(value["spans"], value["types"], strict=True)]
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{row.place}: column 'answers_spans' must hold as many spans as types, found {value!r:.80}"
        ) from None
    answers = [[span] for span, kind in pairs if kind != "span" and span.strip()]
    if spans := [span for span, kind in pairs if kind == "span" and span.strip()]:
        answers.append(_once(spans))
    if not answers:
        raise UserError(f"{row.place}: column 'answers_spans' holds no answer: remove the row")
    return [answer for place, answer in enumerate(answers) if answer not in answers[:place]]


def _once(spans: list[str]) -> list[str]:
    """The part of a list, of any length, that all of it repeats, in whatever order."""
    for size in range(1, len(spans)):
        parts = [sorted(spans[start : start + size]) for start in range(0, len(spans), size)]
        if all(part == parts[0] for part in parts):
            return spans[:size]
    return spans
