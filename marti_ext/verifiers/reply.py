"""The part of a reply that counts: what was said aloud."""

from marti_ext.thinking import CLOSE, OPEN, strip_thinking


def spoken(text: str) -> str | None:
    """The reply without thinking, or None where thinking was opened and never closed (the reply was cut)."""
    if OPEN in text.rpartition(CLOSE)[2]:
        return None
    return strip_thinking(text)
