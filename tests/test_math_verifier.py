"""The right verdict for every way of writing an answer that has broken a grader."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.types import Score, Task
from marti_ext.verifiers.math import MathVerifier, equivalent
from marti_ext.verifiers.math.extract import find_answer, read_label
from marti_ext.verifiers.math.normalise import normalise
from marti_ext.verifiers.math.number import Number, read_number, same_number

SHARED = Path(__file__).parents[2] / "shared"
STRICT = MathVerifier()
LENIENT = MathVerifier(require_box=False)


def grade(label: str, text: str, verifier: MathVerifier = STRICT) -> Score:
    return verifier.verify(Task("t", "a problem", label), text)


FAR = "and so we go on with the other case, which is much like the first one, " * 3

# trap, label, what the box holds, right
PAIRS = [
    ("M1", r"\boxed{\frac{1}{3^{70}}}", r"\frac{1}{3^{69}}", False),
    ("M1", r"\boxed{\frac{1}{3^{70}}}", r"3^{-70}", True),
    ("M1", r"\boxed{\frac{1}{60!}}", r"\frac{1}{62!}", False),
    ("M1", r"\frac{\pi}{3^{70}}", r"\frac{\pi}{3^{69}}", False),
    ("M1", r"\frac{\sqrt2}{3^{70}}", r"\sqrt{2}\cdot 3^{-70}", True),
    ("M1", "0.0000001", "0.0000002", False),
    ("M2", r"$2+\frac{3}{\mathrm{e}}$", r"2-\frac{3}{\mathrm{e}}", False),
    ("M2", r"$2+\frac{3}{\mathrm{e}}$", r"\frac{3}{e}+2", True),
    ("M2", "$6$", r"6\sqrt(3)", False),
    ("M2", r"6\sqrt{3}", r"6\sqrt(3)", True),
    ("M3", "125 and 216", "216", False),
    ("M3", "125 and 216", "216, 125", True),
    ("M3", "125 and 216", "125,216", True),
    ("M3", r"\boxed{125,216}", r"125 \text{ and } 216", True),
    ("M4", r"(-\infty,7)", "x<7", False),
    ("M4", "x<7", r"(-\infty,7)", False),
    ("M4", "x<7", "7>x", True),
    ("M4", r"-2\le x<3", r"3 > x \ge -2", True),
    ("M4", "x<7", r"x\le 7", False),
    ("M14", "4,7", "(4,7)", True),
    ("M14", "4,7", "47", False),
    ("M14", "12600", "12{,}600", True),
    ("M14", "12600", r"12,\!600", True),
    ("M14", "12600", "12,600", True),
    ("M14", r"11,\! 111,\! 111,\! 100", "11111111100", True),
    ("M14", "(1,234)", "1234", False),
    ("M15", "4,7", "4, 7", True),
    ("M15", "4.7", "4,7", False),
    ("M15", "58,500", "58.5", False),
    ("M16", "3.25", r"3\frac{1}{4}", True),
    ("M16", "13/4", "3 1/4", True),
    ("M16", "-3.25", r"-3\frac{1}{4}", True),
    ("M16", r"\frac34", r"3\frac14", False),
    ("M16", "31/4", "3 1/4", False),
    ("M17", r"35\%", "35", True),
    ("M17", r"35\%", "35%", True),
    ("M17", r"35\%", "0.35", True),
    ("M17", r"35\%", r"35 \text{ percent}", True),
    ("M17", r"35\%", "3.5", False),
    ("M17", r"0.4\%", "0.4", True),
    ("M17", r"0.4\%", "0.004", True),
    ("M17", r"0.4\%", "40", False),
    ("M17", "50", r"50\%", True),
    ("M18", r"12\text{ cm}", "12", True),
    ("M18", "12", "12 cm", True),
    ("M18", r"12\text{ cm}", "12 m", False),
    ("M18", r"12\text{ cm}", r"12\,\mathrm{m}", False),
    ("M18", r"12\text{ cm}", r"12\text{ centimeters}", True),
    ("M18", r"15\mbox{ cm}^2", r"15 \text{ square centimeters}", True),
    ("M18", r"15\mbox{ cm}^2", r"15 \text{ cm}", False),
    ("M18", r"12 \text{ m/s}", r"12 \text{ km/h}", False),
    ("M18", r"18 \text{ integers}", "18", True),
    ("M18", r"75^\circ", "75", True),
    ("M18", r"75^\circ", "75 degrees", True),
    ("M18", r"75^\circ", r"75\text{ radians}", False),
    ("M18", "312_4", "312_5", False),
    ("M18", "312_4", "312", True),
    ("M18", "312_4", r"312_{\text{four}}", True),
    ("M18", "2s", "2", False),  # a variable is no unit
    ("M18", r"5\text{ (or 7)}", "7", False),
    ("M19", "29", r"\$29.00", True),
    ("M19", "29", "29.", True),
    ("M19", "29", "$29.00", True),
    ("M19", r"\$32,\!348", r"\$32,348", True),
    ("M19", r"5.4 \text{ cents}", r"\$5.4", False),
    ("M21", "033", "33", True),
    ("M21", "16", "016", True),
    ("M22", "3,-8", "-8,3", True),
    ("M22", "(3,-8)", "(-8,3)", False),
    ("M22", "(3,-8)", "3,-8", True),
    ("M22", r"\{1,2\}", r"\{2,1\}", True),
    ("M23", "[1,6)", "(1,6]", False),
    ("M23", r"(-\infty,3)\cup(3,\infty)", r"(-\infty,\infty)", False),
    ("M23", r"(-\infty, 2) \cup (3, \infty)", r"(3,\infty)\cup(-\infty,2)", True),
    ("M23", r"x \in [-2,7]", "[-2,7]", True),
    ("M23", r"[5,5 \sqrt{2}]", r"[5, \sqrt{50}]", True),
    ("M24", "4a+9", "9+4a", True),
    ("M24", "a-9", "9-a", False),
    ("M26", r"\sqrt{1/n}", r"1/\sqrt{n}", True),  # wherever both are real
    ("M26", "|x|", "x", False),
    ("M26", r"\sqrt{x^2}", "x", False),
    ("M27", r"\text{east}", "seat", False),
    ("M27", "east", r"\text{East}", True),
    ("M27", r"\boxed{no}", "on", False),
    ("M27", "xy", "yx", True),
    ("M28", "420000", "4.2e5", True),
    ("M28", "420000", "4.2E+5", True),
    ("M28", "420000", r"4.2\times10^{5}", True),
    ("M28", "420000", "4.2 x 10^5", True),
    ("M28", "420000", "4.2*10^5", True),
    ("M28", "420000", "4.2 × 10⁵", True),
    ("M28", "-8", "−8", True),
    ("M28", "1/2", "½", True),
    ("M28", r"\frac23", r"0.\overline{6}", True),
    ("M28", r"\frac23", "0.666...", True),
    ("M28", r"\frac{1}{6}", r"0.1\overline{6}", True),
    ("M30", "5", "10^{10^{10}}", False),
    ("M30", "5", "(10^9)!", False),
    ("M30", "10^{10^{10}}", "10^{10^{10}}", True),
    ("choice", r"\text{(B)}", "B", True),
    ("choice", "C", "C: 40 N", True),
    ("choice", "C", r"\textbf{(C)}\ 40", True),
    ("choice", "C", "D: 40 N", False),
    ("ratio", "3:4", "4:3", False),
    ("ratio", "9:30", "8:30", False),
    ("ratio", r"9:30 \text{ p.m.}", r"9:30 \text{ a.m.}", False),
    ("plus-minus", r"1 \pm \sqrt{19}", r"x=1+\sqrt{19}, x=1-\sqrt{19}", True),
    ("plus-minus", r"\pm 6", "6", False),
    ("plus-minus", r"\{1\pm\sqrt{5},-2\}", r"-2,1+\sqrt5,1-\sqrt5", True),
    ("equation", "x=5", "5", True),
    ("equation", "5", "x = 5", True),
    ("equation", "x=5", "y=5", False),
    ("equation", "y = 2x + 3", "2x-y+3=0", True),
    ("equation", "x=3", "2x=6", False),  # the problem restated
    ("equation", "x<3", "2x<6", False),
    ("matrix", r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}", r"\begin{bmatrix}\frac15\\-3.6\end{bmatrix}", True),
    ("matrix", r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}", r"\begin{pmatrix} 0&1\\1&0 \end{pmatrix}", False),
    ("complex", "5", "(2+i)(2-i)", True),
    ("complex", "6 - 5i", "6+5i", False),
    ("algebra", "(a+5)(b+2)", "ab+2a+5b+10", True),
    ("algebra", r"\frac{10}{\sqrt{3}}", r"\frac{10\sqrt3}{3}", True),
    ("algebra", "R-r", "r-R", False),
    ("algebra", "R-r", "0", False),
    ("algebra", "3 - 2f(x)", "-2f(x)+3", True),
    ("algebra", r"\frac12", r"\sin 30^\circ", True),
    ("algebra", r"\cot x", r"\frac{\cos x}{\sin x}", True),
    ("algebra", r"\cot x", r"\tan x", False),
    ("algebra", "(-1)^n", r"\cos(\pi n)", True),
    ("decimal", r"\sqrt{2}", "1.414214", True),
    ("decimal", r"\sqrt2", "1.41", False),
    ("decimal", "1/3", "0.333333", True),
    ("decimal", "1/3", "0.33", False),
    ("decimal", "10000000", "10000001.0", False),
    ("decimal", "123456.78", "123456.79", False),
]


@pytest.mark.parametrize(("trap", "label", "answer", "right"), PAIRS)
def test_a_boxed_answer_gets_the_right_verdict(trap: str, label: str, answer: str, right: bool) -> None:
    assert grade(label, f"Therefore \\boxed{{{answer}}}.") == Score(float(right), answer)


# trap, label, reply, the expected value and status
REPLIES = [
    ("M5", "17", r"So \boxed{17} ... yes, \boxed{17}. **Final Answer** \boxed{17}", 1, "ok"),
    ("M5", "9", r"From 3,144,009 we get \boxed{009}. Check 3,144,009: \boxed{009}", 1, "ok"),
    ("M6", "2,9", r"\boxed{2} and \boxed{9}", 1, "ok"),
    ("M6", "2,9", rf"\boxed{{2}} {FAR} \boxed{{9}}", 1, "ok"),
    ("M6", "2,9", r"$x=\boxed{2}$ and $y=\boxed{9}$", 1, "ok"),
    ("M6", "9", r"\boxed{7}, \boxed{8}, \boxed{9}", 0, "ok"),
    ("M6", "9", r"$\boxed{7}$ or $\boxed{9}$", 0, "ok"),
    ("M6", "9", rf"First try \boxed{{7}}. {FAR} So \boxed{{9}}.", 1, "ok"),
    ("M6", "2,9", rf"First try \boxed{{7}}. {FAR} So \boxed{{2,9}}.", 1, "ok"),
    ("M7", "42", "Could be 40 or 41, hmm, 42", 0, "unparsed"),
    ("M8", "", r"\boxed{6}", 0, "no_label"),
    ("M8", "The proof is left to the reader.", r"\boxed{6}", 0, "no_label"),
    ("M8", r"\frac{1}{", r"\boxed{\frac{1}{}", 0, "no_label"),
    ("M8", "$$", r"\boxed{6}", 0, "no_label"),
    ("M8", r"\sqrt{x<}+\frac{1}{y}", r"\boxed{y}", 0, "no_label"),  # only the reader of LaTeX can tell
    ("M10", "8", r"I was told to mark the solution with \boxed . The result is \boxed{8}.", 1, "ok"),
    ("M10", "8", r"The result is \boxed{8}. I was told to mark the solution with \boxed .", 1, "ok"),
    ("M10", "8", r"The result is \boxed{8}, in \boxed{} as I was told.", 1, "ok"),
    ("M11", "E", r"\boxed{\text{E}}", 1, "ok"),
    ("M11", r"\frac{\sqrt{3}}{2}", r"\boxed{\frac{\sqrt{3}}{2}}", 1, "ok"),
    ("M11", "5", r"Thus \boxed{5", 0, "truncated"),
    ("M11", "5", r"First \boxed{5}, then \boxed{5", 0, "truncated"),
    ("M11", "9", r"First \boxed{5 and then \boxed{9}", 1, "ok"),
    ("M12", "15", "6+9=15\n#### 15" + " thank you" * 60, 0, "unparsed"),
    ("M13", "[2,6)", r"The domain is \boxed{[2,6)}", 1, "ok"),
    ("M13", "[2,6)", r"\[ \boxed{[2,6)} \]", 1, "ok"),
    ("fbox", "42", r"\fbox{42}", 1, "ok"),
    ("empty", "0", r"\boxed{}", 0, "unparsed"),
    ("empty", "0", r"\boxed{ $ $ }", 0, "unparsed"),
    ("empty", "0", "", 0, "unparsed"),
    ("thinking", "4", r"<think>\boxed{5}</think> \boxed{4}", 1, "ok"),
    ("thinking", "4", r"so it is \boxed{5}</think> \boxed{4}", 1, "ok"),
    ("thinking", "4", r"<think>so it is \boxed{4}", 0, "truncated"),
    ("thinking", "4", r"<think>\boxed{4}</think>", 0, "unparsed"),
    ("gsm8k", "She has 9 + 9 = <<9+9=18>>18 left.\n#### 18", r"\boxed{18}", 1, "ok"),
    ("gsm8k", "She has 9 + 9 = <<9+9=18>>18 left.\n#### 1,800", r"\boxed{1800}", 1, "ok"),
]


@pytest.mark.parametrize(("trap", "label", "reply", "value", "status"), REPLIES)
def test_a_reply_gets_the_right_value_and_status(trap: str, label: str, reply: str, value: int, status: str) -> None:
    score = grade(label, reply)
    assert (score.value, score.status) == (value, status)


@pytest.mark.parametrize(
    ("text", "answer", "source"),
    [
        (r"so \boxed{7} and #### 8", "7", "box"),
        ("6+9=15\n#### 15\n" + "closing remarks " * 40, "15", "marker"),
        ("First the answer is 3. No, the final answer is: **x = 4**", "4", "phrase"),
        ("The answer is 42.", "42.", "phrase"),
        ("3 1/4", "3 1/4", "whole"),
        ("Could be 40 or 41, hmm, 42", "42", "last"),
        (r"We see that it must be equal to $\frac{1}{2}$ here, as was shown", r"\frac{1}{2}", "last"),
        ("I do not know what this could be", "", "none"),
        (r"Thus \boxed{5", "", "cut"),
        ("<think>5", "", "cut"),
    ],
)
def test_without_a_box_the_documented_chain_is_followed(text: str, answer: str, source: str) -> None:
    found = find_answer(text, require_box=False)
    assert found.source == source
    assert answer in found.answer if source == "phrase" else found.answer == answer


def test_the_chain_is_graded_only_where_boxes_are_not_required() -> None:
    assert grade("42", "Could be 40 or 41, hmm, 42", LENIENT) == Score(1.0, "42")
    assert grade("15", "6+9=15\n#### 15" + "\nthank you" * 60, LENIENT) == Score(1.0, "15")


@pytest.mark.parametrize("verifier", [LENIENT, STRICT], ids=["lenient", "strict"])
def test_every_collected_case_gets_its_verdict(verifier: MathVerifier) -> None:
    lines = (Path(__file__).parent / "data/math_equivalence.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) == 44
    if verifier.require_box:  # as rewards grade: only what stands in a box is an answer
        cases = [c for c in cases if "boxed{" in c["pred"] or "fbox{" in c["pred"]]
        assert len(cases) == 30
    wrong = [c["id"] for c in cases if (grade(c["gold"], c["pred"], verifier).value == 1.0) != c["equal"]]
    assert wrong == []


@pytest.mark.parametrize("pred", ["7=5", "?=5", "2x=5"])
def test_an_equation_with_a_false_left_side_is_no_answer(pred: str) -> None:
    assert grade("5", rf"\boxed{{{pred}}}", STRICT).value == 0.0
    assert grade("5", r"\boxed{2+3=5}", STRICT).value == 1.0
    assert grade("5", r"\boxed{x=5}", STRICT).value == 1.0


@pytest.mark.skipif(not SHARED.exists(), reason="the benchmark files are not there")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("gsm8k_test", 1319),
        ("gsm8k_train_2000", 2000),
        ("math500", 500),
        ("math_train_level45_600", 600),
        ("aime_2024", 30),
    ],
)
def test_every_benchmark_answer_is_right_against_itself(name: str, rows: int) -> None:
    labels = [json.loads(line)["answer"] for line in (SHARED / f"data/{name}.jsonl").read_text().splitlines()]
    replies = [rf"So \boxed{{{label.rpartition('####')[2].strip()}}}." for label in labels]
    wrong = [label for label, reply in zip(labels, replies, strict=True) if grade(label, reply).value != 1.0]
    assert len(labels) == rows
    assert wrong == []


def test_importing_the_verifier_loads_no_computer_algebra() -> None:
    code = "import sys, marti_ext.verifiers.math; print({'sympy', 'math_verify'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_votes_are_compared_in_either_form() -> None:
    assert equivalent(gold="0.5", pred=r"\frac12")
    assert equivalent(gold="She sold 9 and 9.\n#### 18", pred="18")
    assert not equivalent(gold="", pred="")
    assert not equivalent(gold="3", pred="")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("027", Fraction(27)),
        ("-.5", Fraction(-1, 2)),
        (r"0.1\overline{23}", Fraction(122, 990)),
        (r"3\frac{1}{4}", Fraction(13, 4)),
        (r"3*\frac{1}{4}", Fraction(3, 4)),
        ("-3^2", Fraction(-9)),
        ("2^{-3}", Fraction(1, 8)),
        ("1/2+1/3", Fraction(5, 6)),
        ("5!/3!", Fraction(20)),
        (r"\sqrt{\frac{9}{4}}", Fraction(3, 2)),
        ("4.2e-3", Fraction(42, 10000)),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction) -> None:
    number = read_number(text)
    assert number is not None
    assert (number.value, number.exact) == (value, True)


@pytest.mark.parametrize("text", ["", "x", "3 4", "1/0", "1.2.3", "0^0", "2+", "(1", "1/2(3)", r"\frac{1}"])
def test_what_is_no_number_is_not_read_as_one(text: str) -> None:
    assert read_number(text) is None


def test_only_a_decimal_makes_numbers_comparable_with_tolerance() -> None:
    third, rounded = Number(Fraction(1, 3)), Number(Fraction(333333, 10**6), Fraction(1, 10**6))
    assert same_number(third, rounded) is True  # 1e-6 relative, less than one unit of the sixth place
    assert same_number(third, Number(Fraction(333333, 10**6))) is False
    assert same_number(Number(Fraction(2), exact=False), Number(Fraction(2))) is None  # a float proves nothing


NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.decimals(-(10**6), 10**6, places=4).map(str),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map(lambda q: rf"\frac{{{q[0]}}}{{{q[1]}}}"),
    st.integers(0, 10**9).map(lambda n: f"{n:,}"),
)
COMMANDS = [
    r"\frac",
    r"\sqrt{",
    r"\text{",
    r"\pm",
    r"\cup",
    r"\le ",
    r"\boxed{",
    r"\pi",
    r"\infty",
    r"\\",
    r"\{",
    r"\}",
]
PIECES = st.sampled_from(
    [*"0123456789xyab(){}[],.;:+-*/^_!%$&=<> ", "answer is", " and ", "cm", "½", "²", "####", "</think>", *COMMANDS]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@given(NUMBERS)
def test_a_number_is_right_against_itself(number: str) -> None:
    assert grade(number, rf"\boxed{{{number}}}") == Score(1.0, number)


@given(NUMBERS, NUMBERS)
def test_equivalence_of_numbers_is_symmetric(a: str, b: str) -> None:
    assert equivalent(gold=a, pred=b) == equivalent(gold=b, pred=a)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_whole_numbers_are_equal_only_to_themselves(a: int, b: int) -> None:
    assert equivalent(gold=str(a), pred=str(b)) == (a == b)


@given(TEXTS)
def test_an_empty_answer_is_never_right(label: str) -> None:
    for empty in ("", r"\boxed{}", r"\boxed{$ $}", r"\boxed{\text{ }}"):
        assert grade(label, empty).value == 0.0


@given(TEXTS)
@settings(max_examples=300)
def test_any_usable_label_is_right_against_itself(label: str) -> None:
    usable = read_label(label)
    assert usable is None or equivalent(gold=usable, pred=usable)


@given(TEXTS)
@settings(max_examples=300)
def test_reading_any_text_never_raises(text: str) -> None:
    found = find_answer(text, require_box=False)
    assert isinstance(normalise(found.answer), str)
    assert grade("7", text).status in ("ok", "unparsed", "truncated")


@pytest.mark.parametrize("reply", ["I do not know", "No idea, sorry.", "Cannot be determined from this"])
def test_a_reply_of_mere_words_has_no_vote(reply: str) -> None:
    assert MathVerifier().read(Task("t", "", "4"), reply) == ""
    assert MathVerifier(require_box=False).verify(Task("t", "", "4"), reply).status == "unparsed"


def test_where_boxes_are_not_required_both_shares_are_reported() -> None:
    scores = MathVerifier(require_box=False).grade(Task("t", "", "4"), "The answer is 4.")
    assert [(name, s.value, s.status) for name, s in scores.items()] == [
        ("accuracy", 1.0, "ok"),
        ("boxed", 0.0, "unparsed"),
    ]
    assert list(MathVerifier().grade(Task("t", "", "4"), r"\boxed{4}")) == ["accuracy"]


@pytest.mark.parametrize(
    "reply",
    [
        "The final answer is **26**.", "**Final answer:** **26**.", "The answer is **26** rolls.",
        "The answer is `26`.",
        "The answer is _26_.", "The answer is **$26$**.", r"The answer is **\$26**.", "**26**.", "*26*",
        "The answer is 26, since 96-70=26.", "The answer is 26 (rolls).", "The answer is 26!", "Thus it is $26$.",
        "It is 26.", "Thus, 26.", "So x is 26", "She has $26.", "The answer is 2*13", "The answer is 26.",
    ],
)  # fmt: skip
def test_where_boxes_are_not_required_an_answer_is_found_in_its_dress(reply: str) -> None:
    verifier = MathVerifier(require_box=False)
    assert verifier.verify(Task("t", "", "26"), reply).value == 1.0
    assert verifier.verify(Task("t", "", "27"), reply).value == 0.0
