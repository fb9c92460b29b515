"""AIME 2022 to 2025: 30 problems a year, each answer a whole number from 0 to 999."""

import re

from evaluation.benchmark import MathBenchmark
from marti_ext.datasets.rows import Row
from marti_ext.errors import UserError
from marti_ext.types import Task

_ANSWER = re.compile(r"(\d{1,3})\s*(?:°|\^\s*(?:\\circ|\{\s*\\circ\s*\}))?")  # one of 2025 is an angle in some copies


class AIME(MathBenchmark):
    """One year."""

    def task(self, row: Row) -> Task:
        answer = row.text("answer")
        found = _ANSWER.fullmatch(answer.strip())
        if not found:
            raise UserError(
                f"{row.place}: the answer of an AIME problem is 0 to 999, found {answer!r}: correct the row"
            )
        return self.math_task(row.text("problem"), str(int(found[1])))


class AIME2022(AIME):
    """The 2022 rows of a data set of three years, told by their address."""

    name = "aime2022"
    hub = "AI-MO/aimo-validation-aime"
    split = "train"

    def has(self, row: Row) -> bool:
        return "url" not in row.columns or self.name.removeprefix("aime") in row.text("url")


class AIME2023(AIME2022):
    """The 2023 rows of the same data set."""

    name = "aime2023"


class AIME2024(AIME):
    """Both papers of 2024."""

    name = "aime2024"
    hub = "HuggingFaceH4/aime_2024"
    split = "train"


class AIME2025(AIME):
    """Both papers of 2025."""

    name = "aime2025"
    hub = "math-ai/aime25"
