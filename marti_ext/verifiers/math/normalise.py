r"""One spelling for what LaTeX, Unicode and plain text write in many ways.

The result is LaTeX without spacing and sizing commands, with `\frac{a}{b}`, `\sqrt{a}`, `\text{words}`, `*` for every
product sign, `°` for degrees and `%` for per cent. Nothing is evaluated.
"""

import re
import unicodedata
from functools import lru_cache

MAX_LENGTH = 2000  # characters; a longer answer is compared as a string only
MAX_DEPTH = 40  # nested brackets; a deeper answer is compared as a string only

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "*", "⋅": "*", "·": "*", "∙": "*", "÷": "/", "⁄": "/",
    "∕": "/", "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ", "∅": r"\emptyset ", "°": "°", "º": "°",
    "％": "%", "，": ",", "：": ":", "；": ";", "（": "(", "）": ")", "…": "...", "’": "'", "“": '"', "”": '"',
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "ℝ": r"\mathbb{R}", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_COMMAND_ARGUMENTS = {"frac": 2, "binom": 2, "sqrt": 1}
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp"

# in this order: each rule may rely on the ones above it
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\(?:left|right|middle|[bB]igg?[lmr]?)(?![A-Za-z])", ""),
        (r",\s*\\!\s*(?=\d{3})|(?<=\d)\\,(?=\d{3}(?!\d))|(?<=\d)\{,\}(?=\d{3})", ""),  # 12,\!600  12\,600  12{,}600
        (r"(?<!\\)\\[,;:! ]|~|\\q?quad(?![A-Za-z])|\\(?:display|text|script)style(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\mathrm\s*\{\s*([eidT])\s*\}", r"\1"),
        (r"\\(?:text(?:bf|it|rm|normal|sf|tt|up)?|mbox|hbox|math(?:rm|bf|it|sf|tt)|operatorname\*?)\s*\{", r"\\text{"),
        (r"\{\\(?:rm|bf|it)\s+", r"\\text{"),
        (r"\\text\{\s*\}", " "),
        (r"\\text\{([^A-Za-z{}\\]*)\}", r"\1"),
        (r"\\text\{\s*,?\s*(?:and|or)\s*\}|\\lor(?![A-Za-z])", ","),
        (r"(?<![A-Za-z\\])(?:,\s*)?(?:and|or)(?![A-Za-z])", ","),
        (r"\\text\{\s*(?:percent|pct)\.?\s*\}|\\%|(?<![A-Za-z\\])(?:percent|pct)(?![A-Za-z])", "%"),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])|\\degrees?(?![A-Za-z])", "°"),
        (r"\*\*", "^"),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])", "*"),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\leq?(?:slant)?(?![A-Za-z])|<=", r"\\le "),
        (r"\\geq?(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq?(?![A-Za-z])|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\l(?:angle|brack|paren)(?![A-Za-z])", "("),
        (r"\\r(?:angle|brack|paren)(?![A-Za-z])", ")"),
        (r"\\l(?:brace|curly)(?![A-Za-z])", r"\\{"),
        (r"\\r(?:brace|curly)(?![A-Za-z])", r"\\}"),
        (r"\\[lr]?vert(?![A-Za-z])", "|"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        (r"(?<![A-Za-z\\])(?:infinity|inf|infty)(?![A-Za-z])", r"\\infty "),
        (r"\+\s*\\infty", r"\\infty"),
        (r"(?<![A-Za-z\\])(pi|sqrt)(?![A-Za-z])", r"\\\1 "),
        (rf"(?<![A-Za-z\\])({_FUNCTIONS})(?![A-Za-z])", r"\\\1 "),
        (r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", "*"),
        (r"\s+", " "),
    ]
]
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


@lru_cache(maxsize=4096)
def normalise(answer: str) -> str:
    """One spelling of an answer; empty if nothing but signs of layout was there."""
    if len(answer) > MAX_LENGTH:
        return " ".join(answer.split())
    text = _unwrap_layout(_ascii(answer).strip())
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    if depth(text) <= MAX_DEPTH:
        text = _brace_arguments(text)
    text = text.strip().lstrip("=: ")
    if not text.endswith("..."):
        text = text.rstrip(".,;: ")
    return text


def key(text: str) -> str:
    """A normal form without what never changes the meaning: spaces, `\\text`, braces around one character."""
    text = _TEXT.sub(r"\1", text)
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)  # "3 1/4" is not "31/4"


def plain(text: str) -> str:
    r"""The text with `\text{...}` opened."""
    return _TEXT.sub(r"\1", text).strip()


def depth(text: str) -> int:
    """How deep brackets nest."""
    level = deepest = 0
    for sign in text:
        if sign in "([{":
            level += 1
            deepest = max(deepest, level)
        elif sign in ")]}":
            level -= 1
    return deepest


def is_word(letters: str) -> bool:
    """Whether lower-case letters are a word, as against a product such as xy or abc (short, without vowels but a)."""
    return len(letters) > 3 or not (set(letters) <= set("abcd") or not set(letters) & set("aeiou"))


def _ascii(text: str) -> str:
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub(r"[₀₁₂₃₄₅₆₇₈₉]+", lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    return text if text.isascii() else "".join(map(_ascii_sign, text))


def _ascii_sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if unicodedata.decomposition(sign).startswith("<fraction>"):
        above, _, below = unicodedata.normalize("NFKC", sign).partition("⁄")
        return rf"\frac{{{above}}}{{{below}}}" if below else sign
    return unicodedata.normalize("NFKC", sign)


def _unwrap_layout(text: str) -> str:
    """Open boxes and Markdown emphasis, drop mathematics delimiters, keep a dollar that stands for money."""
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # backslashes escaped once too often
    text = re.sub(r"^(?:\*\*|__|`)+|(?:\*\*|__|`)+$", "", text).strip()
    while (box := re.match(r"\\f?box(?:ed)?\s*\{", text)) and closing(text, box.end() - 1) == len(text) - 1:
        text = text[box.end() : -1].strip()
    text = re.sub(r"(?<!\\)\\[()\[\]]", " ", text)
    dollars = len(re.findall(r"(?<!\\)\$", text))
    return re.sub(r"(?<!\\)\$", r"\\$" if dollars % 2 else "", text).strip()


def _brace_arguments(text: str) -> str:
    r"""`\frac12`, `\frac 34`, `\frac9{19}`, `\sqrt3`, `\sqrt(3)` with every argument in braces."""
    out: list[str] = []
    at = 0
    for command in re.finditer(r"\\(frac|binom|sqrt)(?![A-Za-z])", text):
        if command.start() < at:
            continue
        out += [text[at : command.start()], command[0]]
        at = command.end()
        if root := re.match(r"\s*\[[^\[\]]*\]", text[at:]):
            out.append(root[0].strip())
            at += root.end()
        for _ in range(_COMMAND_ARGUMENTS[command[1]]):
            argument, at = _argument(text, at, parentheses=command[1] == "sqrt")
            out.append("{" + _brace_arguments(argument).strip() + "}")
    return "".join(out) + text[at:]


def _argument(text: str, at: int, *, parentheses: bool) -> tuple[str, int]:
    """The argument that starts at `at`, and where it ends."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at == len(text):
        return "", at
    if text[at] == "{" or (parentheses and text[at] == "("):
        end = closing(text, at)
        return (text[at + 1 : end], end + 1) if end > 0 else (text[at + 1 :], len(text))
    if token := re.match(r"\\[A-Za-z]+", text[at:]):
        return token[0], at + token.end()
    if parentheses and (number := re.match(r"\d+", text[at:])):
        return number[0], at + number.end()  # who writes \sqrt13 means the root of 13
    return text[at], at + 1


def closing(text: str, at: int) -> int:
    """Where the bracket opened at `at` closes; -1 if it does not."""
    level = 0
    for i in range(at, len(text)):
        if text[i] in "([{":
            level += 1
        elif text[i] in ")]}":
            level -= 1
            if level == 0:
                return i
    return -1
