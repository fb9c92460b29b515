"""The example problems: each answer is what its own arithmetic gives."""

import ast
import json
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from marti_ext.datasets.load import DataSource, load_tasks

FILE = Path(__file__).parents[1] / "examples" / "data" / "word_problems.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def value(expression: str) -> Fraction:
    """The exact value of an expression of numbers and + - * / // %."""

    def of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float()):
                return Fraction(ast.get_source_segment(expression, node) or "")  # 2.40 as written, not as a float
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.BinOp(left=left, op=sign, right=right):
                return Fraction(OPERATIONS[type(sign)](of(left), of(right)))
        raise ValueError(f"no arithmetic: {ast.unparse(node)}")

    return of(ast.parse(expression, mode="eval").body)


def test_arithmetic_is_exact_and_refuses_names() -> None:
    assert value("2*2.40+3*1.10") == Fraction(81, 10)
    assert value("-6+13-(140%9)") == 2
    with pytest.raises(ValueError, match="no arithmetic"):
        value("__import__('os')")


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_answer_is_what_the_expression_gives(row: dict[str, str]) -> None:
    assert value(row["expression"]) == Fraction(row["answer"])
    assert len(row["question"].split()) < 45
    assert row["question"].endswith("?")


def test_there_are_enough_problems_and_none_stands_twice() -> None:
    assert len(ROWS) >= 40
    for column in ("id", "question"):
        assert len({row[column] for row in ROWS}) == len(ROWS)


def test_they_load_as_tasks() -> None:
    source = DataSource(path=str(FILE), prompt="question", label="answer", id="id", metadata=["expression"])
    tasks = load_tasks(source, needs_label=True, seed=0)
    assert [(task.id, task.prompt, task.label) for task in tasks] == [
        (row["id"], row["question"], row["answer"]) for row in ROWS
    ]
