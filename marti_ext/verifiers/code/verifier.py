"""Grade programs by running them against a benchmark's tests, in the sandbox."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.code.blocks import code_blocks
from marti_ext.verifiers.code.fences import Block
from marti_ext.verifiers.code.problem import FunctionProblem, StdinProblem, read_problem
from marti_ext.verifiers.code.programs import Programs, joined
from marti_ext.verifiers.code.syntax import same_program
from marti_ext.verifiers.sandbox import DEFAULT_LIMITS, SANDBOX, Limits, Sandbox, Verdict

Rule = Literal["last", "any", "first"]
Run = Callable[[str], Verdict]
_CPU_TO_WALL = 4.0


@dataclass(frozen=True)
class CodeVerifier(Verifier):
    """1.0 for a program that passes every test of `task.metadata` (see `problem`), 0.0 for one that does not.

    Several blocks in a reply: `last` is the last that defines the function, with what it uses of earlier blocks (of
    whole programs, the last); `first` the first such, by itself; `any` is right if some block passes by itself, as in
    the CoMAS paper (arXiv:2510.08529), which favours replies of many blocks.
    Status: "no_label" (unusable tests: never rewarded), "truncated" (cut in thinking or in the block that counts),
    "unparsed" (no block), "failed" (the sandbox, not the program), else "ok", with the `reason` of a failure.
    """

    measure = "last"

    block: Rule = "last"
    """Which block counts."""
    limits: Limits = DEFAULT_LIMITS
    """For all tests of one function, or for one case of standard input."""
    max_blocks: int = 16
    """How many blocks of one reply `any` runs: the last ones."""
    sandbox: Sandbox = field(default=SANDBOX, repr=False)

    def verify(self, task: Task, text: str) -> Score:
        """Grade the program of `text`; `extracted` is that program without what the prompt defines."""
        return self._grade(task, text, [self.block])[self.block]

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        """`last`, `any` and `first`, the rule in use before the others. No program is run twice."""
        return self._grade(task, text, sorted(get_args(Rule), key=lambda rule: rule != self.block))

    def read(self, task: Task, text: str) -> str:
        """The last program."""
        block = _programs(task, code_blocks(text) or []).last()
        return "" if block is None or block.cut else block.text

    def agree(self, task: Task, one: str, other: str) -> bool:
        """Whether two programs are written the same, but for comments, layout, docstrings and annotations.

        What they do is not compared: programs written differently disagree, though both may be right.
        """
        return same_program(one, other)

    def _grade(self, task: Task, text: str, rules: Sequence[Rule]) -> dict[str, Score]:
        problem = read_problem(task)
        if problem is None:
            return dict.fromkeys(rules, Score(0.0, status="no_label", reason="the task has no usable tests"))
        blocks = code_blocks(text)
        if blocks is None:
            return dict.fromkeys(rules, Score(0.0, status="truncated"))
        if not blocks:
            return dict.fromkeys(rules, Score(0.0, status="unparsed"))
        programs, run = _programs(task, blocks), self._runner(problem)
        one = {"last": programs.last, "first": programs.first}
        return {r: _single(one[r](), run) if r in one else self._any(programs, run) for r in rules}

    def _any(self, programs: Programs, run: Run) -> Score:
        """The score of the first program that passes, of the last blocks first; else that of the last one."""
        scores = []
        for block in programs.each(self.max_blocks):
            scores.append(_single(block, run))
            if scores[-1].value:
                return scores[-1]
        ungraded = [score for score in scores if score.status != "ok"]
        return next(iter([*ungraded, *scores]), Score(0.0, status="truncated"))

    def _runner(self, problem: FunctionProblem | StdinProblem) -> Run:
        """Runs a program against the tests, once."""
        known: dict[str, Verdict] = {}

        def run(program: str) -> Verdict:
            if program not in known:
                known[program] = self._test(problem, program)
            return known[program]

        return run

    def _test(self, problem: FunctionProblem | StdinProblem, program: str) -> Verdict:
        if isinstance(problem, StdinProblem):
            cpu = problem.cpu_seconds or self.limits.cpu_seconds
            wall = max(self.limits.wall_seconds, _CPU_TO_WALL * cpu)
            limits = replace(self.limits, cpu_seconds=cpu, wall_seconds=wall)
            return self.sandbox.run_cases(program, problem.cases, tolerance=problem.tolerance, limits=limits)
        return self.sandbox.run_tests(
            joined(problem.prefix, program),
            problem.tests,
            prelude=problem.prelude,
            entry_points=[problem.entry_point] if problem.entry_point else [],
            limits=self.limits,
        )


def _single(block: Block | None, run: Run) -> Score:
    """The score of one program."""
    if block is None or block.cut:
        return Score(0.0, status="unparsed" if block is None else "truncated")
    verdict = run(block.text)
    if not verdict.graded:
        return Score(0.0, block.text, "failed", verdict.reason)
    return Score(float(verdict.passed), block.text, reason="" if verdict.passed else verdict.reason)


def _programs(task: Task, blocks: Sequence[Block]) -> Programs:
    """The programs of a reply, also where the tests cannot be used."""
    entry_point, prelude, tests = (str(task.metadata.get(key) or "") for key in ("entry_point", "prelude", "tests"))
    return Programs(blocks, entry_point, prelude, tests)
