"""Numbers within a tolerance, with signs, powers and units."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.types import Score, Task
from marti_ext.verifiers.numeric import NumericVerifier


def graded(label: str, answer: str, unit: str = "") -> Score:
    return NumericVerifier().verify(Task("t", "", label, "numeric", {"unit": unit}), rf"So \boxed{{{answer}}}.")


@pytest.mark.parametrize(
    ("label", "answer", "right"),
    [
        ("0.05", "0.14", False),  # an absolute tolerance of 0.1 would take it
        ("1250", "1251", True),
        ("100", "105", True),  # the border of 5 % counts
        ("100", "105.1", False),
        ("100", "94.9", False),
        ("-5.5", "5.5", False),
        ("5.5", "-5.5", False),
        ("-5.5", "-5.4", True),
        ("0", "0", True),
        ("0", "0.0", True),
        ("0", "0.001", False),
        ("+2", "2", True),
        ("−2", "-2", True),
        ("89,034.79", "89000", True),
        ("420000", "4.2e5", True),
        ("420000", "4.2E+5", True),
        ("420000", r"4.2\times10^{5}", True),
        ("420000", "4.2 x 10^5", True),
        ("420000", "4.2*10^5", True),
        ("420000", r"4.2 \cdot 10^5", True),
        ("4.2e-5", r"4.2 \times 10^{-5}", True),
        ("4.2e-5", "4.2e5", False),
        ("1.5", "1.5 J", True),
        ("1.5", r"1.5\ \mathrm{J}", True),
        ("1.5", r"E = 1.5", True),
        ("1.5", r"\approx 1.5", True),
        ("1.5", r"\frac{3}{2}", True),
        ("1.414", r"\sqrt{2}", True),
        ("1.5", "150", False),
    ],
)
def test_a_number_is_right_within_five_per_cent(label: str, answer: str, right: bool) -> None:
    assert graded(label, answer) == Score(float(right), answer)


@pytest.mark.parametrize(
    ("unit", "answer", "right"),
    [
        (r"$10^{3} \mathrm{~J}$", "10", True),  # in the stated unit
        (r"$10^{3} \mathrm{~J}$", "10000", True),  # the scale written out
        (r"$10^{3} \mathrm{~J}$", "100", False),
        (r"$10^{-9} \mathrm{~m}$", r"1.0 \times 10^{-8}", True),
        (r"$\mathrm{cm}$", "10 cm", True),
        (r"$\mathrm{cm}$", "10 m", False),  # a known unit that is not the task's
        (r"$\mathrm{cm}$", "10", True),
        ("", "10 m", True),
    ],
)
def test_a_unit_may_hide_a_scale_and_another_unit_is_wrong(unit: str, answer: str, right: bool) -> None:
    assert graded("10.0", answer, unit).value == float(right)


def test_what_cannot_be_graded_is_not_wrong() -> None:
    verifier, task = NumericVerifier(), Task("t", "", "3.5", "numeric")
    assert verifier.verify(task, "It is 3.5.").status == "unparsed"  # no box
    assert verifier.verify(task, r"\boxed{large}").status == "unparsed"
    assert verifier.verify(task, r"\boxed{3.5").status == "truncated"
    assert verifier.verify(Task("t", "", "many", "numeric"), r"\boxed{3.5}").status == "no_label"
    assert verifier.verify(Task("t", "", "", "numeric"), r"\boxed{}").status == "no_label"


def test_without_required_boxes_both_shares_are_reported() -> None:
    scores = NumericVerifier(require_box=False).grade(Task("t", "", "3.5", "numeric"), "The answer is 3.5.")
    assert [(name, s.value) for name, s in scores.items()] == [("accuracy", 1.0), ("boxed", 0.0)]


def test_a_vote_tells_answers_apart_that_the_tolerance_would_not() -> None:
    verifier, task = NumericVerifier(), Task("t", "", "100", "numeric")
    assert verifier.agree(task, "100", "1.00e2")
    assert verifier.agree(task, "100", "100.9")
    assert not verifier.agree(task, "100", "103")


@given(st.text())
def test_no_text_raises(text: str) -> None:
    task = Task("t", "", "3.5", "numeric", {"unit": text})
    assert NumericVerifier(require_box=False).verify(task, text).value in (0.0, 1.0)
    assert NumericVerifier().verify(task, rf"\boxed{{{text}}}").value in (0.0, 1.0)


@pytest.mark.parametrize("part", ["1", "1,", "10^", "e5", r"\times ", "= ", r"\mathrm{", "x 10^"])
def test_long_texts_are_read_at_once(part: str) -> None:
    start = time.process_time()
    graded("3.5", part * (200_000 // len(part)))
    assert time.process_time() - start < 20  # a square of the length would take hours
