"""Grade programs by running them.

Which block of a reply counts is a measure of its own: `last`, `first`, or `any`, the CoMAS paper's rule, which is
right as soon as one of them passes and so favours replies with many blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marti_ext.types import Score, Task
from marti_ext.verifiers.base import Verifier
from marti_ext.verifiers.code.blocks import find_blocks
from marti_ext.verifiers.code.programs import chosen, completed, same_program, with_helpers
from marti_ext.verifiers.sandbox import DEFAULT_LIMITS, SANDBOX, Limits, Sandbox, Verdict

RULES = ("last", "any", "first")


@dataclass(frozen=True)
class CodeVerifier(Verifier):
    """1.0 where the program of a reply passes all tests of the task, 0.0 where it does not, for whatever reason.

    `task.metadata` holds, for a function, `entry_point`, `tests` (Python that raises if the program is wrong) and
    `prelude` (what the prompt itself defines, for program and tests); for a script, `cases` ([input, output] pairs),
    `tolerance` and `cpu_seconds`. Status: "no_label" without them, "unparsed" without a program, "truncated" (the
    block that counts is cut), "failed" (the sandbox could not run it), "ok". `extracted` is the program.
    """

    measure = "last"

    limits: Limits = DEFAULT_LIMITS
    sandbox: Sandbox = SANDBOX
    max_blocks: int = 16
    """Programs of one reply that are run for `any`, from the end."""

    def verify(self, task: Task, text: str) -> Score:
        return self._grade(task, text, ("last",))["last"]

    def grade(self, task: Task, text: str) -> Mapping[str, Score]:
        return self._grade(task, text, RULES)

    def read(self, task: Task, text: str) -> str:
        found = find_blocks(text)
        return "" if found.cut or not found.programs else self._programs(task, found.programs)["last"][0]

    def agree(self, task: Task, one: str, other: str) -> bool:
        """Whether they are one program, but for comments, docstrings and layout: what they do is not compared."""
        return same_program(one, other)

    def _grade(self, task: Task, text: str, rules: Sequence[str]) -> dict[str, Score]:
        if not (task.metadata.get("tests") or task.metadata.get("cases")):
            return dict.fromkeys(rules, Score(0.0, status="no_label"))
        found = find_blocks(text)
        if not found.programs:
            return dict.fromkeys(rules, Score(0.0, status="truncated" if found.cut else "unparsed"))
        programs = self._programs(task, found.programs)
        verdicts: dict[str, Verdict] = {}
        for rule in rules:
            for program in programs[rule]:
                if program not in verdicts:
                    verdicts[program] = self._run(task, program)
                if verdicts[program].passed:
                    break
        scores = {rule: _score(programs[rule], verdicts) for rule in rules}
        if found.cut and "last" in scores:  # what was to count is not all there
            scores["last"] = Score(0.0, status="truncated")
        return scores

    def _programs(self, task: Task, blocks: Sequence[str]) -> dict[str, list[str]]:
        """By rule, the programs of which one has to pass."""
        entry_point, prelude = task.metadata.get("entry_point") or "", task.metadata.get("prelude") or ""

        def program(place: int) -> str:
            return completed(prelude, entry_point, with_helpers(blocks, place) if entry_point else blocks[place])

        first, last = (chosen(blocks, entry_point, last=end) for end in (False, True))
        every = [program(place) for place in range(len(blocks))][-self.max_blocks :]
        return {"last": [program(last)], "any": list(dict.fromkeys(every)), "first": [program(first)]}

    def _run(self, task: Task, program: str) -> Verdict:
        facts: Mapping[str, Any] = task.metadata
        if facts.get("cases"):
            limits = replace(self.limits, cpu_seconds=float(facts.get("cpu_seconds") or self.limits.cpu_seconds))
            cases = [(str(given), str(expected)) for given, expected in facts["cases"]]
            return self.sandbox.run_cases(program, cases, tolerance=facts.get("tolerance"), limits=limits)
        entry_points = [facts["entry_point"]] if facts.get("entry_point") else []
        return self.sandbox.run_tests(
            program, facts["tests"], prelude=facts.get("prelude") or "", entry_points=entry_points, limits=self.limits
        )


def _score(programs: Sequence[str], verdicts: Mapping[str, Verdict]) -> Score:
    for program in programs:
        if program in verdicts and verdicts[program].passed:
            return Score(1.0, program)
    program = programs[-1]
    ungraded = [verdicts[p] for p in programs if not verdicts[p].graded]
    if ungraded:
        return Score(0.0, program, "failed", ungraded[0].reason)
    return Score(0.0, program, reason=verdicts[program].reason)
