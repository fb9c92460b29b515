r"""What stands around a number: a currency, a unit, a per cent sign, the base of its digits.

An absent unit or base agrees with any; two different known ones do not, whatever the numbers. An unknown word behind a
number ("18 integers") is no unit and agrees with any.
"""

import re
from dataclasses import dataclass

from marti_ext.verifiers.math.normalise import is_word, plain

_NAMES = {
    "mm": "mm millimeter millimetre", "cm": "cm centimeter centimetre", "dm": "dm decimeter decimetre",
    "m": "m meter metre", "km": "km kilometer kilometre", "inch": "in inch inches", "foot": "ft foot feet",
    "yard": "yd yard", "mile": "mi mile", "second": "s sec second", "minute": "min minute", "hour": "h hr hour",
    "day": "day", "week": "week wk", "month": "month", "year": "yr year", "mg": "mg milligram", "g": "g gram gm",
    "kg": "kg kilogram", "pound": "lb lbs pound", "ounce": "oz ounce", "ton": "ton tonne",
    "ml": "ml milliliter millilitre",
    "liter": "l liter litre", "gallon": "gal gallon", "dollar": "$ dollar usd", "cent": "cent ¢", "euro": "€ euro eur",
    "sterling": "£ gbp", "degree": "° degree deg", "radian": "rad radian", "celsius": "°c celsius", "kelvin": "kelvin",
    "fahrenheit": "°f fahrenheit", "mile/hour": "mph", "km/hour": "kmh kmph kph", "newton": "n newton",
    "joule": "j joule", "kj": "kj kilojoule", "watt": "w watt", "kw": "kw kilowatt", "pascal": "pa pascal",
    "kpa": "kpa kilopascal", "volt": "v volt", "ampere": "ampere amp", "ohm": "ohm", "hertz": "hz hertz",
    "mol": "mol mole", "am": "am a.m", "pm": "pm p.m", "acre": "acre", "hectare": "ha hectare",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_UNITS |= {f"{name}s": unit for name, unit in _UNITS.items() if len(name) > 2 and name.isalpha()}
_BASES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = r"[A-Za-z°¢€£.]+(?:\^\{?-?\d\}?)?"
_TEXT = r"\\text\{[^{}\d]*\}(?:\s*\^\s*\{?-?\d\}?)?"
_IN_TEXT = re.compile(rf"\s*{_TEXT}(?:\s*[/*]?\s*{_TEXT})*$")
_IN_WORDS = re.compile(rf"(?<=[\d}})!°])(\s*)({_WORD}(?:\s*/\s*{_WORD}|\s+{_WORD})*)$")
_DEGREES = re.compile(r"(?<=[\d})a-z])\s*°\s*(?:\\text\{\s*([CF])\s*\}|([CF]))?$")
_CURRENCY = re.compile(r"(-?)\s*(\\\$|€|£|\\text\{\s*\\?\$\s*\})\s*(?=[-.\d\\])")
_BASE = re.compile(r"(-?\d[\dA-Fa-f]*)\s*_\s*(?:\{\s*(?:\\text\{\s*)?(\d+|[a-z]+)\s*\}?\s*\}|(\d))$")
_BASE_WORDS = re.compile(r"(-?\d[\dA-Fa-f]*)\s*,?\s*\(?(?:\\text\{\s*)?(?:in )?base\s*[- ]?\s*(\d+|[a-z]+)\s*\}?\)?$")


@dataclass(frozen=True, slots=True)
class Dressed:
    """A bare expression and what it was dressed in; empty strings where nothing was."""

    text: str
    unit: str = ""
    percent: bool = False
    base: str = ""


def undress(text: str) -> Dressed:
    """Split a normal form into its bare expression and its unit, per cent sign and base."""
    for pattern in (_BASE, _BASE_WORDS):
        if match := pattern.match(text):
            name = next(group for group in match.groups()[1:] if group)
            base = str(_BASES.index(name) + 2) if name in _BASES else name
            if base.isdigit():
                return Dressed(match[1].lstrip("0") or "0", base=base)
    unit = ""
    if money := _CURRENCY.match(text):
        text = money[1] + text[money.end() :]
        unit = canonical_unit(money[2].replace("\\text", ""))
    if re.search(r"\\\$$", text):
        text, unit = text[:-2].rstrip(), "dollar"
    if text.endswith("%"):
        return Dressed(text[:-1].rstrip(), unit, percent=True)
    text, behind = _split_unit(text)
    return Dressed(text, behind or unit)


def canonical_unit(text: str) -> str:
    """One name for a unit ("square centimeters", "cm^2" -> "cm^2"); empty if any word of it is unknown."""
    words = re.findall(r"[A-Za-z°¢€£$.]+|\^\s*\{?-?\d|/", plain(text).lower())
    out: list[str] = []
    power = ""
    for word in words:
        word = word.strip(".") if word not in _UNITS else word
        if word in ("square", "sq", "cubic", "cu"):
            power = "^2" if word.startswith("sq") else "^3"
        elif word in ("/", "per"):
            out.append("/")
        elif word in ("squared", "cubed") or word.startswith("^"):
            out.append({"squared": "^2", "cubed": "^3"}.get(word, "^" + word[-1]))
        elif word in _UNITS:
            out.append(" " + _UNITS[word] + power)
            power = ""
        else:
            return ""
    return "".join(out).strip().replace("/ ", "/")


def _split_unit(text: str) -> tuple[str, str]:
    """The text without the unit behind it, and that unit's name ("" for none or an unknown one)."""
    if match := _DEGREES.search(text):
        if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text):
            return text, ""  # the degrees belong to the angle of a function
        return text[: match.start()], canonical_unit("°" + (match[1] or match[2] or ""))
    if (match := _IN_TEXT.search(text)) and match.start() > 0:
        return text[: match.start()].rstrip(), canonical_unit(match[0])
    if not (match := _IN_WORDS.search(text)):
        return text, ""
    unit = canonical_unit(match[2])
    names = re.findall(r"[A-Za-z]+", match[2])
    if unit and (match[1] or len(names[0] if names else "") > 1):
        return text[: match.start()], unit
    if match[1] and names and all(len(name) > 2 and is_word(name.lower()) for name in names):
        return text[: match.start()], ""  # "3 apples"
    return text, ""
