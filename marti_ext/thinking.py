"""What a model thinks aloud is not what it says."""

import re

OPEN, CLOSE = "<think>", "</think>"
_CLOSED = re.compile(re.escape(OPEN) + r".*?" + re.escape(CLOSE), re.DOTALL)


def strip_thinking(text: str) -> str:
    """The text without thinking blocks.

    A lone closing tag ends thinking that the prompt had opened; thinking that is never closed leaves no text.
    """
    text = _CLOSED.sub("", text)
    text = text.rpartition(CLOSE)[2]
    return text.partition(OPEN)[0].strip()


def spoken(text: str) -> str | None:
    """What was said aloud, or None where thinking was opened and never closed (the reply was cut)."""
    if OPEN in text.rpartition(CLOSE)[2]:
        return None
    return strip_thinking(text)
