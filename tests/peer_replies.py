r"""Writes data/peer_replies.jsonl: made-up replies to the rows of evaluation/fixtures, in the ways models write.

Each way is a template over the row's answer {n}, a wrong one {w} and the steps before them; `python
tests/peer_replies.py` writes the file anew after a change here or of the fixtures.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from evaluation.benchmarks import find_benchmark
from evaluation.load import FIXTURES, load_benchmark
from marti_ext.types import Task

FILE = Path(__file__).parent / "data" / "peer_replies.jsonl"

NUMBER = {
    "box": r"Step by step I get {n}. The answer is \boxed{{{n}}}.",
    "dollar-box": r"Adding up: $x = {n}$. Therefore $\boxed{{{n}}}$",
    "hash": "First this, then that.\n#### {n}",
    "final": "Let me think. The final answer is {n}",
    "bold": "Some steps.\n\n**Answer: {n}**",
    "last-number": "So in the end {n} are left.",
    "bare": "{n}",
    "zeros": r"The answer is \boxed{{{n}.00}}.",
    "equation": r"\boxed{{x = {n}}}",
    "text": r"\boxed{{\text{{{n}}}}}",
    "fraction": r"\boxed{{\frac{{{twice}}}{{2}}}}",
    "remark": r"\boxed{{{n}}} I checked it in 2 other ways.",
    "revised": r"First I get \boxed{{{w}}}. No: I forgot the last one, which changes it, so \boxed{{{n}}}.",
    "thought": r"<think>maybe \boxed{{{w}}}?</think>It is \boxed{{{n}}}.",
    "wrong": r"The answer is \boxed{{{w}}}.",
    "wrong-hash": "#### {w}",
    "wrong-final": "The final answer is {w}",
    "wrong-remark": r"The answer is \boxed{{{w}}}, and surely not {n}",
    "wrong-revised": r"First I get \boxed{{{n}}}. No: I forgot the last one, which changes it, so \boxed{{{w}}}.",
    "cut": r"So the answer is \boxed{{{n}",
    "cut-thought": r"<think>it seems to be {n}",
    "none": "I cannot tell.",
}
WORD_PROBLEM = NUMBER | {
    "unit": r"\boxed{{{n} \text{{ pieces}}}}",
    "money": r"It comes to \boxed{{\${n}}}.",
    "money-plain": "In all this is ${n}.00.",
    "comma": r"\boxed{{{n:,}}}",
    "stars": "The final answer is **{n}**.",
}
CONTEST = NUMBER | {"padded": r"\boxed{{{n:03d}}}", "degrees": r"\boxed{{{n}^\circ}}", "inline": "Thus it is ${n}$."}

FORMULAS = {  # by the end of the id: spellings of the right answer, then wrong ones
    "1": (
        [r"\frac{5}{6}", r"\dfrac{5}{6}", r"\tfrac56", "5/6", r"\frac{10}{12}", r"x = \frac56", "0.8333333333"],
        [r"\frac{6}{5}", "0.83", r"-\frac56", "5.6"],
    ),
    "2": (["2,3", "3, 2", "x = 2, 3", r"\{2, 3\}", r"2 \text{ and } 3", "2; 3"], ["2", "23", "2,4", "-2,-3", "2,3,5"]),
    "3": (
        [r"(-\infty, 4]", r"(-\infty,4]", r"\left(-\infty, 4\right]", r"x \in (-\infty,4]", r"(-\infty, \frac{8}{2}]"],
        [r"(-\infty, 4)", r"[4, \infty)", "4", r"x \le 4", r"(-\infty, 5]"],
    ),
    "4": (
        ["a^2 + 4a + 4", "a^2+4a+4", "4 + 4a + a^2", "a^{2} + 4 a + 2^2", r"a^2 + 4\cdot a + 4", "(a+2)^2"],
        ["a^2 + 4", "a^2 + 2a + 4", "x^2 + 4x + 4", "4a + 4"],
    ),
    "5": (
        [r"\sqrt{5}", r"\sqrt5", r"5^{1/2}", r"\sqrt{5} \text{ units}", r"\sqrt{1 + 4}", r"\frac{5}{\sqrt{5}}"],
        ["5", r"-\sqrt{5}", r"\sqrt{3}", "2.2", r"\sqrt{5} + 1"],
    ),
}
FORMULA = {
    "box": r"By the formula, the result is $\boxed{{{n}}}$.",
    "plain": "The answer is ${n}$.",
    "minerva": "Final Answer: The final answer is ${n}$. I hope it is correct.",
    "remark": r"\boxed{{{n}}}, which I checked for $k = 7$.",
}

SPAN = {
    "box": r"The passage says so. \boxed{{{n}}}",
    "article": r"It was \boxed{{the {n}}}.",
    "plain": "Answer: {n}",
    "text": r"\boxed{{\text{{{n}}}}}",
    "point": r"\boxed{{{n}.}}",
    "lower": r"\boxed{{{lower}}}",
    "unit": r"\boxed{{{n} points}}",
    "and": r"\boxed{{{also}}}",
    "half": r"\boxed{{{half}}}",
    "wrong": r"\boxed{{{w}}}",
    "cut": r"So it is \boxed{{{n}",
    "none": "I cannot tell.",
}

CHOICE = {
    "box": r"Step by step, so \boxed{{{n}}}.",
    "text-box": r"\boxed{{\text{{{n}}}}}",
    "bracket-box": r"\boxed{{({n})}}",
    "option-box": r"\boxed{{{n}) {right}}}",
    "is": "The answer is ({n}).",
    "is-bare": "The answer is {n}.",
    "best": "The best answer is {n}.",
    "bold": "**Answer: {n}**",
    "alone": "The others are impossible.\n\n{n}",
    "excluded": "The answer is ({n}). It is not ({w}).",
    "first-excluded": r"(A), (B), (C) and (D) are possible, and of these I take \boxed{{{n}}}.",
    "revised": "The answer is ({w}). Wait, that is false. The answer is ({n}).",
    "in-words": "It must be {right}.",
    "wrong": r"\boxed{{{w}}}",
    "wrong-is": "The answer is ({w}).",
    "wrong-excluded": "The answer is ({w}), not ({n}).",
    "cut": r"So it is \boxed{{{n}",
    "none": "I cannot tell.",
}


def replies() -> Iterator[dict[str, str]]:
    """Rows of {benchmark, id, form, reply}, by benchmark and task; `form` says what is peculiar to the reply."""
    ways: dict[str, Callable[[Task], Iterator[tuple[str, str]]]] = {
        "gsm8k": _number_replies(WORD_PROBLEM),
        "math500": _formula_replies,
        **dict.fromkeys(("aime2022", "aime2023", "aime2024", "aime2025"), _number_replies(CONTEST)),
        "drop": _span_replies,
        "gpqa": _choice_replies,
        "mmlu": _choice_replies,
    }
    for name, way in ways.items():
        loaded = load_benchmark(find_benchmark(name), data_dir=FIXTURES, sample=None, sample_seed=0)
        tasks = loaded.tasks[:1] if name in ("aime2022", "aime2023") else loaded.tasks
        for task in tasks:
            for form, reply in way(task):
                yield {"benchmark": name, "id": task.id, "form": form, "reply": reply}


def _number_replies(forms: dict[str, str]) -> Callable[[Task], Iterator[tuple[str, str]]]:
    def ways(task: Task) -> Iterator[tuple[str, str]]:
        n = int(task.label.rpartition("####")[2].replace(",", ""))
        for form, template in forms.items():
            yield form, template.format(n=n, w=n + 1, twice=2 * n)

    return ways


def _formula_replies(task: Task) -> Iterator[tuple[str, str]]:
    right, wrong = FORMULAS[task.id[-1]]
    for form, template in FORMULA.items():
        for answer in right if form in ("box", "plain") else right[:1]:
            yield answer, template.format(n=answer)
    for answer in wrong:
        yield f"wrong {answer}", FORMULA["box"].format(n=answer)
    if task.id.endswith("2"):
        yield "two boxes", r"The roots are \boxed{2} and \boxed{3}."
    yield "cut", rf"So the answer is \boxed{{{right[0]}"
    yield "none", "I cannot tell."


def _span_replies(task: Task) -> Iterator[tuple[str, str]]:
    n = task.label
    half, also = n.split()[0].strip(","), n.replace(", ", " and ")
    for form, template in SPAN.items():
        yield form, template.format(n=n, w="Nobody 99", lower=n.lower(), half=half, also=also)


def _choice_replies(task: Task) -> Iterator[tuple[str, str]]:
    right = task.metadata["choices"][ord(task.label) - ord("A")]
    for form, template in CHOICE.items():
        yield form, template.format(n=task.label, w="B" if task.label == "A" else "A", right=right)


if __name__ == "__main__":
    FILE.write_text("".join(json.dumps(row) + "\n" for row in replies()), encoding="utf-8")
