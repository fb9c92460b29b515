"""Whether a program's output is the expected one."""

import math


def same_output(expected: str, printed: str, tolerance: float | None = None) -> bool:
    """Line by line. Blanks at the ends of lines and empty lines at the end do not count; how lines are divided does.

    With `tolerance`, numbers may differ by it, absolutely or relative to the larger one.
    """
    wanted, found = _lines(expected), _lines(printed)
    if wanted == found:
        return True
    if tolerance is None or len(wanted) != len(found):
        return False
    return all(_same_line(w, f, tolerance) for w, f in zip(wanted, found, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_line(wanted: str, found: str, tolerance: float) -> bool:
    words, others = wanted.split(), found.split()
    return len(words) == len(others) and all(_same_word(w, o, tolerance) for w, o in zip(words, others, strict=True))


def _same_word(wanted: str, found: str, tolerance: float) -> bool:
    if wanted == found:
        return True
    try:
        expected, number = float(wanted), float(found)
    except ValueError:
        return False
    return math.isclose(number, expected, rel_tol=tolerance, abs_tol=tolerance)
