"""`python -m evaluation grade`: stored replies, without a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks import find_benchmark
from evaluation.cli import main
from evaluation.gold import gold_reply, wrong_reply
from evaluation.load import FIXTURES, load_benchmark


def grade(tmp_path: Path, rows: list[Any], *options: str) -> list[dict[str, Any]]:
    """The graded rows."""
    file, out = tmp_path / "replies.jsonl", tmp_path / "graded.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["grade", str(file), "--out", str(out), *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "gold", "pred", "value", "status"),
    [
        ("math", "\\frac12", "The answer is 0.5.", 1.0, "ok"),
        ("math", "#### 18", "\\boxed{17}", 0.0, "ok"),
        ("math", "18", "Thus \\boxed{18", 0.0, "truncated"),
        ("math", "", "18", 0.0, "no_label"),
        ("choice", "B", "**Answer: (B)**", 1.0, "ok"),
        ("choice", "B", "Hard to say.", 0.0, "unparsed"),
        ("numeric", 50.7, "51", 1.0, "ok"),  # 0.6 % off
        ("numeric", "-5.5", "5.5", 0.0, "ok"),
        ("hotpotqa", "Chief of Protocol", "Chief of Protocol of the United States", 2 / 3, "ok"),  # 3 of 6 and 3 words
        ("drop", ["1000", "ten"], "1,000", 1.0, "ok"),
        ("drop", [["Mills", "Otto"]], "Otto and Mills", 1.0, "ok"),
    ],
)
def test_gold_and_prediction_give_value_and_status(
    kind: str, gold: Any, pred: str, value: float, status: str, tmp_path: Path
) -> None:
    [row] = grade(tmp_path, [{"id": 1, "gold": gold, "pred": pred}], "--verifier", kind)
    assert (row["id"], row["status"]) == (1, status)
    assert row["value"] == pytest.approx(value, abs=0.005)
    assert "extracted" in row


def test_the_unit_of_a_number_may_hide_a_scale(tmp_path: Path) -> None:
    row = {"id": "a", "gold": "10", "pred": "\\boxed{10000}", "unit": "$10^{3} \\mathrm{~J}$"}
    assert grade(tmp_path, [row], "--verifier", "numeric")[0]["value"] == 1.0


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "codecontests"])
def test_programs_are_graded_by_the_columns_of_their_task_or_by_its_id(name: str, tmp_path: Path) -> None:
    tasks = load_benchmark(find_benchmark(name), data_dir=FIXTURES, sample=None, sample_seed=0).tasks
    columns = [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]
    replies = [reply(task) for task in tasks for reply in (gold_reply, wrong_reply)]
    by_columns = [{"id": place, "task": columns[place // 2], "reply": reply} for place, reply in enumerate(replies)]
    by_id = [{"id": tasks[place // 2].id, "reply": reply} for place, reply in enumerate(replies)]
    for rows, options in (
        (by_columns, ["--verifier", "code"]),
        (by_columns, ["--benchmark", name]),
        (by_id, ["--benchmark", name, "--data-dir", str(FIXTURES)]),
    ):
        graded = grade(tmp_path, rows, *options)
        assert [row["value"] for row in graded] == [1.0, 0.0] * 5
        assert graded[0]["measures"] == {rule: {"value": 1.0, "status": "ok"} for rule in ("last", "any", "first")}
        assert graded[1]["reason"]


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        ({"id": 1, "pred": "4"}, ["--verifier", "math"], "line 1: no column 'gold'"),
        ({"id": 1, "gold": "4"}, ["--verifier", "math"], "line 1: no column 'pred'; the row has 'id', 'gold'"),
        ({"id": 1, "gold": {"a": 1}, "pred": "4"}, ["--verifier", "math"], "give text, a number or a list"),
        ({"id": 1, "gold": [None], "pred": "None"}, ["--verifier", "drop"], "None is no answer"),
        ({"id": 1, "gold": float("inf"), "pred": "inf"}, ["--verifier", "drop"], "inf is no answer"),
        ({"id": 1, "gold": "x", "answers": 5, "pred": "5"}, ["--verifier", "drop"], "answers is 5"),
        ({"id": 1, "gold": "A", "choices": 5, "pred": "A"}, ["--verifier", "choice"], "choices is 5"),
        (
            {"id": 1, "task": {"question": "?"}, "reply": "x"},
            ["--verifier", "code"],
            "task has the columns of none of",
        ),
        (
            {"id": "nope", "reply": "x"},
            ["--benchmark", "mmlu", "--data-dir", str(FIXTURES)],
            "mmlu has no task 'nope'",
        ),
        ({"task": {"a": 1}, "reply": "x"}, ["--benchmark", "humaneval"], "line 1: no column 'id'"),
        (
            {"id": 1, "task": "a", "reply": "x"},
            ["--benchmark", "mmlu", "--data-dir", str(FIXTURES)],
            "has no task '1'",
        ),
        ({"id": 1, "gold": "4", "pred": "4"}, [], "give either --verifier or --benchmark"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(
    row: dict[str, Any], options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert main(["grade", str(file), "--out", str(tmp_path / "out.jsonl"), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()
