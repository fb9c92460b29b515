"""The three sources of the CoMAS paper's training data (arXiv:2510.08529, section 4.1): one row, one task.

What a row needs to be wanted is said here; examples/scripts/prepare_comas_data.py draws, and leaves out what stands in
a benchmark.
"""

import ast
import re
from abc import ABC, abstractmethod
from typing import ClassVar

from marti_ext.datasets.rows import Row
from marti_ext.types import Task
from marti_ext.verifiers.math.extract import find_answer
from marti_ext.verifiers.numeric import number_of

TESTED = "{question}\n\nThe program must pass these tests:\n\n```python\n{tests}\n```"
IN_UNITS = "{question}\n\nGive the answer in units of {unit}."

_POWER = r"(?:\s*(?:×|\\times|\\cdot|x|\*)\s*10\s*\^\s*\{?\s*[-+−]?\d+\s*\}?)?"
_QUANTITY = re.compile(
    rf"(?:about|approximately|approx\.?|≈|~|\\approx)?\s*([-+−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?{_POWER})\s*(\S.*)"
)
_UNIT = re.compile(r"[A-Za-zµμΩΩ°℃%Å](?:[A-Za-zµμΩΩ°℃%Å\s./·*()]|\^?[-−]?\d|\^\(?[-−]?\d\)?){0,29}")
_DRESS = re.compile(r"\\(?:text|mathrm|rm|textrm)\s*\{([^{}]*)\}|\$|\\[,;! ]|~")
_PROSE = re.compile(r"\b(?:and|or|for|of|the|is|to|from|with|at|each)\b", re.IGNORECASE)


class Source(ABC):
    """One source; `task` gives None for a row that is not wanted."""

    kind: ClassVar[str]
    hub: ClassVar[str]
    subsets: ClassVar[tuple[str | None, ...]] = (None,)
    size: ClassVar[int]
    """How many tasks the paper takes."""

    @abstractmethod
    def question(self, row: Row) -> str:
        """The problem as the source words it."""

    @abstractmethod
    def task(self, row: Row, id: str) -> Task | None:
        """The task of a row. Raises UserError for a missing column."""


class CompetitionMath(Source):
    """MATH (arXiv:2103.03874), levels 4 and 5; the label is the answer, or what the solution puts in its box."""

    kind = "math"
    hub = "EleutherAI/hendrycks_math"
    subsets = (
        "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
        "precalculus",
    )  # fmt: skip
    size = 600

    def question(self, row: Row) -> str:
        return row.text("problem").strip()

    def task(self, row: Row, id: str) -> Task | None:
        if not re.fullmatch(r"(?:Level *)?[45]", row.text("level")):
            return None
        label = row.text("answer") if row.columns.get("answer") else find_answer(row.text("solution")).answer
        return Task(id, self.question(row), label, self.kind) if label else None


class KodCode(Source):
    """KodCode (arXiv:2503.02951), medium and hard; prompts show the tests, the label is the source's solution.

    Wanted are rows whose tests are plain functions without arguments that call what they import from the solution:
    the import falls away, and each is called. Tests that need pytest cannot run where a program is graded.
    """

    kind = "code"
    hub = "KodCode/KodCode-V1"
    size = 600

    def question(self, row: Row) -> str:
        return row.text("question").strip()

    def task(self, row: Row, id: str) -> Task | None:
        if row.text("gpt_difficulty") not in ("medium", "hard"):
            return None
        found = called_tests(row.text("test"))
        if found is None:
            return None
        tests, entry_point = found
        prompt = TESTED.format(question=self.question(row), tests=tests)
        return Task(id, prompt, row.text("solution"), self.kind, {"tests": tests, "entry_point": entry_point})


class WebInstruct(Source):
    """WebInstruct-verified (arXiv:2505.14652): physics, chemistry and biology whose answer is a number with a unit.

    The prompt names the unit, the label is the number.
    """

    kind = "science"
    hub = "TIGER-Lab/WebInstruct-verified"
    size = 800

    def question(self, row: Row) -> str:
        return row.text("question").strip()

    def task(self, row: Row, id: str) -> Task | None:
        if row.text("category") not in ("Physics", "Chemistry", "Biology"):
            return None
        found = quantity(row.text("answer"))
        if found is None:
            return None
        label, unit = found
        return Task(id, IN_UNITS.format(question=self.question(row), unit=unit), label, self.kind, {"unit": unit})


SOURCES = (CompetitionMath(), KodCode(), WebInstruct())


def called_tests(text: str) -> tuple[str, str] | None:
    """pytest functions as a program that calls them, and the name of the function that they test.

    None for tests that are no Python, import nothing from the solution, or need more than Python to run.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "solution"]
    names = [alias.name for node in imported for alias in node.names if alias.asname is None and alias.name != "*"]
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    plain = all(not node.decorator_list and not ast.unparse(node.args) for node in tests)
    others = {name.partition(".")[0] for node in ast.walk(tree) for name in _modules(node) if node not in imported}
    if not names or len(names) < sum(len(node.names) for node in imported) or not tests or not plain:
        return None
    if others & {"pytest", "unittest", "solution"} or any(isinstance(node, ast.ClassDef) for node in tree.body):
        return None
    gone = {line for node in imported for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    kept = [line for number, line in enumerate(text.splitlines(), start=1) if number not in gone]
    calls = "\n".join(f"{node.name}()" for node in tests)
    return "\n".join(kept).strip() + f"\n\n{calls}\n", names[0]


def quantity(answer: str) -> tuple[str, str] | None:
    """(number, unit) of an answer that is one number and its unit, else None. The number is written as a decimal."""
    found = _QUANTITY.fullmatch(_DRESS.sub(lambda match: match[1] or " ", answer).strip().rstrip(". "))
    if found is None:
        return None
    value, unit = number_of(found[1].replace("−", "-").replace(" x ", "\\times ")), " ".join(found[2].split())
    if value is None or not _UNIT.fullmatch(unit) or _PROSE.search(unit):
        return None
    return f"{float(value):.12g}", unit


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
