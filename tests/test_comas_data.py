"""The training mixture: which rows are wanted, what a benchmark has, and that the same seed gives the same bytes."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.prepare_comas_data import main, self_contradiction

from evaluation.benchmarks import BENCHMARKS
from evaluation.contamination import BenchmarkIndex
from evaluation.load import FIXTURES
from marti_ext.datasets.comas_sources import SOURCES, CompetitionMath, KodCode, WebInstruct, called_tests, quantity
from marti_ext.datasets.load import DataSource, load_tasks
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.rewards.verifier import VerifierReward
from marti_ext.types import Completion, Episode, Task, Turn
from marti_ext.workflows.comas import CoMAS

REAL = Path(__file__).parents[2] / "shared" / "data"
real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no benchmark files in {REAL}")


def row(**columns: Any) -> Row:
    return Row(1, "here", columns)


def problem(number: int, level: object = "Level 5") -> dict[str, Any]:
    solution = f"It is ${number} + {number} = \\boxed{{{2 * number}}}$."
    return {"problem": f"What is twice {number}?", "level": level, "type": "Algebra", "solution": solution}


TESTS = """from solution import add_{0}

def test_small():
    assert add_{0}(1, 2) == 3 + {0}

def test_zero():
    assert add_{0}(0, 0) == {0}
"""


def program(number: int, difficulty: str = "medium", **changes: Any) -> dict[str, Any]:
    return {
        "question": f"Write add_{number}(a, b), the sum of a, b and {number}.",
        "solution": f"def add_{number}(a, b):\n    return a + b + {number}",
        "test": TESTS.format(number),
        "gpt_difficulty": difficulty,
        **changes,
    }


def measurement(number: int, category: str = "Physics", **changes: Any) -> dict[str, Any]:
    question = f"A cart rolls {number} metres in two seconds. How fast is it?"
    return {
        "question": question,
        "answer": f"{number / 2} m/s",
        "answer_type": "Float",
        "category": category,
        **changes,
    }


def files(folder: Path, **rows: Sequence[object]) -> list[str]:
    """The options that name a file for each source."""
    options = []
    for kind, content in rows.items():
        path = folder / f"{kind}-rows.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in content))
        options += [f"--{kind}", str(path)]
    return options


def small(folder: Path) -> list[str]:
    return files(
        folder,
        math=[
            problem(number, level) for number, level in zip(range(10, 22), [5, "Level 4", "Level 3"] * 4, strict=True)
        ],
        code=[program(number, difficulty) for number in range(4) for difficulty in ("easy", "hard")],
        science=[measurement(number, c) for number in range(3, 9) for c in ("Chemistry", "Economics")],
    )


def prepared(folder: Path, *options: str, counts: str = "4 2 3") -> tuple[list[dict[str, str]], dict[str, str]]:
    out = folder / "out" / "comas.jsonl"
    arguments = ["--out", str(out), "--benchmarks", str(FIXTURES), "--counts", *counts.split(), *options]
    assert main(arguments) == 0
    tasks, dropped = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (out, out.with_suffix(".dropped.jsonl"))
    )
    return tasks, {one["id"]: one["reason"] for one in dropped}


def test_the_mixture_is_drawn_by_the_seed_and_its_hash_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, _ = prepared(tmp_path, *small(tmp_path))
    digest = hashlib.sha256((tmp_path / "out" / "comas.jsonl").read_bytes()).hexdigest()
    assert f"4 math, 2 code, 3 science; sha256 {digest}" in " ".join(capsys.readouterr().out.split())
    assert Counter(task["kind"] for task in tasks) == {"math": 4, "code": 2, "science": 3}
    assert len({task["id"] for task in tasks}) == 9
    assert prepared(tmp_path, *small(tmp_path))[0] == tasks
    other, _ = prepared(tmp_path, *small(tmp_path), "--seed", "7")
    assert [task["id"] for task in other] != [task["id"] for task in tasks]


def test_the_mixture_loads_and_each_label_is_right_by_its_own_verifier(tmp_path: Path) -> None:
    prepared(tmp_path, *small(tmp_path))
    source = DataSource(
        path=str(tmp_path / "out" / "comas.jsonl"),
        id="id",
        kind_column="kind",
        metadata=["unit", "tests", "entry_point"],
    )
    tasks = load_tasks(source, needs_label=True, seed=0)
    CoMAS().check(tasks)
    reward = VerifierReward()
    reward.check(tasks)
    episodes = []
    for task in tasks:
        right = f"```python\n{task.label}\n```" if task.kind == "code" else f"\\boxed{{{task.label}}}"
        wrong = "```python\nx = 1\n```" if task.kind == "code" else "\\boxed{-123}"
        turns = [Turn("ada", "a", "solution", 0, (), Completion(text)) for text in (right, wrong)]
        episodes.append(Episode(task, turns=turns))
    reward.assign(episodes)
    assert [[turn.reward for turn in episode.turns] for episode in episodes] == [[1.0, 0.0]] * 9


def test_what_a_benchmark_has_is_left_out_and_listed(tmp_path: Path) -> None:
    known = [json.loads(line) for line in (FIXTURES / "gsm8k.jsonl").read_text().splitlines()]
    taken = [{"problem": one["question"].upper() + " ", "level": 5, "answer": "1"} for one in known]
    options = small(tmp_path)
    math = files(tmp_path, math=[*taken, *(problem(number) for number in range(10, 14))])
    tasks, dropped = prepared(tmp_path, *options, *math, counts="4 0 0")
    assert {task["prompt"] for task in tasks} == {f"What is twice {number}?" for number in range(10, 14)}
    assert set(dropped) <= {f"math-math-rows-{number:05d}" for number in range(1, 6)}
    assert all(reason.startswith("the same as gsm8k ") for reason in dropped.values())
    # 9 rows, 4 wanted: whichever of the 5 was drawn on the way was left out.
    assert main(["--out", str(tmp_path / "x"), "--benchmarks", str(FIXTURES), "--counts", "5", "0", "0", *math]) == 2


def test_repetitions_and_answers_that_contradict_their_tests_are_left_out_and_listed(tmp_path: Path) -> None:
    wrong = program(2, solution="def add_2(a, b):\n    return a - b")
    options = files(tmp_path, math=[problem(10), problem(10)], code=[program(1), wrong], science=[])
    out = ["--out", str(tmp_path / "out.jsonl"), "--benchmarks", str(FIXTURES)]
    assert main([*out, *options, "--counts", "2", "0", "0"]) == 2  # one problem, twice
    assert main([*out, *options, "--counts", "0", "2", "0"]) == 2  # one program, and one that fails
    assert "its own answer is not right" in self_contradiction(KodCode().task(row(**wrong), "x") or Task("x", ""))


def test_too_few_rows_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(tmp_path / "out.jsonl"), "--benchmarks", str(FIXTURES), *small(tmp_path)]
    assert main([*arguments, "--counts", "9", "0", "0"]) == 2
    assert "prepare_comas_data: math: 8 of 12 rows can be used, not 9" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_benchmarks_are_left_out_only_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = tmp_path / "benchmarks"
    some.mkdir()
    (some / "gsm8k.jsonl").write_bytes((FIXTURES / "gsm8k.jsonl").read_bytes())
    arguments = ["--out", str(tmp_path / "o.jsonl"), "--benchmarks", str(some), "--counts", "1", "0", "0"]
    assert main([*arguments, *small(tmp_path)]) == 2
    assert main([*arguments, *small(tmp_path), "--without-benchmarks", "gsm9k"]) == 2
    assert "unknown benchmark 'gsm9k': did you mean 'gsm8k'?" in capsys.readouterr().err


def test_the_paper_takes_600_600_and_800() -> None:
    assert [(source.kind, source.size) for source in SOURCES] == [("math", 600), ("code", 600), ("science", 800)]


# Rows to tasks


@pytest.mark.parametrize(
    ("level", "wanted"), [("Level 4", 1), ("Level5", 1), (4, 1), ("5", 1), ("Level 3", 0), (1, 0)]
)
def test_mathematics_is_of_levels_4_and_5(level: object, wanted: bool) -> None:
    task = CompetitionMath().task(row(**problem(10, level)), "x")
    assert (task is not None) == wanted
    if task:
        assert (task.label, task.kind) == ("20", "math")


def test_an_answer_column_goes_before_the_box_and_without_either_there_is_no_task() -> None:
    assert (CompetitionMath().task(row(**problem(10), answer="21"), "x") or Task("", "")).label == "21"
    assert CompetitionMath().task(row(problem="?", level=5, solution="Obvious."), "x") is None


def test_code_shows_its_tests_as_they_are_run() -> None:
    task = KodCode().task(row(**program(1)), "x")
    assert task is not None
    tests = (
        "def test_small():\n    assert add_1(1, 2) == 3 + 1\n\ndef test_zero():\n    assert add_1(0, 0) == 1\n\n"
        "test_small()\ntest_zero()\n"
    )
    assert task.metadata == {"tests": tests, "entry_point": "add_1"}
    assert f"```python\n{tests}\n```" in task.prompt
    assert KodCode().task(row(**program(1, "easy")), "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "def test_x(:",
        "def test_x():\n    assert f(1)",  # imports nothing
        "from solution import *\ndef test_x():\n    assert f(1)",
        "from solution import f as g\ndef test_x():\n    assert g(1)",
        "from solution import f",  # tests nothing
        "from solution import f\nimport pytest\ndef test_x():\n    with pytest.raises(ValueError):\n        f(1)",
        "from solution import f\ndef test_x(capsys):\n    assert f(1)",
        "from solution import f\n@given(1)\ndef test_x():\n    assert f(1)",
        "from solution import f\nclass TestF:\n    def test_x(self):\n        assert f(1)",
        "def test_x():\n    from solution import f\n    assert f(1)",
        "from solution import f\ndef test_x():\n    import solution\n    assert f(1)",
    ],
)
def test_tests_that_cannot_be_run_by_calling_them_are_not_wanted(text: str) -> None:
    assert called_tests(text) is None


def test_an_import_over_several_lines_falls_away_as_a_whole() -> None:
    text = "import math\nfrom solution import (\n    f,\n    g,\n)\n\ndef test_x():\n    assert f(g(1)) == math.pi\n"
    assert called_tests(text) == (
        "import math\n\ndef test_x():\n    assert f(g(1)) == math.pi\n\ntest_x()\n",
        "f",
    )


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("5.2 m/s", ("5.2", "m/s")),
        ("$-3\\,\\text{ kJ/mol}$", ("-3", "kJ/mol")),
        ("1,200 J", ("1200", "J")),
        ("6.02 × 10^23 molecules", ("6.02e+23", "molecules")),
        ("1.6\\times10^{-19} C", ("1.6e-19", "C")),
        ("about 12 %", ("12", "%")),
        ("9.8 m/s^2.", ("9.8", "m/s^2")),
        ("25 °C", ("25", "°C")),
        ("3e5 Pa", ("300000", "Pa")),
        ("12", None),
        ("12.5", None),
        ("x = 3 m", None),
        ("3 m and 4 m", None),
        ("3 or 4 m", None),
        ("3/4 of the cells", None),
        ("10 - 20 cm", None),
        ("increases", None),
        ("", None),
        ("5 \\pm 1 m", None),
    ],
)
def test_an_answer_of_science_is_one_number_and_its_unit(answer: str, found: tuple[str, str] | None) -> None:
    assert quantity(answer) == found


@given(st.floats(-1e12, 1e12).map(lambda x: float(f"{x:.6g}")), st.sampled_from(["m", "kg m/s^2", "mol/L", "°C", "%"]))
def test_a_number_keeps_its_value(value: float, unit: str) -> None:
    found = quantity(f"{value} {unit}")
    assert found is not None
    assert float(found[0]) == pytest.approx(value, rel=1e-9)
    assert found[1] == unit


@given(st.text(max_size=40) | st.text(alphabet="0123456789.,^{}\\$ -+ekmx/%", max_size=20))
def test_no_answer_is_too_odd_to_be_looked_at(answer: str) -> None:
    found = quantity(answer)
    assert found is None or (float(found[0]) == float(found[0]) and found[1])


def test_science_names_the_unit_and_only_wants_its_three_fields() -> None:
    task = WebInstruct().task(row(**measurement(3, "Biology")), "x")
    assert task is not None
    assert task.prompt.endswith("How fast is it?\n\nGive the answer in units of m/s.")
    assert (task.label, task.kind, task.metadata) == ("1.5", "science", {"unit": "m/s"})
    assert WebInstruct().task(row(**measurement(3, "History")), "x") is None
    assert WebInstruct().task(row(**measurement(3, answer="fast")), "x") is None


def test_a_missing_column_is_named() -> None:
    with pytest.raises(UserError, match="no column 'level'"):
        CompetitionMath().task(row(problem="?"), "x")


# Benchmarks' problems


LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def index(*prompts: str, ngram: int = 13) -> BenchmarkIndex:
    return BenchmarkIndex({"bench": [Task(f"b{i}", prompt) for i, prompt in enumerate(prompts)], "none": []}, ngram)


def test_the_same_problem_is_found_whatever_its_case_and_signs_and_what_is_said_behind_it() -> None:
    known = index("What is 2 + 2?\n\nPut the answer in a box.", "Two\n\nparts.\n\nPut it in a box.")
    assert known.found("what is  2+2") == "the same as bench b0"
    assert known.found("two parts") == "the same as bench b1"
    assert known.found("What is 2 + 3?") == ""
    assert known.found("2 + 2") == ""


def test_thirteen_words_in_a_row_are_found_and_twelve_are_not() -> None:
    words = LONG.split()
    known = index(f"Here: {LONG}. And so on.")
    assert known.found(f"Other words, then {' '.join(words[1:14])}, and others") == (
        f"shares with bench: {' '.join(words[1:14])}"
    )
    assert known.found(f"Other words, then {' '.join(words[1:13])}, and others") == ""
    assert index(LONG, ngram=3).found("x one two three").startswith("shares with bench")


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=30))
def test_every_problem_is_the_same_as_itself(words: list[str]) -> None:
    assert index(" ".join(words)).found(" ".join(words)).startswith("the same as bench")


@real_data
def test_real_mathematics_is_prepared_beside_real_benchmarks(tmp_path: Path) -> None:
    there = ["gsm8k", "math500", "humaneval", "mbpp", "mmlu", "scibench", "aime2024"]
    missing = ",".join(name for name in BENCHMARKS if name not in there)
    out = tmp_path / "comas.jsonl"
    arguments = ["--math", str(REAL / "math_train_level45_600.jsonl"), "--benchmarks", str(REAL), "--out", str(out)]
    assert main([*arguments, "--without-benchmarks", missing, "--counts", "100", "0", "0"]) == 0
    tasks = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(tasks) == 100
    math500 = [json.loads(line)["problem"] for line in (REAL / "math500.jsonl").read_text().splitlines()]
    assert not {task["prompt"] for task in tasks} & set(math500)
    # A problem of MATH-500 that is put among them is found.
    known = index(random.Random(0).choice(math500))
    assert not any(known.found(task["prompt"]) for task in tasks)
