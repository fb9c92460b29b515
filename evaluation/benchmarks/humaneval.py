"""HumanEval: functions from signature and docstring (arXiv:2107.03374)."""

from typing import ClassVar

from evaluation.benchmark import CodeBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Task

ASK = "Implement this Python function as its signature and docstring say.\n\n```python\n{prompt}\n```"


class HumanEval(CodeBenchmark):
    """The prompt is trusted helper code of the tests, too: two of them use functions that it defines."""

    name = "humaneval"
    hub = "openai/openai_humaneval"
    paper_size: ClassVar[int | None] = 164

    def task(self, row: Row) -> Task:
        prompt, entry_point = row.text("prompt"), row.text("entry_point")
        return self.function_task(
            row.text("task_id"),
            ASK.format(prompt=prompt.strip("\n")),
            prompt + row.text("canonical_solution"),
            entry_point=entry_point,
            prelude=prompt,
            tests=f"{row.text('test')}\n\ncheck({entry_point})\n",
        )


class HumanEvalPlus(HumanEval):
    """HumanEval with about eighty times the tests (arXiv:2305.01210)."""

    name = "humanevalplus"
    hub = "evalplus/humanevalplus"
    paper_size = None
