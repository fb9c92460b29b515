"""DROP's exact match and F1 (arXiv:1903.00161, its official script), after a short-answer step."""

import re
import string
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.qa import ascii_dashes, gold_answers, short_answer

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_BETWEEN = re.compile(r"\s*(?:[,;\n]\s*(?:and\s)?|\band\b)\s*")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class DropVerifier(Verifier):
    """`f1` over sets of words with spans matched one to one, and `em`; the best of the annotators' answers.

    Numbers in the reference have to be in the answer. An answer is divided at commas, semicolons, line ends and "and"
    where the reference has several spans. An empty answer is never right. Status: "no_label", "truncated", "unparsed"
    (no short answer), "ok".
    """

    measure = "f1"

    def verify(self, task: Task, text: str) -> Score:
        return self.grade(task, text)["f1"]

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        golds = gold_answers(task)
        answer = short_answer(text)
        if not golds or answer is None or not answer.strip():
            status = "no_label" if not golds else "truncated" if answer is None else "unparsed"
            return dict.fromkeys(("f1", "em"), Score(0.0, answer or "", status))  # type: ignore[arg-type]
        graded = [_grade(spans, answer) for spans in golds]
        return {"f1": Score(max(f1 for f1, _ in graded), answer), "em": Score(max(em for _, em in graded), answer)}

    def read(self, task: Task, text: str) -> str:
        return short_answer(text) or ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        return _bag(one) == _bag(other)


def _grade(gold: Sequence[str], answer: str) -> tuple[float, float]:
    """(F1, exact match) against one annotator's spans."""
    spans = [span for span in _BETWEEN.split(answer) if span] if len(gold) > 1 else [answer]
    golds, answers = [_bag(span) for span in gold], [_bag(span) for span in spans]
    exact = sorted(map(sorted, golds)) == sorted(map(sorted, answers))
    if not any(answers):
        return 0.0, 0.0
    return _aligned_f1(golds, answers), float(exact)


def _aligned_f1(golds: Sequence[frozenset[str]], answers: Sequence[frozenset[str]]) -> float:
    """The mean F1 of the best one-to-one matching; spans without a partner count 0. Rounded as officially."""
    table = np.array([[_f1(gold, answer) for answer in answers] for gold in golds])
    rows, columns = linear_sum_assignment(table, maximize=True)
    return round(float(table[rows, columns].sum()) / max(len(golds), len(answers)), 2)


def _f1(gold: frozenset[str], answer: frozenset[str]) -> float:
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & {word for word in answer if _is_number(word)}:
        return 0.0
    shared = len(gold & answer)
    return 2 * shared / (len(gold) + len(answer)) if shared else 0.0


def _bag(text: str) -> frozenset[str]:
    """The different words of a span: split at blanks and hyphens, bare of punctuation and articles."""
    words = (_word(word) for word in re.split(r"[\s-]+", ascii_dashes(text).lower()))
    return frozenset(word for word in words if word)


def _word(word: str) -> str:
    if not _is_number(word):
        word = word.translate(_PUNCTUATION)
    word = str(float(word)) if _is_number(word) else word
    return " ".join(_ARTICLE.sub(" ", word).split())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
