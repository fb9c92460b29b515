"""What CoMAS says to its agents, in words of our own (the paper's appendix B gives the parts that each must have).

Another agent's text is quoted with score tags defused, so that no solution or critique can set a score.
"""

from collections.abc import Sequence
from dataclasses import replace

from marti_ext.types import Message, Score, Task, Turn
from marti_ext.verifiers.score import neutralise, parse_score, parse_verdict, read_judgement

LOW, HIGH = 1, 3  # prompt and parser share one range
NO_FLAW = "No flaw found"

SOLVE = {
    "math": "Solve the problem step by step. Put the final answer, and nothing else, in \\boxed{}.",
    "science": (
        "Solve the problem step by step, with units along the way. Put the final answer as a decimal number, without "
        "its unit, in \\boxed{}."
    ),
    "code": (
        "First say in a few sentences how you will solve the task. Then write the whole program in exactly one "
        "```python block."
    ),
}
CRITICISE = {
    "math": "Recompute every step.",
    "science": "Check the formulas, the units and every number.",
    "code": "For each error name an input on which the program fails, and why it fails there.",
}
HUNT = (
    "Look for what is wrong with the proposed solution. Do not agree out of politeness, and do not retell it. {how} "
    "List each flaw in one short line: where it is, and why it is wrong. Only if a thorough search finds none, answer "
    f'with the words "{NO_FLAW}".'
)
JUDGE = (
    "Judge the proposed solution in the light of the critique. First weigh in one or two sentences whether the "
    "critique is justified. Then give one score:\n"
    "3: the solution is correct; the critique is wrong or beside the point.\n"
    "2: the solution is right in essence; the critique names small flaws.\n"
    "1: the solution has a fatal error, and the critique found it."
)
# A judge that only repeats this has given no score.
VERDICT = f"End with <score>N</score>, where N is a whole number from {LOW} to {HIGH}."
JUDGE_ALONE = (
    "Judge the proposed solution. First say in one or two sentences what speaks for it or against it. Then give one "
    "score:\n"
    "3: the solution is correct.\n"
    "2: the solution is right in essence, with small flaws.\n"
    "1: the solution has a fatal error."
)
OPINION = "End with <verdict>V</verdict>, where V is one word on the solution: correct or incorrect."
# (problem, solution, critique, judgement, judgement without critique), one for each end of the scale, so that neither
# is favoured.
WORKED_EXAMPLES = (
    (
        "A box holds 6 eggs. How many eggs are in 2 boxes?",
        "6 + 2 = 8. The answer is 8.",
        "It adds where it should multiply: 6 * 2 = 12.",
        "The critique is right: the operation is wrong.\n<score>1</score>",
        "It adds where it should multiply.\n<score>1</score>",
    ),
    (
        "Ann has 9 pears and sells 4. How many are left?",
        "9 - 4 = 5. The answer is 5.",
        "The last line does not say pears.",
        "The critique is beside the point: the answer is right.\n<score>3</score>",
        "The step is the right one, and so is the answer.\n<score>3</score>",
    ),
)

Discussion = tuple[Turn, Sequence[Turn]]  # a solution and its evaluations


def solution_prompt(task: Task, context: Sequence[Discussion]) -> str:
    """Asks for a solution; the first solver of a task is shown no discussion."""
    return _sections(("Problem", task.prompt), ("Discussion so far", _discussion(context)), ("", SOLVE[task.kind]))


def evaluation_prompt(task: Task, context: Sequence[Discussion], solution: Turn, *, with_verdict: bool = False) -> str:
    """Asks for the flaws of a solution, and `with_verdict` for a verdict at the end."""
    request = HUNT.format(how=CRITICISE[task.kind])
    quoted = (
        ("Problem", task.prompt),
        ("Discussion so far", _discussion(context)),
        ("Proposed solution", solution.text),
    )
    if with_verdict:  # only then are tags looked for in the reply
        return _sections(*((title, neutralise(text)) for title, text in quoted), ("", f"{request}\n{OPINION}"))
    return _sections(*quoted, ("", request))


def scoring_prompt(
    task: Task, solution: Turn, evaluation: Turn | None, *, worked_examples: bool = False
) -> list[Message]:
    """Asks for a score of 1 to 3 of a solution, in the light of a critique if there is one; the discussion is not
    shown.

    `worked_examples` go before it as turns of the scorer's own: small models copy a form sooner than they obey one.
    """
    judge = JUDGE if evaluation else JUDGE_ALONE
    critique = evaluation.text if evaluation else ""
    if not worked_examples:
        return [Message("user", _case(task.prompt, solution.text, critique, f"{judge}\n{VERDICT}"))]
    messages = [Message("system", judge)]
    for problem, proposed, objection, judgement, alone in WORKED_EXAMPLES:
        case = _case(problem, proposed, objection if evaluation else "", VERDICT)
        messages += [Message("user", case), Message("assistant", judgement if evaluation else alone)]
    return [*messages, Message("user", _case(task.prompt, solution.text, critique, VERDICT))]


def read_evaluation(evaluation: Turn, *, with_verdict: bool = False) -> Score:
    """1 for a critique that objects, 0 for one that finds no flaw; empty ones are not graded.

    `with_verdict` its verdict alone says which.
    """
    if with_verdict:
        verdict = read_judgement(evaluation.completion, parse_verdict)
        return replace(verdict, value=1 - verdict.value) if verdict.status == "ok" else verdict
    if not evaluation.text:
        return Score(0.0, status="unparsed")
    objects = NO_FLAW.lower() not in evaluation.text.lower()
    return Score(float(objects), "objection" if objects else "no flaw")


def read_scoring(scoring: Turn) -> Score:
    """The score that a judge gave, on [0, 1]: (tau - 1) / 2 as in the paper's eq. 6."""
    return read_judgement(scoring.completion, lambda text: parse_score(text, low=LOW, high=HIGH))


def _discussion(context: Sequence[Discussion]) -> str:
    return "\n\n".join(
        _sections((f"Solution {number}", solution.text), *(("Critique of it", e.text) for e in evaluations))
        for number, (solution, evaluations) in enumerate(context, 1)
    )


def _case(problem: str, solution: str, critique: str, request: str) -> str:
    quoted = (("Problem", problem), ("Proposed solution", solution), ("Critique", critique))
    return _sections(*((title, neutralise(text)) for title, text in quoted), ("", request))


def _sections(*sections: tuple[str, str]) -> str:
    """Titled sections; one without text leaves no title behind."""
    return "\n\n".join(f"{title}:\n{text}" if title else text for title, text in sections if text)
