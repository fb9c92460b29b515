"""The short answer of a reply to a question: what exact-match and F1 scores are made for."""

import re
import unicodedata

from marti_ext.thinking import spoken
from marti_ext.types import Task
from marti_ext.verifiers.math.extract import find_answer

SHORT = 120  # characters of a reply that may be an answer as a whole

_STATED = re.compile(r"(?<![A-Za-z])answer\*{0,2}\s{0,3}(?:is(?![\w'’])|:)[ \t*]{0,3}:?\s{0,3}", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt)|emph)\s?\{([^{}]*)\}")
_ESCAPES = [("{,}", ","), ("\\,", ""), ("\\%", "%"), ("\\$", "$"), ("\\ ", " "), ("\\&", "&"), ("\\#", "#")]
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−"), "-")


def short_answer(text: str) -> str | None:
    r"""What stands in the last `\boxed{}`, else behind the last "answer:" or "answer is", else a one-line reply.

    "" without an answer, None where it was cut. The full stop of a sentence is no part of it: DROP would read "12.25."
    as 1225.
    """
    found = find_answer(text)
    if found.source == "cut":
        return None
    if found.boxes:
        return _bare(found.boxes[-1])
    said = (spoken(text) or "").strip()
    for stated in reversed([*_STATED.finditer(said)]):
        if answer := _bare(said[stated.end() : (said + "\n").index("\n", stated.end())]):
            return answer
    return _bare(said) if len(said) <= SHORT and len(said.splitlines()) == 1 else ""


def ascii_dashes(text: str) -> str:
    """Every kind of dash and minus as "-", and compatibility forms as plain ones."""
    return unicodedata.normalize("NFKC", text).translate(_DASHES)


def gold_answers(task: Task) -> list[list[str]]:
    """The alternatives, each a list of spans: of `metadata["answers"]`, else of the label, divided by bars.

    A label says nothing of spans: each of its alternatives is one. So is a text where a list of spans could stand.
    """
    given = task.metadata.get("answers") or task.label.split("|")
    answers = [[spans] if isinstance(spans, str) else [str(span) for span in spans] for spans in given]
    return [kept for spans in answers if (kept := [span.strip() for span in spans if span.strip()])]


def _bare(text: str) -> str:
    for _ in range(3):  # \text{\textbf{...}}; nobody nests deeper
        text = _TEXT.sub(r"\1", text)
    for written, meant in _ESCAPES:
        text = text.replace(written, meant)
    return text.strip().strip("*$`").strip().removesuffix(".").rstrip("* ")
