"""Multiple choice: the last explicit statement counts, and nothing is guessed."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.types import Score, Task
from marti_ext.verifiers.choice import ChoiceVerifier

MMLU = Path(__file__).parents[2] / "shared" / "data" / "mmlu_test_500.jsonl"
FORMULAS = [
    "The answer is E = mc^2",
    "Answer: C_2H_6",
    "Answer: F(x)",
    r"\boxed{f(x)}",
    r"\boxed{C(n, k)}",
    r"\boxed{A+B}",
]
CHOICES = ["Centaurus", "Cygnus", "Cassiopeia", "ln 2 = [ (T1-T2)/(T1 T2) ]"]
TASK = Task("t", "Which?", "C", "choice", {"choices": CHOICES})
TEN = Task("t", "Which?", "F", "choice")


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        (r"\boxed{C}", "C"),
        (r"\boxed{\text{(C)}}", "C"),
        (r"\boxed{(c)}", "C"),
        (r"\boxed{C) Cassiopeia}", "C"),
        (r"\boxed{\textbf{(C)}\ Cassiopeia}", "C"),
        (r"\boxed{C \text{ (Cassiopeia)}}", "C"),
        (r"\boxed{\text{Option C}}", "C"),
        (r"\boxed{\text{The answer is C}}", "C"),
        (r"\boxed{\(C\)}", "C"),
        (r"\boxed{Cassiopeia}", "C"),
        (r"\boxed{\text{Cassiopeia}.}", "C"),
        (r"\boxed{B or C}", ""),  # two guesses
        (r"\boxed{(B) or (C)}", ""),
        (r"\boxed{B, C}", ""),
        (r"\boxed{42}. Answer: B", ""),  # a box counts, though it names no option
        (r"\boxed{ln 2 = [ (T1-T2)/(T1 T2) ]}", "D"),
        (r"First \boxed{A}. No: \boxed{B}", "B"),
        (r"Answer: A, so \boxed{B}", "B"),  # a box counts before words
        ("Answer: C", "C"),
        ("Antwort: / Antwort: C", "C"),  # not the A of the next word
        ("ANSWER: $B$", "B"),
        ("ANSWER: **B**", "B"),
        ("**Answer: (B)**", "B"),
        ("Answer: B.", "B"),
        ("The answer is (D), since it is.", "D"),
        ("Answer seems to be A.\nAnswer: B", "B"),
        ("Answer: A\nOn reflection:\nAnswer: B", "B"),
        ("It is bright.\n\n(C)", "C"),
        ("C", "C"),
        ("**C**", "C"),
        ("<think>Answer: A</think>Answer: B", "B"),  # reasoning is no answer
        ("**Answer**: B", "B"),
        ("Answer is: **B. Cygnus**", "B"),
        ("The correct option is B", "B"),
        ("Antwort lautet: B", "B"),
        ("Answer:\n\n(B)", "B"),
        ("Answer: Cygnus", "B"),
        ("Answer: A\nNo, wait.\n(B)", "B"),  # the last line is the last statement
        ("Answer: B\n\nI hope that helps. A good day!", "B"),
        ("The answer is B, A is wrong", "B"),
        ("The answer is A because it is bright", "A"),
        ("The answer is A or B", ""),
        ("Answer: B/C", ""),
        ("The answer is a bit complicated.", ""),
        ("Answer: A star", ""),
        ("The answer isn't B", ""),
        ("Answer: Bär", ""),  # a letter of any script makes it a word
        ("Answer: B-type", ""),
        ("ANSWER: I don't know", ""),
        ("Answer seems to be A.", ""),
        ("A star can be bright. I think C is a letter.", ""),
        ("Answer: E", ""),  # there are four options
        ("Answer:", ""),
        ("", ""),
    ],
)
def test_the_letter_that_a_reply_states(reply: str, letter: str) -> None:
    verifier = ChoiceVerifier()
    assert verifier.read(TASK, reply) == letter
    expected = Score(float(letter == "C"), letter) if letter else Score(0.0, status="unparsed")
    assert verifier.verify(TASK, reply) == expected


def test_without_options_ten_letters_are_known() -> None:
    assert ChoiceVerifier().verify(TEN, "[answer: F]").value == 1.0
    assert ChoiceVerifier().read(TEN, "Answer: K") == ""
    assert ChoiceVerifier().read(TEN, "Answer: I") == "I"


@pytest.mark.parametrize(
    "reply", ["ANSWER: I don't know", "The answer is I think hard to tell", "answer: e to the x", *FORMULAS]
)
def test_a_word_of_one_letter_and_a_formula_are_no_option(reply: str) -> None:
    assert ChoiceVerifier().read(TEN, reply) == ""


@pytest.mark.parametrize("reply", [r"So \boxed{C", "<think>Answer: C", r"\boxed{A} or \boxed{\text{C"])
def test_what_is_cut_is_truncated_and_not_wrong(reply: str) -> None:
    assert ChoiceVerifier().verify(TASK, reply) == Score(0.0, status="truncated")


@pytest.mark.parametrize("label", ["", "E", "CC", "2"])
def test_a_label_that_is_no_option_is_never_rewarded(label: str) -> None:
    task = Task("t", "Which?", label, "choice", {"choices": CHOICES})
    assert ChoiceVerifier().verify(task, rf"\boxed{{{label}}}").status == "no_label"


def test_an_option_that_stands_twice_is_no_answer() -> None:
    task = Task("t", "Which?", "A", "choice", {"choices": ["1", "1", "2"]})
    assert ChoiceVerifier().read(task, r"\boxed{1}") == ""
    assert ChoiceVerifier().read(task, r"\boxed{2}") == "C"


def test_a_letter_is_the_name_of_an_option_before_it_is_its_text() -> None:
    task = Task("t", "Which?", "B", "choice", {"choices": ["A", "E", "I", "B"]})
    assert ChoiceVerifier().read(task, r"\boxed{B}") == "B"
    assert ChoiceVerifier().read(task, r"\boxed{E}") == "B"  # there is no option (E)


def test_options_beyond_the_tenth_are_no_answer() -> None:
    task = Task("t", "Which?", "A", "choice", {"choices": [f"number {place}" for place in range(12)]})
    assert ChoiceVerifier().read(task, r"\boxed{number 9}") == "J"
    assert ChoiceVerifier().read(task, r"\boxed{number 11}") == ""


@pytest.mark.parametrize("form", [r"\boxed{%s}", r"\boxed{\text{(%s)}}", "Answer: %s", "Thus:\n(%s)", "%s"])
def test_the_letter_is_right_whatever_form_states_it(form: str) -> None:
    verifier = ChoiceVerifier()
    for label in "ABCDEFGHIJ":  # "A" and "I" are words, too, and no article is taken out of an answer
        assert verifier.verify(Task("t", "", label), form % label) == Score(1.0, label)
        assert verifier.verify(Task("t", "", "B" if label == "A" else "A"), form % label) == Score(0.0, label)
    assert verifier.agree(TEN, "A", "A")
    assert not verifier.agree(TEN, "A", "B")


@pytest.mark.skipif(not MMLU.exists(), reason="the benchmark files are not there")
def test_every_letter_and_every_option_of_mmlu_is_read_as_itself() -> None:
    rows = [json.loads(line) for line in MMLU.read_text().splitlines()]
    wrong, ambiguous = [], []
    for row in rows:
        label, option = "ABCD"[row["answer"]], row["choices"][row["answer"]]
        task = Task("t", "", label, "choice", {"choices": row["choices"]})
        replies = [rf"\boxed{{{label}}}", f"Answer: {label}", f"({label})"]
        wrong += [reply for reply in replies if ChoiceVerifier().verify(task, reply).value != 1.0]
        if ChoiceVerifier().verify(task, rf"\boxed{{{option}}}").value != 1.0:
            ambiguous.append(option)
    assert len(rows) == 500
    assert wrong == []
    assert ambiguous == ["687"]  # an option that its row has twice


@given(st.text())
def test_no_text_raises_and_the_label_plays_no_part_in_reading(text: str) -> None:
    verifier = ChoiceVerifier()
    for reply in (f"Answer: {text}", rf"\boxed{{{text}}}"):
        assert verifier.read(TASK, reply) in ("", *"ABCD")
    assert verifier.read(TASK, text) == verifier.read(Task("t", "", "A", "choice", {"choices": CHOICES}), text)
    assert verifier.verify(TASK, text).value in (0.0, 1.0)


@pytest.mark.parametrize(
    "part", ["answer ", "answer: ", "answer: x1\n", "(", "\t", "<think>", "$", "**", r"\boxed{", r"\text{", "A ", "\n"]
)
def test_long_texts_are_read_at_once(part: str) -> None:
    start = time.process_time()
    for text in (part * (200_000 // len(part)), "answer: " + part * (200_000 // len(part)) + "z"):
        ChoiceVerifier().verify(TASK, text)
    assert time.process_time() - start < 20  # a square of the length would take hours
