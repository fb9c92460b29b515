"""Programs graded in the sandbox: one test for every trap, then two benchmarks' own solutions and broken ones."""

import ast
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from code_mutations import first_failing, mutants

from evaluation.benchmarks import find_benchmark
from marti_ext.datasets.rows import Row
from marti_ext.types import Score, Task
from marti_ext.verifiers.code import CodeVerifier
from marti_ext.verifiers.kinds import verifier_for
from marti_ext.verifiers.sandbox import Limits, Sandbox
from marti_ext.verifiers.votes import majority

DATA = Path(__file__).parents[2] / "shared" / "data"
RIGHT = "def f(x):\n    return x + 1"
WRONG = "def f(x):\n    return False"
VERIFIER = CodeVerifier()
# One of MBPP's own solutions takes some four seconds of CPU, and more on a busy machine.
PATIENT = CodeVerifier(limits=Limits(cpu_seconds=30.0, wall_seconds=120.0))
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # of solutions


def function(tests: str = "assert f(1) == 2", prelude: str = "", entry_point: str = "f") -> Task:
    return Task("1", "", kind="code", metadata={"entry_point": entry_point, "prelude": prelude, "tests": tests})


def stdin(*cases: tuple[str, str], **more: Any) -> Task:
    return Task("1", "", kind="code", metadata={"cases": [list(case) for case in cases], **more})


def reply(*programs: str) -> str:
    return "So:\n" + "\nor\n".join(f"```python\n{program}\n```" for program in programs)


def value(task: Task, *programs: str) -> float:
    score = VERIFIER.verify(task, reply(*programs))
    assert score.status == "ok", score
    return score.value


def test_the_kind_is_known() -> None:
    assert isinstance(verifier_for("code"), CodeVerifier)


def test_a_right_function_scores_one_and_says_what_was_read() -> None:
    assert VERIFIER.verify(function(), reply(RIGHT)) == Score(1.0, RIGHT)


def test_a_wrong_function_scores_nothing_and_says_why_x9() -> None:
    score = VERIFIER.verify(function(), reply(WRONG))
    assert (score.value, score.extracted, score.status) == (0.0, WRONG, "ok")
    assert score.reason


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        f"```\n{RIGHT}\n```",
        f"{RIGHT}\n```",
        f"{RIGHT}\n<|im_end",
        f"[BEGIN]\n'{RIGHT}'\n[DONE]",
        f"```python\r\n{RIGHT}\r\n```".replace("x):\n", "x):\r\n"),
    ],
)
def test_marks_do_not_matter_x1_x2_x6_x7(text: str) -> None:
    assert VERIFIER.verify(function(), text).value == 1.0


def test_draft_and_final_block_x3() -> None:
    values = {rule: score.value for rule, score in VERIFIER.grade(function(), reply(WRONG, RIGHT)).items()}
    assert values == {"last": 1.0, "any": 1.0, "first": 0.0}
    values = {rule: score.value for rule, score in VERIFIER.grade(function(), reply(RIGHT, WRONG)).items()}
    assert values == {"last": 0.0, "any": 1.0, "first": 1.0}
    values = {rule: score.value for rule, score in VERIFIER.grade(function(), reply(WRONG, WRONG, "f(2)")).items()}
    assert values == {"last": 0.0, "any": 0.0, "first": 0.0}


@pytest.mark.parametrize("rule", ["last", "any", "first"])
def test_the_rule_in_use_comes_first(rule: Any) -> None:
    verifier = CodeVerifier(block=rule)
    scores = verifier.grade(function(), reply(RIGHT, WRONG))
    assert next(iter(scores)) == rule
    assert verifier.verify(function(), reply(RIGHT, WRONG)) == scores[rule]


def test_any_looks_at_so_many_blocks() -> None:
    text = reply(RIGHT, *[WRONG + f" - {n}" for n in range(3)])
    assert CodeVerifier(block="any", max_blocks=4).verify(function(), text).value == 1.0
    assert CodeVerifier(block="any", max_blocks=3).verify(function(), text).value == 0.0


def test_a_helper_of_an_earlier_block_is_found_x3() -> None:
    helper, final = "def h(x):\n    return x + 1", "def f(x):\n    return h(x)"
    scores = VERIFIER.grade(function(), reply(helper, final, "print(f(1))"))
    assert {rule: score.value for rule, score in scores.items()} == {"last": 1.0, "any": 0.0, "first": 0.0}
    assert scores["last"].extracted == f"{helper}\n{final}"


def test_comparisons_and_bars_are_no_stop_words_x5() -> None:
    code = "def f(x):\n    return 2 if x > 0 and x < 9 and '|' != '<|' else 0"
    assert value(function(), code) == 1.0
    assert VERIFIER.verify(function(), code).value == 1.0


PRELUDE = 'import math\n\ndef half(x):\n    return x // 2\n\ndef f(x):\n    """One more."""\n'


def test_helpers_of_the_prompt_exist_for_program_and_tests_x8() -> None:
    task = function("assert half(f(3)) == 2", PRELUDE)
    assert value(task, "def f(x):\n    return half(2 * x) + math.floor(1.5)") == 1.0
    assert value(task, f"from __future__ import annotations\n{RIGHT}") == 1.0
    assert value(task, PRELUDE + "    return x + 1") == 1.0
    assert value(task, "def half(x):\n    return 2\n" + WRONG) == 0.0  # the tests' own helper is the prompt's


def test_the_body_of_a_function_goes_under_its_signature() -> None:
    for body in ("    y = half(2 * x)\n    return y + 1", "y = x\nreturn y + 1"):
        assert value(function(prelude=PRELUDE), body) == 1.0
        assert VERIFIER.verify(function(prelude=PRELUDE), body).value == 1.0


def test_what_could_not_be_graded_is_not_wrong() -> None:
    assert VERIFIER.verify(function(), "").status == "unparsed"
    assert VERIFIER.verify(function(), "I do not know.").status == "unparsed"
    assert VERIFIER.verify(function(), f"```python\n{RIGHT}").status == "truncated"
    assert VERIFIER.verify(function(), f"<think>```python\n{RIGHT}\n```").status == "truncated"
    assert VERIFIER.verify(function(""), reply(RIGHT)).status == "no_label"
    cut = VERIFIER.grade(function(), reply(RIGHT) + "\nor\n```python\ndef f(x):\n    ret")
    assert {rule: (s.value, s.status) for rule, s in cut.items()} == {
        "last": (0.0, "truncated"),
        "any": (1.0, "ok"),
        "first": (1.0, "ok"),
    }


def test_a_sandbox_that_fails_is_no_wrong_program() -> None:
    closed = Sandbox(size=1)
    closed.close()
    for task in (function(), stdin(("", "1"))):
        scores = CodeVerifier(sandbox=closed).grade(task, reply(RIGHT))
        assert {(score.value, score.status) for score in scores.values()} == {(0.0, "failed")}
        assert all(score.reason for score in scores.values())


@pytest.mark.parametrize(
    "program", ["def f(x):\n    return '\ud800", "x = '\x00'", "def f(x): return " + "(" * 90_000, "f = 1", "1/0"]
)
def test_broken_programs_are_wrong(program: str) -> None:
    assert value(function(), program) == 0.0
    assert value(stdin(("", "1")), program) == 0.0


def test_standard_input_all_cases_must_be_right() -> None:
    task = stdin(("1\n", "2\n"), ("5\n", "10"))
    assert value(task, "print(int(input()) * 2)") == 1.0
    assert value(task, "print(2)") == 0.0
    assert value(task, "print('2')", "print(int(input()) * 2)") == 1.0
    assert value(task, "print(int(input()) * 2)", "print(2)") == 0.0  # the last block counts


def test_standard_output_is_compared_line_by_line_x18() -> None:
    task = stdin(("", "1 2 3\n"))
    assert value(task, "print('1 2 3  ')") == 1.0
    assert value(task, "print('1 2 3', end='')") == 1.0
    assert value(task, "print('1 2 3\\n\\n')") == 1.0
    assert value(task, "print('1\\n2\\n3')") == 0.0


def test_numbers_differ_only_where_a_tolerance_is_stated_x18() -> None:
    assert value(stdin(("", "3.1415926")), "print(3.1416)") == 0.0
    assert value(stdin(("", "3.1415926"), tolerance=1e-3), "print(3.1416)") == 1.0
    assert value(stdin(("", "3.1415926"), tolerance=1e-3), "print(3.15)") == 0.0


def test_an_exception_after_the_right_output_is_wrong_x10() -> None:
    assert value(stdin(("", "1")), "print(1)\nraise ValueError") == 0.0
    assert value(stdin(("", "")), "raise ValueError") == 0.0
    assert value(stdin(("", "1")), "import sys\nprint(1)\nsys.exit(1)") == 0.0
    assert value(stdin(("", "1")), "import sys\nprint(1)\nsys.exit(0)") == 1.0


def test_the_time_limit_of_a_task_counts() -> None:
    score = VERIFIER.verify(stdin(("", "1"), cpu_seconds=0.5), reply("while True: pass"))
    assert (score.value, score.status) == (0.0, "ok")


def test_votes_compare_how_programs_are_written() -> None:
    task = function()
    same = 'def f(x: int) -> int:\n    """Add."""\n    # one more\n    return (x+1)'
    other = "def f(x):\n    return 1 + x"
    assert VERIFIER.agree(task, RIGHT, same)
    assert not VERIFIER.agree(task, RIGHT, other)
    assert not VERIFIER.agree(task, "def f(x", "def f(y")
    assert majority(VERIFIER, task, ["no", reply(other), reply(RIGHT), reply(WRONG, same)]) == 2
    assert VERIFIER.read(task, f"```python\n{RIGHT}") == ""


def test_the_verdict_is_the_same_in_every_thread() -> None:
    programs = [RIGHT, WRONG] * 8
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda program: value(function(), program), programs)) == [1.0, 0.0] * 8


# Benchmarks' own solutions, and broken ones


@cache
def tasks(name: str) -> list[Task]:
    """Every row of a benchmark as its task; of MBPP all splits."""
    path = DATA / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"the rows are not part of the project: no {path}")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [find_benchmark(name).task(Row(n, f"{path}:{n}", row)) for n, row in enumerate(rows, start=1)]


def wrong_verdicts(
    tasks: Sequence[Task], programs: Sequence[str], expected: float, verifier: CodeVerifier = VERIFIER
) -> list[tuple[str, Score]]:
    """The ids of tasks whose program is not graded as it should be, with the grades."""
    texts = [f"Here is the solution:\n\n```python\n{program}\n```\n\nIt passes." for program in programs]
    with ThreadPoolExecutor(4) as threads:
        scores = list(threads.map(verifier.verify, tasks, texts))
    graded = zip(tasks, scores, strict=True)
    return [(task.id, score) for task, score in graded if score.status != "ok" or score.value != expected]


def hollow(task: Task) -> str:
    """The solution with a body that does nothing."""
    tree = ast.parse(task.label)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == task.metadata["entry_point"]:
            node.body = [ast.Pass()]
    return ast.unparse(tree)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_every_canonical_solution_passes(name: str) -> None:
    found = tasks(name)
    assert wrong_verdicts(found, [task.label for task in found], 1.0, PATIENT) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_no_empty_body_passes(name: str) -> None:
    found = tasks(name)
    assert wrong_verdicts(found, [hollow(task) for task in found], 0.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_no_solution_with_one_change_that_breaks_it_passes(name: str) -> None:
    found = tasks(name)
    # The prompt's own lines stay as they are: the tests use their own copy of its helpers.
    changed = {t.id: mutants(t.label, t.id, len(t.metadata["prelude"].rstrip().splitlines())) for t in found}
    # As one module, as the benchmarks' own harnesses run them.
    whole = {task.id: [f"{source}\n{task.metadata['tests']}" for source in changed[task.id]] for task in found}
    places = first_failing(whole, timeout=120.0)
    broken = [task for task in found if task.id in places]
    print(f"{len(broken)} of {len(found)} have a broken copy")
    assert len(broken) > 0.97 * len(found)
    assert wrong_verdicts(broken, [changed[task.id][places[task.id]] for task in broken], 0.0) == []


@pytest.mark.slow
def test_solutions_pass_as_completions_of_their_prompt() -> None:
    found = tasks("humaneval")
    bodies = [task.label.removeprefix(task.metadata["prelude"]) for task in found]
    assert wrong_verdicts(found, bodies, 1.0) == []
