"""MBPP: short functions from a sentence (arXiv:2108.07732)."""

import ast
from collections.abc import Sequence

from evaluation.benchmark import CodeBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task

ASK = "{text}\n\nYour code must pass these tests:\n\n```python\n{tests}\n```"
TEST_SPLIT = range(11, 511)  # of the task ids


class MBPP(CodeBenchmark):
    """The test split: of a file that holds all splits, the task ids 11 to 510. Prompts show the three tests."""

    name = "mbpp"
    hub = "google-research-datasets/mbpp"
    subset = "full"
    paper_size = 500

    def has(self, row: Row) -> bool:
        id = row.text("task_id")
        if not (id.isascii() and id.isdecimal()):
            raise UserError(f"{row.place}: column 'task_id' must be a whole number, found {id!r}: correct the row")
        return int(id) in TEST_SPLIT

    def task(self, row: Row) -> Task:
        code, asserts = _lines(row.text("code")), [_lines(str(test)) for test in row.items("test_list")]
        setup = _lines(str(row.columns.get("test_setup_code") or ""))
        return self.function_task(
            f"Mbpp/{row.text('task_id')}",
            ASK.format(text=row.text("text").strip(), tests="\n".join(asserts)),
            code,
            entry_point=_entry_point(row, code, asserts),
            tests="\n".join([setup, *asserts, ""]),
        )


class MBPPPlus(CodeBenchmark):
    """The sanitised MBPP with more tests (arXiv:2305.01210)."""

    name = "mbppplus"
    hub = "evalplus/mbppplus"

    def task(self, row: Row) -> Task:
        code, asserts = _lines(row.text("code")), [_lines(str(test)) for test in row.items("test_list")]
        imports = "\n".join(str(line) for line in row.columns.get("test_imports") or [])
        return self.function_task(
            f"Mbpp/{row.text('task_id')}",
            ASK.format(text=row.text("prompt").strip(), tests="\n".join(asserts)),
            code,
            entry_point=_entry_point(row, code, asserts),
            tests=f"{imports}\n{row.text('test')}\n",
        )


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _entry_point(row: Row, code: str, asserts: Sequence[str]) -> str:
    """The function that the tests call: the first, from the outermost call inwards, that the solution defines."""
    try:
        solution, tests = ast.parse(code), [ast.parse(test) for test in asserts]
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{row.place}: code and test_list must be Python ({error}): correct the row") from None
    defined = [node.name for node in solution.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    called = [
        node.func.id
        for test in tests
        for node in ast.walk(test)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return next((name for name in called if name in defined), defined[-1] if defined else "")
