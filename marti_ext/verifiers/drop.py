"""DROP's exact match and F1 (arXiv:1903.00161, its official script), after a short-answer step."""

import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from marti_ext.types import Score, ScoreStatus, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.qa import ascii_dashes, gold_answers, short_answer

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
# Between spans; the comma of 1,000 is none.
_BETWEEN = re.compile(r"[;\n]|(?<!\d),|,(?!\d{3}(?!\d))|\band\b", re.IGNORECASE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class DropVerifier(Verifier):
    """`f1` over sets of words with spans matched one to one, and `em`; the best of the annotators' answers.

    Where the reference has numbers, a span of the answer needs one of them to count. An answer is divided into spans
    at commas, semicolons, line ends and "and" only where the reference has several, and not inside one of those.
    Differs from the official script in that an empty answer is never right, and a span of nothing but articles keeps
    them. Status: "no_label" (no word in it), "truncated", "unparsed" (no short answer), "ok".
    """

    measure = "f1"

    def verify(self, task: Task, text: str) -> Score:
        return self.grade(task, text)["f1"]

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        golds = [kept for spans in gold_answers(task) if (kept := [span for span in spans if normal(span)])]
        answer = short_answer(text)
        if not golds or answer is None or not normal(answer):
            status: ScoreStatus = "no_label" if not golds else "truncated" if answer is None else "unparsed"
            return dict.fromkeys(("f1", "em"), Score(0.0, answer or "", status))
        graded = [_grade(spans, answer) for spans in golds]
        return {"f1": Score(max(f1 for f1, _ in graded), answer), "em": Score(max(em for _, em in graded), answer)}

    def read(self, task: Task, text: str) -> str:
        answer = short_answer(text) or ""
        return answer if normal(answer) else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        """Whether two answers are the same text, or the same spans in any order."""
        return normal(one) == normal(other) or sorted(_spans(one)) == sorted(_spans(other))


def normal(text: str) -> str:
    """The words of a span: split at blanks and hyphens, bare of punctuation and articles, numbers in one form."""
    words = [_word(word) for word in re.split(r"[\s-]+", ascii_dashes(text).lower())]
    return " ".join(_ARTICLE.sub(" ", " ".join(words)).split()) or " ".join(" ".join(words).split())


def _word(word: str) -> str:
    if not _is_number(word):
        word = word.translate(_PUNCTUATION)
    return str(float(word)) if _is_number(word) else word


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _grade(gold: Sequence[str], answer: str) -> tuple[float, float]:
    """(F1, exact match) against one annotator's spans."""
    golds = [normal(span) for span in gold]
    answers = _spans(answer, gold) if len(gold) > 1 else [normal(answer)]
    if not answers:
        return 0.0, 0.0
    exact = set(golds) == set(answers) and len(golds) == len(answers)
    return _aligned_f1([set(span.split()) for span in golds], [set(span.split()) for span in answers]), float(exact)


def _spans(answer: str, whole: Sequence[str] = ()) -> list[str]:
    """The spans of an answer in normal form, divided wherever spans may meet but inside the texts of `whole`."""
    kept = sorted((span.rstrip(".") for span in whole if _BETWEEN.search(span)), key=len, reverse=True)
    token = re.compile("|".join([*map(re.escape, kept), f"(?P<between>{_BETWEEN.pattern})"]), re.IGNORECASE)
    spans, start = [], 0
    for match in token.finditer(answer):
        if match["between"]:
            spans.append(answer[start : match.start()])
            start = match.end()
    return [form for span in [*spans, answer[start:]] if (form := normal(span))]


def _aligned_f1(golds: Sequence[set[str]], answers: Sequence[set[str]]) -> float:
    """The mean F1 of the best one-to-one matching; spans without a partner count 0. Rounded as officially."""
    table = np.array([[_f1(gold, answer) for answer in answers] for gold in golds])
    if table.size == 1:
        return round(float(table[0, 0]), 2)
    from scipy.optimize import linear_sum_assignment  # only the evaluation brings it, and only several spans need it

    rows, columns = linear_sum_assignment(table, maximize=True)
    return round(float(table[rows, columns].sum()) / max(len(golds), len(answers)), 2)


def _f1(gold: set[str], answer: set[str]) -> float:
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & answer:
        return 0.0
    shared = len(gold & answer)
    return 2 * shared / (len(gold) + len(answer))
