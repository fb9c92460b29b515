"""Whether two answers are the same, by structure first; expressions that need algebra go to a function given in."""

import re
from collections.abc import Callable, Sequence

from marti_ext.verifiers.math.normalise import key, plain
from marti_ext.verifiers.math.number import Number, same_number
from marti_ext.verifiers.math.read import Answer, Group, Relation, Scalar, Words, readings

Symbolic = Callable[[str, str], bool]
"""Decides (gold, pred) in LaTeX; both are one expression or one relation."""

_Chain = tuple[tuple[str, ...], tuple[Answer, ...]]  # signs and sides
_LONE_LETTER = re.compile(r"\(?([A-Za-z])\)?")
_LABELLED = re.compile(r"\(?([A-Z])(?:\)\s*|[:.]\s+|:)(?=\S).*", re.DOTALL)
_CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|infty|cdot)|[^A-Za-z\\])*")
_INFINITE = re.compile(r"-?\s*\\infty")
_FLIPPED = {">": "<", r"\ge": r"\le"}
_UNORDERED = ("list", "set", "union")


def same(gold: str, pred: str, symbolic: Symbolic) -> bool:
    """Whether `pred` answers `gold`; both in normal form. Raises what `symbolic` raises."""
    if not key(pred):
        return False
    if key(gold) == key(pred):
        return True
    choices = _choice(gold), _choice(pred)
    if choices[0] and choices[1]:
        return choices[0] == choices[1]
    golds, preds = readings(gold), readings(pred)
    pairs = [(golds[0], preds[0]), *((g, preds[0]) for g in golds[1:]), *((golds[0], p) for p in preds[1:])]
    return any(_same(g, p, symbolic) for g, p in pairs)


def count(gold: str) -> int:
    """How many answers a reference asks for: the items of its list or set, else 1."""
    read = readings(gold)[0]
    return len(read.items) if isinstance(read, Group) and read.kind in ("list", "set") else 1


def _choice(text: str) -> str:
    """The letter of a multiple-choice answer: C, (C), C: 40 N; lone letters are upper-cased."""
    text = plain(text)
    if lone := _LONE_LETTER.fullmatch(text):
        return lone[1].upper()
    labelled = _LABELLED.fullmatch(text)
    return labelled[1] if labelled else ""


def _same(gold: Answer, pred: Answer, symbolic: Symbolic) -> bool:
    if isinstance(gold, Relation) or isinstance(pred, Relation):
        return _same_relation(gold, pred, symbolic)
    if isinstance(gold, Group) or isinstance(pred, Group):
        return _same_group(gold, pred, symbolic)
    if isinstance(gold, Words) or isinstance(pred, Words):
        return gold == pred
    return _same_scalar(gold, pred, symbolic)


def _same_group(gold: Answer, pred: Answer, symbolic: Symbolic) -> bool:
    if not isinstance(gold, Group):
        return isinstance(pred, Group) and _is_singleton(pred) and _same(gold, pred.items[0], symbolic)
    if not isinstance(pred, Group):
        return _is_singleton(gold) and _same(gold.items[0], pred, symbolic)
    if len(gold.items) != len(pred.items):
        return False
    kinds = {gold.kind, pred.kind}
    if len(kinds) == 1 or kinds == {"list", "set"} or kinds == {"list", "()"}:
        # a bare list is unordered; that a pair is asked for only the reference can say
        if gold.kind in _UNORDERED:
            return _same_unordered(gold.items, pred.items, symbolic)
        return all(_same(g, p, symbolic) for g, p in zip(gold.items, pred.items, strict=True))
    return False


def _is_singleton(group: Group) -> bool:
    return group.kind in ("list", "set") and len(group.items) == 1


def _same_unordered(gold: Sequence[Answer], pred: Sequence[Answer], symbolic: Symbolic) -> bool:
    left = list(pred)
    unmatched = []
    for item in gold:  # the identical ones first: they cost nothing
        if item in left:
            left.remove(item)
        else:
            unmatched.append(item)
    for item in unmatched:
        match = next((i for i, other in enumerate(left) if _same(item, other, symbolic)), None)
        if match is None:
            return False
        del left[match]
    return True


def _same_relation(gold: Answer, pred: Answer, symbolic: Symbolic) -> bool:
    if not isinstance(gold, Relation):
        # "x = 5" or "2 + 3 = 5" for 5; an inequality is another answer than a number or an interval
        return (
            isinstance(pred, Relation)
            and _is_equation(pred)
            and _same(gold, pred.sides[-1], symbolic)
            and all(_is_name(n) or _same(gold, side, symbolic) for n, side in zip(pred.names, pred.sides, strict=True))
        )
    if not isinstance(pred, Relation):
        return _is_equation(gold) and _is_name(gold.names[0]) and _same(gold.sides[-1], pred, symbolic)
    if _is_equation(gold) != _is_equation(pred):
        return False
    if _is_equation(gold) and key(gold.names[0]).casefold() == key(pred.names[0]).casefold():
        return _same(gold.sides[-1], pred.sides[-1], symbolic)
    if _same_chain(_oriented(gold), _oriented(pred), symbolic):
        return True
    if _is_solved(gold):  # so its unsolved form, such as the problem itself, is no answer
        return False
    return symbolic(gold.text, pred.text)


def _is_equation(relation: Relation) -> bool:
    return all(sign == "=" for sign in relation.signs)


def _is_name(text: str) -> bool:
    return bool(re.match(r"[A-Za-z\\(]", text)) and not re.search(r"[-+*/^<>]", text)


def _is_solved(relation: Relation) -> bool:
    letters = [name for name in relation.names if not _CONSTANT.fullmatch(name)]
    return len(letters) == 1 and bool(re.fullmatch(r"\\?[A-Za-z]+", letters[0]))


def _oriented(relation: Relation) -> _Chain:
    """The chain with > and >= turned round."""
    if relation.signs[0] not in _FLIPPED:
        return relation.signs, relation.sides
    return tuple(_FLIPPED.get(sign, sign) for sign in reversed(relation.signs)), relation.sides[::-1]


def _same_chain(gold: _Chain, pred: _Chain, symbolic: Symbolic) -> bool:
    if gold[0] != pred[0]:
        return False
    if all(_same(g, p, symbolic) for g, p in zip(gold[1], pred[1], strict=True)):
        return True
    symmetric = set(gold[0]) <= {"=", r"\ne"}
    return symmetric and all(_same(g, p, symbolic) for g, p in zip(gold[1], pred[1][::-1], strict=True))


def _same_scalar(gold: Scalar, pred: Scalar, symbolic: Symbolic) -> bool:
    g, p = gold.dressed, pred.dressed
    if (g.unit and p.unit and g.unit != p.unit) or (g.base and p.base and g.base != p.base):
        return False
    if key(g.text) == key(p.text):
        return bool(key(g.text))
    if len(g.text) == len(p.text) == 1 and g.text.isalpha() and p.text.isalpha():
        return g.text.casefold() == p.text.casefold()
    if gold.number is not None and pred.number is not None:
        verdict = _same_value(gold.number, g.percent, pred.number, p.percent)
        if verdict is not None:
            return verdict
    if gold.huge or pred.huge:
        return False
    if any(_INFINITE.fullmatch(text) for text in (g.text, p.text)) and (gold.number or pred.number):
        return False
    return symbolic(g.text, p.text)


def _same_value(gold: Number, gold_percent: bool, pred: Number, pred_percent: bool) -> bool | None:
    """p% is p% and p and p/100."""
    verdicts = [same_number(gold, pred)]
    if gold_percent != pred_percent:
        verdicts.append(same_number(gold.percent(), pred) if gold_percent else same_number(gold, pred.percent()))
    return True if True in verdicts else None if None in verdicts else False
