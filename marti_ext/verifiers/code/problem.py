"""What a task of code asks for, and how it is tested."""

import ast
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from marti_ext.types import Task
from marti_ext.verifiers.code.syntax import bound, lines_of, parse


def _tested(tests: str) -> str:
    """Raises ValueError for tests that test nothing: no program may pass them."""
    tree = parse(tests)
    if tree is None:
        raise ValueError("the tests are no Python")
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    run = [node for statement in tree.body if not isinstance(statement, definitions) for node in ast.walk(statement)]
    if not any(isinstance(node, ast.Assert | ast.Raise | ast.Call) for node in run):
        raise ValueError("the tests call nothing and assert nothing")
    return tests


class _Problem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FunctionProblem(_Problem):
    """A function to write. The tests are Python that raises if it is wrong."""

    tests: Annotated[str, AfterValidator(_tested)]
    entry_point: str = ""
    """The name of the function, "" where none is asked for."""
    prelude: str = ""
    """What the prompt itself defines, up to the function's signature and docstring."""
    program_prefix: str | None = None
    """What stands before every program. Without it: the prelude but for the function that is asked for."""

    @property
    def prefix(self) -> str:
        if self.program_prefix is not None:
            return self.program_prefix
        tree = parse(self.prelude)
        body = tree.body if tree else []
        kept = [lines_of(self.prelude, node) for node in body if self.entry_point not in bound([node])]
        return "\n\n".join(kept)


class StdinProblem(_Problem):
    """A program to write that reads standard input. All cases must come out right."""

    cases: Annotated[tuple[tuple[str, str], ...], Field(min_length=1)]
    """(input, output)."""
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Absolute or relative, between numbers; None where they must be spelled the same."""
    cpu_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """For one case; None for the verifier's own limit."""


def read_problem(task: Task) -> FunctionProblem | StdinProblem | None:
    """The problem of a task, None where its metadata cannot be used: then no program is ever right."""
    metadata: dict[str, Any] = dict(task.metadata)
    try:
        return (StdinProblem if "cases" in metadata else FunctionProblem).model_validate(metadata)
    except ValidationError:
        return None
