"""Numbers within a tolerance, with signs, powers and units."""

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.types import Score, Task
from marti_ext.verifiers.numeric import NumericVerifier, number_of

SCIBENCH = Path(__file__).parents[2] / "shared" / "data" / "scibench.jsonl"


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
        ("1.5", "1.5J", True),
        ("1.5", r"\text{1.5 J}", True),
        ("1.5", r"1.5 \frac{\mathrm{m}}{\mathrm{s}}", True),
        ("1.5", r"x = 3 / 2 \approx 1.5", True),
        ("1.5", r"1.5 \pm 0.1", True),
        ("1.5", r"\sim 1.5 \text{ (rounded)}", True),
        ("1000", r"1{,}000", True),
        ("1{,}000", "1,000", True),
        ("+65.49", "65.49", True),
        ("100000", "10^5", True),
        ("100000", r"10^{5} \mathrm{~J}", True),
        ("0.000012", "1.2 × 10^−5", True),
        ("0.000012", "1.2 × 10⁻⁵", True),
        ("-1.2e-5", r"-1.2 \times 10^{-5} \mathrm{~C}", True),
        ("-1.2e-5", r"1.2 \times 10^{-5} \mathrm{~C}", False),
        ("-1.5", r"-\frac{3}{2}", True),
        ("-1.5", "–1.5", True),  # an en dash
        ("-1.5", "x ≈ -1.5 J", True),
        ("1.5", "-1.5 J", False),
        ("0.5", r"50\%", True),
        ("50", r"50\%", True),
        ("0", "-0", True),
        ("0", r"10^{-30}", False),  # exactly 0 is asked for
    ],
)
def test_a_number_is_right_within_five_per_cent(label: str, answer: str, right: bool) -> None:
    assert graded(label, answer) == Score(float(right), answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("3 or 4", "3, 4", "3 4", r"5\text{ (or 3)}", "3 J or 4 J", r"\pm 3", "3.1.2"),
        *("3x", "3 x + 5", r"2\pi r", r"6\sqrt{x}", "2x = 3", "-x = 3", "7 = 3", "e", "many"),
    ],
)
def test_several_numbers_a_formula_or_a_contradiction_are_no_number(answer: str) -> None:
    for label in ("3", "-3", "4"):
        assert graded(label, answer) == Score(0.0, answer, "unparsed")


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
        (r"$10^{3} \mathrm{~J}$", r"10 \times 10^{3} \mathrm{~J}", True),
        (r"$10^{3} \mathrm{~J}$", "-10", False),
        (r"$\mathrm{10^{-4}} \mathrm{~cm}$", "0.001", True),  # 10 * 1e-4
        ("$10^6$", "10^7", True),
        (r"$\mathrm{~m} \mathrm{~s}^{-1}$", "10 m/s", True),  # two spellings of one unit
        ("m/s", r"10 \mathrm{~m} \cdot \mathrm{s}^{-1}", True),
        ("m/s", r"10 \mathrm{~m} \mathrm{s}^{-2}", False),
        ("m/s", "10 km/s", False),
        ("m/s", "10 meters per second", True),
        (r"$\mathrm{Pa}$", "10 N/m^2", True),
        (r"$\mathrm{Pa}$", "10 N/m", False),
        (r"$\mathrm{kPa}$", "10 Pa", False),
        ("M", "10 m", True),  # molar is no metre, so nothing is known
        ("min", "10 s", False),
        (r"$^{\circ} \mathrm{N}$", r"10 ^{\circ} \mathrm{N}", True),  # whatever it may be, it is what was asked for
        (r"$\%$", "10", True),
        (r"$\%$", r"10\%", True),
        (r"$\%$", "0.1", True),  # 10 per cent
        (r"$\%$", r"0.1\%", False),
        (r"$10^{-3} \%$", "0.01", True),  # 10 * 1e-3
    ],
)
def test_a_unit_may_hide_a_scale_and_another_unit_is_wrong(unit: str, answer: str, right: bool) -> None:
    assert graded("10.0", answer, unit).value == float(right)


def test_the_rule_is_named_by_its_tolerance() -> None:
    assert NumericVerifier().version == "relative-0.05"
    assert NumericVerifier(relative_tolerance=0.01).version == "relative-0.01"
    assert NumericVerifier(relative_tolerance=0.01).verify(Task("t", "", "100"), r"\boxed{102}").value == 0.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" +65.49", Fraction(6549, 100)),
        ("89,034.79", Fraction(8903479, 100)),
        ("−1.642876", Fraction(-1642876, 10**6)),
        ("1.2e-5", Fraction(12, 10**6)),
        ("4.2E+5", Fraction(420000)),
        (r"4.2 \times {10}^{5}", Fraction(420000)),
        ("4.2 10^{5}", Fraction(420000)),
        (r"3\frac{1}{4}", Fraction(13, 4)),
        ("", None),
        ("10^{10^{10}}", None),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction | None) -> None:
    assert number_of(text) == value


@pytest.mark.skipif(not SCIBENCH.exists(), reason="the benchmark files are not there")
def test_every_answer_of_scibench_is_right_against_itself() -> None:
    rows = [json.loads(line) for line in SCIBENCH.read_text().splitlines()]
    wrong = []
    for row in rows:
        task = Task("t", "", row["answer_number"], "numeric", {"unit": row["unit"]})
        unit = row["unit"].replace(r"\$", "").replace("$", "")  # two rows give a bare dollar
        for answer in (row["answer_number"], f"{row['answer_number']} {unit}"):
            if NumericVerifier().verify(task, rf"\boxed{{{answer}}}").value != 1.0:
                wrong.append((answer, row["unit"]))
        opposite = rf"\boxed{{{-(number_of(row['answer_number']) or Fraction(0))}}}"
        if NumericVerifier().verify(task, opposite).value == 1.0 and number_of(row["answer_number"]):
            wrong.append((opposite, row["unit"]))
    assert len(rows) == 580
    assert wrong == []


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
    assert verifier.agree(task, "100.9", "100")
    assert not verifier.agree(task, "100", "103")
    assert not verifier.agree(task, "5.5", "-5.5")
    assert not verifier.agree(task, "5 m", "5 km")
    assert verifier.agree(task, "5 m", "5")
    scaled = Task("t", "", "4.2", "numeric", {"unit": "$10^{5}$ J"})
    assert verifier.agree(scaled, "4.2", "4.2e5")
    assert not verifier.agree(scaled, "4.2", "42")


@given(st.text(), st.sampled_from(["3.5", "0", "", "many"]))
def test_the_label_plays_no_part_in_reading(text: str, label: str) -> None:
    task = Task("t", "", "3.5", "numeric", {"unit": "m"})
    assert NumericVerifier().read(task, text) == NumericVerifier().read(Task("t", "", label, "numeric"), text)
    assert NumericVerifier().agree(task, text, text) == (number_of(text) is not None)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30))
def test_every_number_is_right_against_itself_and_never_with_the_other_sign(number: float) -> None:
    assert graded(repr(number), repr(number)).value == 1.0
    assert graded(repr(number), repr(-number)).value == float(number == 0)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    task = Task("t", "", "3.5", "numeric", {"unit": text})
    assert NumericVerifier(require_box=False).verify(task, text).value in (0.0, 1.0)
    assert NumericVerifier().verify(task, rf"\boxed{{{text}}}").value in (0.0, 1.0)


@pytest.mark.parametrize(
    "part", ["1", "1,", "10^", "e5", r"\times ", "= ", r"\mathrm{", "x 10^", " ", "(", "- ", r"\sqrt", r"\frac", "1^"]
)
def test_long_texts_are_read_at_once(part: str) -> None:
    start = time.process_time()
    long = part * (200_000 // len(part))
    graded("3.5", long)
    graded("3.5", long[:1999])  # as long as is read at all
    NumericVerifier(require_box=False).grade(Task("t", "", "3.5", "numeric"), f"The answer is {long}")
    assert time.process_time() - start < 20  # a square of the length would take hours
