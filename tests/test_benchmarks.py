"""Benchmarks: rows become tasks, files are found, golds are right and wrong replies wrong."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks import BENCHMARKS, find_benchmark
from evaluation.gold import gold_reply, scripted, wrong_reply
from evaluation.load import FIXTURES, Loaded, load_benchmark
from marti_ext.backends.base import Request, SamplingParams
from marti_ext.datasets.rows import Row, read_rows
from marti_ext.errors import UserError
from marti_ext.types import Message, Task
from marti_ext.verifiers.code import CodeVerifier
from marti_ext.verifiers.sandbox import Limits

REAL = Path(__file__).parents[2] / "shared" / "data"
real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no benchmark files in {REAL}")

SIZES = {
    "gsm8k": 1319, "math500": 500, "humaneval": 164, "mbpp": 500, "scibench": 580, "mmlu": 500, "aime2024": 30,
    "drop": 300,
}  # fmt: skip
PLACES = [
    *(pytest.param(name, FIXTURES, id=name) for name in BENCHMARKS),
    *(pytest.param(name, REAL, id=f"{name}-real", marks=real_data) for name in SIZES),
]


@cache
def load(name: str, data_dir: Path = FIXTURES, sample: Any = None, seed: int = 0) -> Loaded:
    return load_benchmark(BENCHMARKS[name], data_dir=data_dir, sample=sample, sample_seed=seed)


def refused(name: str, data_dir: Path | None) -> str:
    with pytest.raises(UserError) as caught:
        load_benchmark(BENCHMARKS[name], data_dir=data_dir, sample=None, sample_seed=0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def write(file: Path, rows: Sequence[object]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return file


def task_of(name: str, **changes: Any) -> Task:
    """The task of the benchmark's first fixture row, with other values in some columns."""
    return BENCHMARKS[name].task(Row(1, "here", {**rows_of(name)[0], **changes}))


# Rows become tasks


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_every_row_is_a_task_whose_id_a_subset_keeps(name: str, place: Path) -> None:
    tasks = load(name, place).tasks
    assert len(tasks) == (5 if place == FIXTURES else SIZES[name])
    assert all(t.id and t.prompt.strip() and t.label.strip() and t.kind == BENCHMARKS[name].kind for t in tasks)
    assert len({task.id for task in tasks}) == len(tasks)
    drawn = load(name, place, 3, 1).tasks
    assert len(drawn) == 3
    assert [task for task in tasks if task in drawn] == drawn  # in the order of the data


@real_data
@pytest.mark.parametrize(("name", "file"), [("gsm8k", "gsm8k_train_2000"), ("math500", "math_train_level45_600")])
def test_other_files_in_the_same_columns_give_tasks_too(name: str, file: str) -> None:
    rows = read_rows(str(REAL / f"{file}.jsonl"), subset=None, split="train").rows
    tasks = [BENCHMARKS[name].task(row) for row in rows]
    assert all(task.prompt and task.label for task in tasks)
    assert len({task.id for task in tasks}) == len(rows)


@real_data
def test_the_papers_sizes() -> None:
    sizes = {name: len(load(name, REAL, "paper").tasks) for name in SIZES if BENCHMARKS[name].paper_size}
    assert sizes == {"gsm8k": 500, "math500": 500, "humaneval": 164, "mbpp": 500, "scibench": 499, "mmlu": 500}
    assert BENCHMARKS["gpqa"].paper_size == 448


@real_data
def test_mbpp_is_the_test_split_of_a_whole_file() -> None:
    ids = [task.id for task in load("mbpp", REAL).tasks]
    assert ids == [f"Mbpp/{number}" for number in range(11, 511)]


def test_the_prompt_says_what_is_asked_and_in_which_form() -> None:
    for name in BENCHMARKS:
        for task in load(name).tasks:
            assert ("```python" in task.prompt) if task.kind == "code" else (r"\boxed{}" in task.prompt)
    assert "assert max_gap([3, 9, 4]) == 6" in load("mbpp").tasks[0].prompt
    assert r"units of $10^{3} \mathrm{~J}$" in load("scibench").tasks[1].prompt
    assert "Corvell\nCorvell is a town on the Ilm. It has a mill." in load("hotpotqa").tasks[0].prompt
    assert "(A) Venus\n(B) Mercury\n(C) Mars\n(D) Earth" in load("mmlu").tasks[0].prompt
    assert [task.label for task in load("mmlu").tasks] == list("BADCA")


def test_answers_of_aime_are_whole_numbers() -> None:
    labels = [task_of("aime2025", answer=answer).label for answer in ("033", "0", 999, r"336^\circ", r"336^{\circ}")]
    assert labels == ["33", "0", "999", "336", "336"]
    for answer in ("1000", "-1", "3.5", "x", "²"):
        with pytest.raises(UserError, match="0 to 999"):
            task_of("aime2025", answer=answer)


def test_a_year_of_aime_is_told_by_the_address(tmp_path: Path) -> None:
    write(tmp_path / "aime2022.jsonl", [*rows_of("aime2022"), *rows_of("aime2023")])
    assert load("aime2022", tmp_path).tasks == load("aime2022").tasks


@pytest.mark.parametrize(
    ("spans", "types", "answers"),
    [
        (["27"], ["number"], [["27"]]),
        (["27", "27", "28"], ["number"] * 3, [["27"], ["28"]]),  # three annotators
        (["Mills", "Otto"], ["span"] * 2, [["Mills", "Otto"]]),  # one, with two spans
        (["Mills", "Otto", "Otto", "Mills"], ["span"] * 4, [["Mills", "Otto"]]),  # two, in different order
        (["Mills", "Otto", "Mills"], ["span"] * 3, [["Mills", "Otto", "Mills"]]),
        (["3 May 1998", "1998"], ["date", "span"], [["3 May 1998"], ["1998"]]),
        (["27", "27"], ["number", "span"], [["27"]]),
    ],
)
def test_drop_tells_annotators_from_spans(spans: list[str], types: list[str], answers: list[list[str]]) -> None:
    task = task_of("drop", answers_spans={"spans": spans, "types": types})
    assert task.metadata["answers"] == answers
    assert task.label == "|".join(", ".join(answer) for answer in answers)


def test_prepared_copies_of_drop_give_the_hubs_prompt() -> None:
    row = rows_of("drop")[1]
    copy = {"context": f"Passage: {row['passage']}\nQuestion: {row['question']}\nAnswer:", "ref_text": "Mills|Otto"}
    task = BENCHMARKS["drop"].task(Row(1, "here", copy))
    assert task.prompt == load("drop").tasks[1].prompt
    assert task.metadata["answers"] == [["Mills"], ["Otto"]]


@pytest.mark.parametrize(
    ("statement", "tolerance"),
    [
        ("The absolute or relative error must not exceed 10^{-6}.", 1e-6),
        ("Your answer is correct if its absolute or relative error doesn't exceed 10 - 9.", 1e-9),
        ("Absolute or relative Error at most $10^{−4}$ is fine.", 1e-4),
        ("Print it with precision 1e-3.", 1e-3),
        ("An error of 0.01 is tolerated.", 0.01),
        ("Print the sum modulo 10^9 + 7. There is no error.", None),
        ("Numbers are at most 10^{-6}.", None),
        ("Print ERROR. The time limit is 0.1 s.", None),
    ],
)
def test_numbers_may_differ_only_where_the_statement_says_so(statement: str, tolerance: float | None) -> None:
    assert task_of("codecontests", description=statement).metadata["tolerance"] == tolerance


def test_cases_are_public_private_and_generated_and_limits_are_for_python() -> None:
    tasks = load("codecontests").tasks
    inputs = [given for given, _ in tasks[0].metadata["cases"]]
    assert inputs == ["3\n1 2 3\n", "1\n-5\n", "2\n1000000000 1000000000\n", "4\n1 1 1 1\n"]
    assert [task.metadata["cpu_seconds"] for task in tasks] == [6, 6, 6, 6, 7.5]  # thrice 2 s and 2.5 s
    assert task_of("codecontests", time_limit=None).metadata["cpu_seconds"] == 5
    assert "n = int(input())" in tasks[0].label  # not the program in C++
    assert task_of("codecontests", solutions=None).label == ""


def test_the_entry_point_of_mbpp_is_the_function_that_the_asserts_call() -> None:
    code = "def half(n):\r\n    return n // 2\r\ndef quarter(n):\r\n    return half(half(n))\r\n"
    task = task_of("mbpp", code=code, test_list=["assert set([quarter(half(8))]) == {1}"])
    assert task.metadata["entry_point"] == "quarter"
    assert "\r" not in task.label
    assert load("mbpp").tasks[2].metadata["entry_point"] == "covered"  # Span is called inside


# GPQA's options (C9, C10, C11)


def gpqa(count: int, start: int = 0) -> list[Task]:
    return [task_of("gpqa", Question=f"Question {n}?") for n in range(start, start + count)]


def test_each_letter_of_gpqa_is_right_about_a_quarter_of_the_time() -> None:
    counts = Counter(task.label for task in gpqa(400))
    # 100 expected each; the standard deviation is sqrt(400 * 1/4 * 3/4) = 8.7
    assert set(counts) == set("ABCD")
    assert all(70 <= count <= 130 for count in counts.values())


def test_the_order_of_gpqas_options_depends_on_the_question_alone(tmp_path: Path) -> None:
    assert gpqa(20)[15:] == gpqa(5, 15)
    changed = task_of("gpqa", **{"Question": "Question 3?", "Subdomain": "x", "Record ID": "rec1"})
    assert changed == gpqa(4)[3]
    script = (
        "from evaluation.benchmarks import BENCHMARKS; from evaluation.load import FIXTURES, load_benchmark\n"
        "print(load_benchmark(BENCHMARKS['gpqa'], data_dir=FIXTURES, sample=4, sample_seed=0).tasks)"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60
        )
        assert run.stdout.strip() == str(load("gpqa", FIXTURES, 4).tasks), run.stderr


def test_option_texts_stay_as_they_are() -> None:
    options = ["ln 2 = [ (T1-T2)/(T1 T2) ]", " A. [title] ", "the 5", "$x_{1}$\n"]
    columns = dict(zip(("Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3))), options, strict=True))
    task = task_of("gpqa", **columns)
    assert sorted(task.metadata["choices"]) == sorted(options)
    assert all(f") {option}" in task.prompt for option in options)
    assert task.metadata["choices"]["ABCD".index(task.label)] == options[0]
    assert task_of("mmlu", choices=options).metadata["choices"] == options


# Finding the data


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("math500", "MATH-500.jsonl"),
        ("gsm8k", "gsm8k_test.jsonl"),
        ("gsm8k", "GSM8K-main-1319.jsonl"),
        ("aime2024", "aime_2024.jsonl"),
        ("drop", "drop_dev_300.jsonl"),
        ("humanevalplus", "HumanEval+.jsonl"),
        ("humanevalplus", "humaneval_plus_164.jsonl"),
        ("mmlu", "mmlu/test.jsonl"),
    ],
)
def test_a_benchmarks_file_is_found_under_its_usual_names(tmp_path: Path, name: str, file: str) -> None:
    path = write(tmp_path / file, rows_of(name))
    write(tmp_path / "other.jsonl", [{"a": 1}])
    loaded = load(name, tmp_path)
    assert loaded.tasks == load(name).tasks
    assert loaded.source == str(path if path.parent == tmp_path else path.parent)


def test_the_exact_name_comes_before_longer_ones(tmp_path: Path) -> None:
    write(tmp_path / "gsm8k_train_2000.jsonl", rows_of("gsm8k")[:1])
    assert len(load("gsm8k", tmp_path, seed=1).tasks) == 1  # the only one
    write(tmp_path / "gsm8k_test.jsonl", rows_of("gsm8k"))
    assert len(load("gsm8k", tmp_path, seed=2).tasks) == 5


def test_several_files_or_none_are_named(tmp_path: Path) -> None:
    for file in ("gsm8k-a.jsonl", "gsm8k_b.json", "humaneval_plus.jsonl"):
        write(tmp_path / file, rows_of("gsm8k"))
    assert "several files of gsm8k: gsm8k-a.jsonl, gsm8k_b.json" in refused("gsm8k", tmp_path)
    none = refused("humaneval", tmp_path)  # HumanEval+ is another benchmark
    assert "has no humaneval.jsonl or humaneval_test.jsonl" in none
    assert "it holds gsm8k-a.jsonl, gsm8k_b.json, humaneval_plus.jsonl" in none
    (tmp_path / "empty").mkdir()
    assert "it holds no data files" in refused("drop", tmp_path / "empty")
    assert "is no folder" in refused("drop", tmp_path / "absent")


def test_without_the_hub_a_folder_is_asked_for() -> None:
    # HF_HUB_OFFLINE is set for all tests
    message = refused("gsm8k", None)
    assert "openai/gsm8k" in message
    assert message.endswith("Or give --data-dir, a folder with gsm8k.jsonl in the hub's columns")


def test_data_sets_that_are_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "gsm8k.py").write_text("raise SystemExit")
    assert "cannot be loaded: Dataset scripts are no longer supported" in refused("gsm8k", tmp_path)


def test_unknown_benchmarks_are_refused_with_the_nearest() -> None:
    assert find_benchmark("gsm8k").name == "gsm8k"
    with pytest.raises(UserError, match="did you mean 'math500'"):
        find_benchmark("math50")


def test_hashes_are_those_of_the_file_or_of_what_the_rows_say(tmp_path: Path) -> None:
    file = FIXTURES / "gsm8k.jsonl"
    assert load("gsm8k").sha256 == load("gsm8k", FIXTURES, 2).sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    rows = rows_of("gsm8k")
    write(tmp_path / "a/gsm8k/test.jsonl", rows)
    write(tmp_path / "b/gsm8k/test.jsonl", [dict(reversed(row.items())) for row in rows])
    write(tmp_path / "c/gsm8k/test.jsonl", rows[1:])
    one, other, third = (load("gsm8k", tmp_path / letter).sha256 for letter in "abc")
    assert one == other != third


def test_samples_are_drawn_by_the_seed_alone(tmp_path: Path) -> None:
    write(tmp_path / "gsm8k.jsonl", [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(100)])
    ids = [[task.id for task in load("gsm8k", tmp_path, 30, seed).tasks] for seed in (0, 1)]
    again = load_benchmark(BENCHMARKS["gsm8k"], data_dir=tmp_path, sample=30, sample_seed=0)
    assert [task.id for task in again.tasks] == ids[0]
    assert len(set(ids[0])) == 30
    # 30 of 100 twice: 9 are expected in both, and never as many as 20
    assert len(set(ids[0]) & set(ids[1])) < 20
    assert (
        load("gsm8k", tmp_path, 1000).tasks == load("gsm8k", tmp_path, "paper").tasks == load("gsm8k", tmp_path).tasks
    )


def test_a_row_keeps_its_id_when_others_are_gone(tmp_path: Path) -> None:
    for name in BENCHMARKS:
        write(tmp_path / f"{name}.jsonl", rows_of(name)[3:])
        assert load(name, tmp_path).tasks == load(name).tasks[3:]


def test_questions_asked_twice_are_told_apart_and_shared_ids_refused(tmp_path: Path) -> None:
    first, second, *_ = rows_of("mmlu")
    write(tmp_path / "mmlu.jsonl", [first, second, first])
    ids = [task.id for task in load("mmlu", tmp_path).tasks]
    assert ids == [*(task.id for task in load("mmlu").tasks[:2]), f"{ids[0]}-2"]
    one, other, *_ = rows_of("humaneval")
    write(tmp_path / "humaneval.jsonl", [one, {**other, "task_id": one["task_id"]}])
    assert f"task {one['task_id']!r} is used 2 times" in refused("humaneval", tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "value", "message"),
    [
        *((name, "", None, "no column") for name in BENCHMARKS),
        ("gsm8k", "answer", None, "column 'answer' is empty"),
        ("gsm8k", "question", " ", "column 'question' is empty"),
        ("gsm8k", "question", ["x"], "column 'question' must be text or a number, found ['x']"),
        ("mmlu", "answer", 4, "answer must be the place of one of 4 choices, found 4"),
        ("mmlu", "choices", "A", "column 'choices' must be a list"),
        ("aime2022", "answer", "1000", "0 to 999, found '1000'"),
        ("hotpotqa", "context", {"title": ["a"]}, "column 'context' must hold title and sentences"),
        ("drop", "answers_spans", {"spans": ["1"], "types": []}, "as many spans as types"),
        ("drop", "answers_spans", {"spans": [], "types": []}, "holds no answer"),
        ("mbpp", "task_id", "Mbpp/2", "column 'task_id' must be a whole number, found 'Mbpp/2'"),
        ("mbpp", "code", "def f(:", "code and test_list must be Python"),
        ("codecontests", "public_tests", {"input": ["1"], "output": []}, "as many of 'input' as of 'output'"),
        ("codecontests", "solutions", [1], "as many of 'language' as of 'solution'"),
    ],
)
def test_a_broken_row_is_named_with_its_line(tmp_path: Path, name: str, column: str, value: Any, message: str) -> None:
    good, bad, *_ = rows_of(name)
    file = write(tmp_path / f"{name}.jsonl", [good, {**bad, column: value} if column else {"strange": 1}])
    found = refused(name, tmp_path)
    assert f"{file}, line 2" in found
    assert message in found
    assert column or "the row has 'strange'" in found


# Right and wrong replies


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_gold_replies_are_right_and_wrong_ones_wrong(name: str, place: Path) -> None:
    verifier = BENCHMARKS[name].verifier
    if isinstance(verifier, CodeVerifier):  # one of MBPP's own solutions takes nearly the limit
        verifier = replace(verifier, limits=Limits(cpu_seconds=30.0, wall_seconds=120.0))
    tasks = load(name, place).tasks
    assert [t.id for t in tasks if verifier.verify(t, gold_reply(t)).value != 1] == []
    wrong = [(t.id, verifier.verify(t, wrong_reply(t))) for t in tasks]
    assert [(id, score) for id, score in wrong if score.value != 0 or score.status != "ok"] == []


@pytest.mark.parametrize("name", ["gsm8k", "scibench"])
def test_an_answer_without_a_box_counts_and_is_told_apart(name: str) -> None:
    task = load(name).tasks[0]
    grades = BENCHMARKS[name].verifier.grade(task, gold_reply(task).replace(r"\boxed{", "").replace("}", ""))
    assert {measure: score.value for measure, score in grades.items()} == {"accuracy": 1.0, "boxed": 0.0}


def python(source: str, given: str = "") -> str:
    return subprocess.run(
        [sys.executable, "-I", "-c", source], input=given, capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.parametrize("name", [name for name, b in BENCHMARKS.items() if b.kind == "code"])
def test_solutions_pass_their_tests_in_plain_python(name: str) -> None:
    for task in load(name).tasks:
        for given, wanted in task.metadata.get("cases", ()):
            found = python(task.label, given)
            tolerance = task.metadata["tolerance"]
            assert abs(float(found) - float(wanted)) <= tolerance if tolerance else found.split() == wanted.split()
        if "tests" in task.metadata:
            python("\n".join([task.metadata["prelude"], task.label, task.metadata["tests"]]))
            with pytest.raises(subprocess.CalledProcessError):
                python(f"{task.metadata['prelude']}\npass\n{wrong_reply(task).split('```')[1].removeprefix('python')}\n"
                       f"{task.metadata['tests']}")  # fmt: skip


def test_what_a_prompt_defines_is_there_for_its_tests() -> None:
    task = load("humaneval").tasks[1]  # X8: the tests call `shift`, which stands in the prompt
    alone = "def unshift(text, by):\n    by %= max(len(text), 1)\n    return text[-by:] + text[:-by]"
    assert BENCHMARKS["humaneval"].verifier.verify(task, f"```python\n{alone}\n```").value == 1


def test_a_scripted_model_finds_its_task_in_the_conversation() -> None:
    tasks = [Task("short", "1+1?", "2"), Task("long", "What is 1+1? And then?", "3"), *load("gsm8k").tasks]
    backend = scripted(tasks, lambda task: task.id)

    def asked(*texts: str) -> str:
        messages = tuple(Message("user", text) for text in texts)
        return asyncio.run(backend.complete(Request(messages, SamplingParams()))).text

    assert asked("Be brief.", tasks[2].prompt) == tasks[2].id
    assert asked(f"Another said 5 to this:\n{tasks[3].prompt}\nWhat do you say?") == tasks[3].id
    assert asked("They ask: What is 1+1? And then? Well?") == "long"
    assert asked("Well, 1+1?") == "short"
    assert asked("Hello") not in {task.id for task in tasks}
