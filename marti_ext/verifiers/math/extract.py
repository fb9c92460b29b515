r"""Where the answer stands in a reply, and in a label.

A boxed answer counts first. Without one, and only where boxes are not required, this chain is followed: what stands
behind the last `####`, behind the last "answer is" or "answer:", the whole text if it is short and no prose, the last
formula or number.
"""

import re
from dataclasses import dataclass
from typing import Literal

from marti_ext.thinking import spoken
from marti_ext.verifiers.math.normalise import MAX_LENGTH, key, normalise, plain

Source = Literal["box", "marker", "phrase", "whole", "last", "none", "cut"]

_BRACE = re.compile(r"(?<!\\)\\+(?:(?:boxed|fbox)\s*\{|[{}])|[{}]")
_BARE_BOX = re.compile(r"\\boxed\s*(-?\d+(?:\.\d+)?)")
_PHRASE = re.compile(r"answer\s{0,3}(?:is|:|=)\s{0,3}:?", re.IGNORECASE)
_BETWEEN_BOXES = re.compile(
    r"(?:[\s,;.&*$]|\\[()\[\],;: ]|\\\\|\\q?quad|\\text\s*\{\s*(?:and|or)\s*\}|and|or|[A-Za-z]\w?\s*=)*"
)
_FORMULA = re.compile(r"\$\$([^$]+)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_PLAIN_NUMBER = re.compile(r"[-−+]?[$€£]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][+-]?\d+)?(?:/\d+)?%?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_MARKDOWN = re.compile(r"(?<![\w)}])[*_]{1,3}(?=\S)|(?<=\S)[*_]{2,3}(?!\w)|(?<=\S)[*_](?=[\s.,!]|$)|(?<!\\)`{1,3}")
# "26, since 96 - 70 = 26", "26 (rolls)": the answer, and what is said of it.
_REMARK = re.compile(r",\s(?!and\b|or\b)(?=[A-Za-z]{2,})|\s\((?=[A-Za-z]{2,})|\s(?:since|because)\s")
_SENTENCE = re.compile(r"[A-Za-z]{2,}[^$\d\\]*[\d$\\]")  # words, then a number or formula: "Thus it is $26$"
_SHORT = 100  # characters of a text that may be an answer as a whole


@dataclass(frozen=True, slots=True)
class Found:
    """What a reply holds. `boxes` are all boxed answers, in order; `source` says how `answer` was come by."""

    answer: str
    source: Source
    boxes: tuple[str, ...] = ()


def find_answer(text: str, *, require_box: bool = True) -> Found:
    """The answer of a reply; `source` is "none" without one and "cut" where it was cut by the end of the text."""
    said = spoken(text)
    if said is None:
        return Found("", "cut")
    boxes, cut = _boxes(said)
    if cut:
        return Found("", "cut")
    if boxes:
        return Found(_last_run(said, boxes), "box", tuple(box for box, _, _ in boxes))
    return Found("", "none") if require_box else _without_box(said)


def read_label(label: str) -> str | None:
    r"""The reference answer of a label as data files hold it, in its normal form; None where there is none to use.

    A label is bare LaTeX, a number, a text with `\boxed{...}`, or a rationale that ends in `#### 18`. Not usable are
    an empty one, prose, and one with unbalanced brackets.
    """
    boxes, cut = _boxes(label)
    if cut:
        return None
    text = (_last_run(label, boxes) if boxes else label).rpartition("####")[2]
    answer = normalise(text)
    words = len(_WORD.findall(plain(answer)))
    prose = words > 5 or (words > 3 and text.rstrip().endswith("."))
    usable = re.search(r"\w", answer) and len(text) <= MAX_LENGTH and _is_balanced(text) and not prose
    return answer if usable else None


def joined(boxes: tuple[str, ...], count: int) -> str | None:
    """The boxes as one list, if there are exactly `count` different ones (one box for each of several answers)."""
    different = {key(normalise(box)): box for box in boxes}
    if count < 2 or len(different) != count or any("," in k for k in different):
        return None
    return ", ".join(different.values())


def _boxes(text: str) -> tuple[list[tuple[str, int, int]], bool]:
    r"""Every closed box as (content, start, end), and whether the last one never closes.

    One pass with a stack, so hostile texts cost no more than their length. Boxes inside a box and empty boxes (an echo
    of the instruction) are left out.
    """
    opened: list[tuple[int, int]] = []  # (start, start of the content or -1 for a plain brace)
    spans: list[tuple[int, int, int]] = []  # (start, start of the content, its end)
    last_box = -1
    for brace in _BRACE.finditer(text):
        token = brace[0]
        if "box" in token:
            last_box = brace.start()
            opened.append((last_box, brace.end()))
        elif token == "{":
            opened.append((brace.start(), -1))
        elif token == "}" and opened:
            start, content = opened.pop()
            if content >= 0:
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, content, brace.start()))
    cut = any(start == last_box and content >= 0 for start, content in opened)
    spans += [(bare.start(), bare.start(1), bare.end()) for bare in _BARE_BOX.finditer(text)]
    boxes = [(text[content:end].strip(), start, end) for start, content, end in sorted(spans)]
    return [box for box in boxes if box[0].strip("$ ")], cut


def _last_run(text: str, boxes: list[tuple[str, int, int]]) -> str:
    """The last box, or the list of those that stand side by side at the end: guesses are not graded one by one."""
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _BETWEEN_BOXES.fullmatch(text[box[2] : run[0][1]].lstrip("}")):
            break
        run.insert(0, box)
    return ", ".join({key(normalise(content)): content for content, _, _ in run}.values())


def _without_box(text: str) -> Found:
    if "####" in text:
        answer = text.rpartition("####")[2].strip().partition("\n")[0].strip()
        return Found(answer, "marker" if answer else "none")
    text = _MARKDOWN.sub("", text).strip()
    if phrases := list(_PHRASE.finditer(text)):
        stated = text[phrases[-1].end() :].partition("\n")[0]
        answer = _REMARK.split(stated, maxsplit=1)[0].strip().rstrip("!")
        answer = answer if _is_answer(answer) else _last_expression(answer)
        if answer:
            return Found(answer, "phrase")
    if _is_answer(text) and not _SENTENCE.match(text):
        return Found(text, "whole")
    answer = _last_expression(text)
    return Found(answer, "last" if answer else "none")


def _is_answer(text: str) -> bool:
    """Whether a text can be an answer as it stands: short, and no sentence."""
    if not text or len(text) > _SHORT or "\n" in text:
        return False
    if not re.search(r"[\d\\]", text) and len(re.findall(r"[A-Za-z']+", text)) > 2:
        return False  # "I do not know"
    return bool(re.search(r"\w", text)) and len(_WORD.findall(text)) <= 3 and not re.search(r"[a-z]\. ", text)


def _last_expression(text: str) -> str:
    tail = text[-MAX_LENGTH:]  # only a bounded part, for the patterns may look at a text many times
    last = max(
        [*_FORMULA.finditer(tail), *_PLAIN_NUMBER.finditer(tail)], key=lambda m: (m.end(), -m.start()), default=None
    )
    if last is None:
        return ""
    return next((group for group in last.groups() if group), last[0])


def _is_balanced(text: str) -> bool:
    level = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        level += 1 if brace == "{" else -1
        if level < 0:
            return False
    return level == 0
