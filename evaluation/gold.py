"""Models whose replies are written beforehand: one that knows every answer, and one that knows none."""

import re
from collections.abc import Callable, Sequence

from marti_ext.backends.base import Request
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.types import Task
from marti_ext.verifiers.math.extract import read_label
from marti_ext.verifiers.numeric import number_of


def gold_reply(task: Task) -> str:
    """What a model replies that knows the answer."""
    return f"This is right.\n\n{_form(task, task.label if task.kind == 'code' else _answer(task))}"


def wrong_reply(task: Task) -> str:
    """A reply of the same form with a wrong answer."""
    return f"This is wrong.\n\n{_form(task, _wrong_answer(task))}"


def scripted(tasks: Sequence[Task], reply: Callable[[Task], str]) -> ScriptedBackend:
    """A backend that replies to whatever task stands in the conversation."""
    longest_first = sorted(tasks, key=lambda task: -len(task.prompt))
    by_prompt = {task.prompt: task for task in tasks}

    def answer(request: Request) -> str:
        texts = [message.content for message in request.messages]
        # Mostly the prompt is a message of its own.
        for text in texts:
            if text in by_prompt:
                return reply(by_prompt[text])
        task = next((task for task in longest_first if any(task.prompt in text for text in texts)), None)
        return reply(task) if task else "I know no such task."

    return ScriptedBackend(answer)


def _form(task: Task, answer: str) -> str:
    return f"```python\n{answer}\n```" if task.kind == "code" else f"The answer is \\boxed{{{answer}}}."


def _answer(task: Task) -> str:
    if task.kind == "math":
        return read_label(task.label) or task.label
    answers = task.metadata.get("answers")
    return ", ".join(answers[0]) if answers else task.label


def _wrong_answer(task: Task) -> str:
    if task.kind == "code":
        name = task.metadata.get("entry_point")
        return f"def {name}(*arguments, **options):\n    pass" if name else "pass"
    if task.kind == "choice":
        return "B" if task.label == "A" else "A"
    if task.kind in ("hotpotqa", "drop"):
        return "zyxwv"
    if task.kind == "numeric":
        value = float(number_of(_answer(task)) or 0)
        return f"{2 * value + (1 if value >= 0 else -1):g}"  # no scale of a unit is near 2
    # Whole numbers stay whole, so that the form is still the one asked for.
    number = re.fullmatch(r"-?\d+", _answer(task))
    return str(int(number[0]) + 1) if number else "123456789/7"
