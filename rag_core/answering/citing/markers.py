"""Markers such as `[1]`: the forms in which models write them, and the passages that they name."""

import re
from collections.abc import Collection
from unicodedata import normalize

OPENING_BRACKETS, CLOSING_BRACKETS = "[［【〔〖〚⟦❲⁅﹇︻︹﹝", "]］】〕〗〛⟧❳⁆﹈︼︺﹞"  # noqa: RUF001
MAX_MARKER_LENGTH = 300
"""Code points."""

_OPEN, _CLOSE = f"[{re.escape(OPENING_BRACKETS)}]", f"[{re.escape(CLOSING_BRACKETS)}]"
_NO_BRACKET = rf"[^{re.escape(OPENING_BRACKETS + CLOSING_BRACKETS)}`\x00-\x1f]"
_DIGITS = r"\d¹²³⁰⁴-⁹₀-₉①-⑳"
_NUMBER = rf"[\^＾]?[{_DIGITS}]++"  # noqa: RUF001
_SEPARATORS = r"-,;/&‐‑‒–—−－~～，；、､"  # noqa: RUF001
_SOURCE = rf"(?:[:：][{_DIGITS}]++)?+(?:†{_NO_BRACKET}*+)?+"  # noqa: RUF001
_NUMBERS = rf"{_NUMBER}{_SOURCE}(?:(?:\s?[{_SEPARATORS}]\s?|\s){_NUMBER}{_SOURCE})*+"
_LIST_CHARACTERS = rf"{_DIGITS}{_SEPARATORS}\s\^＾:："  # noqa: RUF001

MARKER = re.compile(rf"{_OPEN}(?:{_NUMBERS}|{_OPEN}{_NUMBERS}{_CLOSE}){_CLOSE}")
OVERLONG_MARKER = re.compile(rf"{_OPEN}(?=[{_LIST_CHARACTERS}]{{{MAX_MARKER_LENGTH - 1}}})")
"""The bracket before a list of numbers that is too long for a marker."""

TRUNCATED_MARKER = re.compile(rf"{_OPEN}{{1,2}}(?=[\^＾]?[{_DIGITS}])[{_LIST_CHARACTERS}]*+\Z")  # noqa: RUF001
"""A marker that the end of the text cuts off."""

_INLINE_CODE = r"(?P<run>`++)[^`\n]*+(?:(?!(?P=run)(?!`))`++[^`\n]*+)*+(?P=run)(?!`)"
_BACKTICKS = re.compile(rf"(?P<valid>\\[\\`]|{_INLINE_CODE})|`++")
_RANGE = re.compile(r"(\d+)(?:\s?[-‐‒–—−~]\s?\^?(\d+))?")  # noqa: RUF001
_SUFFIX = re.compile(r"†.*|:\d+")
_TO_PARENTHESES = str.maketrans(
    OPENING_BRACKETS + CLOSING_BRACKETS, "(" * len(OPENING_BRACKETS) + ")" * len(CLOSING_BRACKETS)
)


def marker_numbers(marker: str, valid: Collection[int]) -> list[int]:
    """The valid numbers that a marker names, each once, in its order; `3-5` names the numbers between, too."""
    ranges = _RANGE.finditer(_SUFFIX.sub("", normalize("NFKC", marker)))
    bounds = ((int(match[1]), int(match[2] or match[1])) for match in ranges)
    return list(dict.fromkeys(n for first, last in bounds for n in sorted(valid) if first <= n <= last))


def neutralize_markers(text: str) -> str:
    """Turns the brackets of markers into parentheses; the text keeps its length."""
    return MARKER.sub(lambda marker: marker[0].translate(_TO_PARENTHESES), text)


def replace_stray_backticks(text: str) -> str:
    """Turns backticks that close nothing into apostrophes; the text keeps its length.

    A later backtick would otherwise turn the text between into code.
    """
    return _BACKTICKS.sub(lambda match: match["valid"] or "'" * len(match[0]), text)
