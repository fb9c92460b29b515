"""HotpotQA's and DROP's measures, each by its own official rules."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.types import Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.drop import DropVerifier
from marti_ext.verifiers.hotpotqa import HotpotQAVerifier
from marti_ext.verifiers.qa import gold_answers, short_answer

DROP = Path(__file__).parents[2] / "shared" / "data" / "drop_dev_300.jsonl"


def hotpot(gold: str, answer: str) -> tuple[float, float]:
    """(exact match, F1)"""
    scores = HotpotQAVerifier().grade(Task("t", "", gold, "hotpotqa"), answer)
    return scores["em"].value, round(scores["f1"].value, 4)


def drop(gold: str | list[list[str]], answer: str) -> tuple[float, float]:
    metadata = {} if isinstance(gold, str) else {"answers": gold}
    scores = DropVerifier().grade(Task("t", "", gold if isinstance(gold, str) else "-", "drop", metadata), answer)
    return scores["em"].value, scores["f1"].value


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"They met in \boxed{Paris}.", "Paris"),
        (r"\boxed{\text{New York}}", "New York"),
        (r"\boxed{12\%}", "12%"),
        ("I think it is Rome.\nAnswer: **Paris**", "Paris"),
        ("Final answer is Paris", "Paris"),
        ("Paris", "Paris"),
        ("<think>Rome</think>Paris", "Paris"),
        ("12.25", "12.25"),  # no full stop ends it
        ("Answer: 12.25.", "12.25"),  # the sentence's full stop is not the number's
        ("**Answer:** Paris", "Paris"),
        ("**Answer**: Paris.", "Paris"),
        ("Answer:\nParis", "Paris"),
        ("First answer: Rome. The final answer is: Paris.\nGood luck!", "Paris"),
        (r"Answer: Rome, or rather \boxed{Paris}", "Paris"),
        (r"\boxed{\text{\textbf{Paris}}}", "Paris"),
        (r"\boxed{1{,}000}", "1,000"),
        ("The answer isn't clear.\nNobody knows.", ""),
        ("Answer:", "Answer:"),  # nothing behind it: the whole line, which no gold answer is
        ("First one thing.\nThen another.", ""),
        ("", ""),
        (r"\boxed{Par", None),
        ("<think>Paris", None),
    ],
)
def test_the_short_answer_of_a_reply(reply: str, answer: str | None) -> None:
    assert short_answer(reply) == answer


@pytest.mark.parametrize(
    ("gold", "answer", "em", "f1"),
    [
        ("yes", "Yes, they are both American.", 0, 0),
        ("yes", "Yes.", 1, 1),
        ("Chief of Protocol", "Chief of Protocol of the United States", 0, 0.6667),  # 3 shared of 6 and 3
        ("3,677 seated", "3,677", 0, 0.6667),  # 1 shared of 1 and 2
        ("3,677", "3,677 seated", 0, 0.6667),
        ("Paris", "Paris Paris Paris Paris Paris", 0, 0.3333),  # 1 shared of 5 and 1
        ("The The", "the the", 1, 1),
        ("The The", "a", 0, 0),
        ("1990–1995", "1990-1995", 1, 1),
        ("−5", "-5", 1, 1),
        (" Paris", "Paris", 1, 1),
        ("Rome|Paris", "Paris", 1, 1),
        ("A", "A", 1, 1),
        ("The The", "", 0, 0),
        ("no", "no, noanswer", 0, 0),
        ("noanswer", "noanswer", 1, 1),
        ("Paris", "yes", 0, 0),
        ("12.25", "12.25.", 1, 1),
        ("Paris", "The Paris", 1, 1),
        ("Paris France", "France Paris", 0, 1),  # the order counts for em alone
    ],
)
def test_hotpotqa_counts_every_word(gold: str, answer: str, em: float, f1: float) -> None:
    assert hotpot(gold, answer) == (em, f1)


@pytest.mark.parametrize(
    ("gold", "answer", "em", "f1"),
    [
        ("1,000", "1000", 1, 1),
        ("$10", "10", 1, 1),
        ("-5", "5", 1, 1),  # the sign is lost at the hyphen, as officially
        ("2", "two", 0, 0),
        ("12 yards", "12-yard", 0, 0.5),  # shared: 12, of two and two
        ("12 yards", "13 yards", 0, 0),  # another number
        ("Paris", "Paris Paris Paris", 0, 1),  # f1 is over sets, em over the text
        ("Filipinos Pakistanis", "Pakistanis Filipinos", 0, 1),
        ("1000", "1,000.", 1, 1),
        ("5", "−5", 1, 1),  # a Unicode minus is a hyphen
        ("1990–1995", "1990-1995", 1, 1),
        (" Paris", "Paris", 1, 1),
        ("The The", "the the", 1, 1),
        ("The The", "", 0, 0),
        ("A", "A", 1, 1),
        ("12 yards", "12", 0, 0.67),  # shared: 1 of two and one
        ("Mills and Otto", "Mills and Otto", 1, 1),  # a label without spans is one
        ("27|28", "28", 1, 1),
        ([["Mills", "Otto"]], "Otto, Mills", 1, 1),
        ([["Mills", "Otto"]], "Otto and Mills", 1, 1),
        ([["Mills", "Otto"]], "Otto", 0, 0.5),  # one of two spans
        ([["Mills", "Otto"]], "Otto, Mills, Hall", 0, 0.67),  # a third that nobody asked for
        ([["Mills"], ["Otto"]], "Otto", 1, 1),
        ([["Mills", "Otto"], ["Otto"]], "Otto", 1, 1),  # the best annotator counts
        ([["Mills", "Otto"]], r"\boxed{Mills; Otto}", 1, 1),
        ([["Mills", "Otto"]], "\\boxed{Mills\nOtto}", 1, 1),
        ([["Mills", "Otto"]], "Mills Otto", 0, 0.33),  # one span: 2/3 with the first, none with the other
        ([["1,000", "2,000"]], "2,000 and 1,000", 1, 1),  # a comma inside a number divides nothing
        ([["Washington, D.C.", "Trinidad and Tobago"]], "Trinidad and Tobago, Washington, D.C.", 1, 1),
        ([["12 yards", "13 yards"]], "13 yards, 14 yards", 0, 0.5),  # another number counts 0, whatever the words
        ("12.25", "12.25", 1, 1),
    ],
)
def test_drop_compares_sets_and_matches_spans(gold: str | list[list[str]], answer: str, em: float, f1: float) -> None:
    assert drop(gold, answer) == (em, f1)


@pytest.mark.parametrize("verifier", [HotpotQAVerifier(), DropVerifier()])
def test_an_empty_answer_is_never_right_and_an_unusable_label_never_rewarded(verifier: Verifier) -> None:
    for reply in ("", r"\boxed{}", "..."):
        assert {s.value for s in verifier.grade(Task("t", "", "The"), reply).values()} == {0.0}
    for label in ("", "|", " ", "...", "-"):
        assert {s.status for s in verifier.grade(Task("t", "", label), "Paris").values()} == {"no_label"}
    assert verifier.verify(Task("t", "", "Paris"), r"\boxed{Par").status == "truncated"
    assert verifier.verify(Task("t", "", "Paris"), "A line.\nAnother line.").status == "unparsed"


@pytest.mark.parametrize("verifier", [HotpotQAVerifier(), DropVerifier()])
def test_votes_agree_on_the_normal_form(verifier: Verifier) -> None:
    task = Task("t", "", "Paris")
    assert verifier.agree(task, "The Paris", "paris.")
    assert not verifier.agree(task, "Paris", "Rome")
    assert verifier.read(task, "Answer: Paris.") == "Paris"
    assert verifier.read(task, r"\boxed{...}") == verifier.read(task, r"\boxed{Par") == ""


def test_votes_on_drop_take_spans_in_any_order_and_words_only_in_theirs() -> None:
    task = Task("t", "", "Paris")
    assert DropVerifier().agree(task, "Otto, Mills", "Mills and Otto")
    assert DropVerifier().agree(task, "1,000", "1000")
    assert not DropVerifier().agree(task, "man bites dog", "dog bites man")


def test_gold_answers_are_alternatives_of_spans() -> None:
    assert gold_answers(Task("t", "", "27| 28 |")) == [["27"], ["28"]]
    assert gold_answers(Task("t", "", "x", metadata={"answers": [["a", " "], [" b", "c"], []]})) == [["a"], ["b", "c"]]
    assert gold_answers(Task("t", "", "x", metadata={"answers": ["Paris", "Rome"]})) == [["Paris"], ["Rome"]]


@pytest.mark.skipif(not DROP.exists(), reason="the benchmark files are not there")
@pytest.mark.parametrize("form", ["Answer: {}", "It is so. The answer is {}.", "\\boxed{{{}}}"])
@pytest.mark.parametrize("verifier", [HotpotQAVerifier(), DropVerifier()])
def test_every_answer_of_drop_is_right_against_itself(verifier: Verifier, form: str) -> None:
    labels = [json.loads(line)["ref_text"] for line in DROP.read_text().splitlines()]
    graded = [
        (gold, {score.value for score in verifier.grade(Task("t", "", label), form.format(gold)).values()})
        for label in labels
        for gold in label.split("|")
    ]
    assert len(labels) == 300
    assert [gold for gold, values in graded if values != {1.0}] == []


@given(st.text(), st.text())
def test_no_text_raises(gold: str, text: str) -> None:
    for verifier in (HotpotQAVerifier(), DropVerifier()):
        for score in verifier.grade(Task("t", "", gold), text).values():
            assert 0 <= score.value <= 1
            assert score.value == 0 or score.status == "ok"
        assert verifier.read(Task("t", "", gold), text) == verifier.read(Task("t", "", "Paris"), text)


@given(st.text(min_size=1, alphabet=st.characters(categories=["L", "N"])))
def test_gold_answers_itself(gold: str) -> None:
    boxed = rf"\boxed{{{gold}}}"
    for verifier in (HotpotQAVerifier(), DropVerifier()):
        scores = verifier.grade(Task("t", "", gold), boxed)
        assert {s.value for s in scores.values()} == {1.0}


@pytest.mark.parametrize("part", ["answer: ", "the ", "-", "a, ", " and ", r"\text{", "1 ", " ", "\n", ",", "*"])
def test_long_texts_are_read_at_once(part: str) -> None:
    start = time.process_time()
    for verifier in (HotpotQAVerifier(), DropVerifier()):
        for reply in (rf"\boxed{{a{part * (200_000 // len(part))}b}}", "answer: " + part * (200_000 // len(part))):
            verifier.grade(Task("t", "", "-", "drop", {"answers": [["Mills, a", "Otto"]]}), reply)
    assert time.process_time() - start < 20
