"""Multiple choice: the last explicit statement counts, and nothing is guessed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.types import Score, Task
from marti_ext.verifiers.choice import ChoiceVerifier

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
        (r"\boxed{Cassiopeia}", "C"),
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


@given(st.text())
def test_no_text_raises_and_the_label_plays_no_part_in_reading(text: str) -> None:
    verifier = ChoiceVerifier()
    assert verifier.read(TASK, text) == verifier.read(Task("t", "", "A", "choice", {"choices": CHOICES}), text)
    assert verifier.verify(TASK, text).value in (0.0, 1.0)


@pytest.mark.parametrize("part", ["answer ", "answer: ", "(", "$", "**", r"\boxed{", r"\text{", "A ", "\n"])
def test_long_texts_are_read_at_once(part: str) -> None:
    start = time.process_time()
    ChoiceVerifier().verify(TASK, part * (200_000 // len(part)))
    assert time.process_time() - start < 20  # a square of the length would take hours
