"""HotpotQA's exact match and F1 (arXiv:1809.09600, its official script), after a short-answer step."""

import re
import string
from collections import Counter
from collections.abc import Mapping

from marti_ext.types import Score, ScoreStatus, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.qa import ascii_dashes, gold_answers, short_answer

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")  # partly right is wrong here


class HotpotQAVerifier(Verifier):
    """`f1` over the multiset of words, and `em`; the best of the alternatives of the label, which bars divide.

    Differs from the official script in that an empty answer is never right, and answers of nothing but articles are
    compared with them. Status: "no_label" (no word in it), "truncated", "unparsed" (no short answer), "ok".
    """

    measure = "f1"

    def verify(self, task: Task, text: str) -> Score:
        return self.grade(task, text)["f1"]

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        golds = [gold for spans in gold_answers(task) if words(gold := " ".join(spans))]
        answer = short_answer(text)
        if not golds or answer is None or not words(answer):
            status: ScoreStatus = "no_label" if not golds else "truncated" if answer is None else "unparsed"
            return dict.fromkeys(("f1", "em"), Score(0.0, answer or "", status))
        return {
            "f1": Score(max(_f1(gold, answer) for gold in golds), answer),
            "em": Score(float(any(words(gold) == words(answer) for gold in golds)), answer),
        }

    def read(self, task: Task, text: str) -> str:
        answer = short_answer(text) or ""
        return answer if words(answer) else ""

    def agree(self, task: Task, one: str, other: str) -> bool:
        return words(one) == words(other)


def words(text: str) -> list[str]:
    """Lower-cased words without punctuation and articles; the articles stay where nothing else would."""
    plain = ascii_dashes(text).lower().translate(_PUNCTUATION)
    return _ARTICLE.sub(" ", plain).split() or plain.split()


def _f1(gold: str, answer: str) -> float:
    golds, answers = words(gold), words(answer)
    if golds != answers and (" ".join(golds) in _CLOSED or " ".join(answers) in _CLOSED):
        return 0.0
    shared = sum((Counter(golds) & Counter(answers)).values())
    return 2 * shared / (len(golds) + len(answers))
