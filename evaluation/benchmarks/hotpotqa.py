"""HotpotQA: questions over two of ten paragraphs (arXiv:1809.09600)."""

from evaluation.benchmark import Benchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task

ASK = (
    "{paragraphs}\n\nQuestion: {question}\n\nAnswer from the paragraphs. Reason briefly, then put the shortest exact "
    "answer (a name, a number, a date, yes or no) in \\boxed{{}}."
)


class HotpotQA(Benchmark):
    """The distractor setting's validation split."""

    name = "hotpotqa"
    hub = "hotpotqa/hotpot_qa"
    subset = "distractor"
    split = "validation"
    kind = "hotpotqa"

    def task(self, row: Row) -> Task:
        context = row.value("context")
        try:
            pairs = list(zip(context["title"], context["sentences"], strict=True))
            paragraphs = "\n\n".join(f"{title}\n{''.join(sentences).strip()}" for title, sentences in pairs)
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{row.place}: column 'context' must hold title and sentences, found {context!r:.80}"
            ) from None
        answer = row.text("answer")
        return Task(
            row.text("id"),
            ASK.format(paragraphs=paragraphs, question=row.text("question").strip()),
            answer,
            self.kind,
            {"answers": [[answer]]},
        )
