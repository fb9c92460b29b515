"""The short answer of a reply to a question: what exact-match and F1 scores are made for."""

import re
import unicodedata

from marti_ext.thinking import spoken
from marti_ext.types import Task
from marti_ext.verifiers.math.extract import find_answer

SHORT = 120  # characters of a reply that may be an answer as a whole

_STATED = re.compile(r"(?:^|[^A-Za-z])(?:final\s{1,3})?answer\s{0,3}(?:is|:)\s{0,3}:?([^\n]*)", re.IGNORECASE)
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−"), "-")


def short_answer(text: str) -> str | None:
    r"""What stands in the last `\boxed{}`, else behind the last "answer:" or "answer is", else a one-line reply.

    "" without an answer, None where it was cut.
    """
    said = spoken(text)
    if said is None:
        return None
    found = find_answer(said)
    if found.source == "cut":
        return None
    if found.boxes:
        return _bare(found.boxes[-1])
    stated = [match[1] for match in _STATED.finditer(said) if match[1].strip(" *.")]
    if stated:
        return _bare(stated[-1])
    said = said.strip()
    return _bare(said) if len(said) <= SHORT and "\n" not in said else ""


def ascii_dashes(text: str) -> str:
    """Every kind of dash and minus as "-", and compatibility forms as plain ones."""
    return unicodedata.normalize("NFKC", text).translate(_DASHES)


def gold_answers(task: Task) -> list[list[str]]:
    """The alternatives, each a list of spans: of `metadata["answers"]`, else of the label, divided by bars."""
    given = task.metadata.get("answers") or [[part] for part in task.label.split("|")]
    answers = [[str(span).strip() for span in spans if str(span).strip()] for spans in given]
    return [spans for spans in answers if spans]


def _bare(text: str) -> str:
    text = _TEXT.sub(r"\1", text).replace("\\%", "%").replace("\\$", "$").replace("\\ ", " ").replace("\\&", "&")
    return text.strip().strip("*$").strip()
