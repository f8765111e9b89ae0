"""Markers such as `[1]`: what they look like in the wild, and what they name."""

import re
from collections.abc import Collection, Iterator
from unicodedata import normalize

OPENING, CLOSING = "[［【〔〖〚⟦❲⁅﹇︻︹﹝", "]］】〕〗〛⟧❳⁆﹈︼︺﹞"  # noqa: RUF001
LONGEST = 300
"""Code points of a marker."""

_OPEN, _CLOSE = f"[{re.escape(OPENING)}]", f"[{re.escape(CLOSING)}]"
_DIGITS = r"\d¹²³⁰⁴-⁹₀-₉①-⑳"
_NUMBER = rf"[\^＾]?[{_DIGITS}]++"  # noqa: RUF001
_SEPARATORS = r"-,;/&‐‑‒–—−－~～，；、､"  # noqa: RUF001
_SOURCE = rf"(?:[:：][{_DIGITS}]++)?+(?:†[^{re.escape(OPENING + CLOSING)}\n]*+)?+"  # noqa: RUF001
_NUMBERS = rf"{_NUMBER}{_SOURCE}(?:(?:\s?[{_SEPARATORS}]\s?|\s){_NUMBER}{_SOURCE})*+"
_LISTED = rf"{_DIGITS}{_SEPARATORS}\s\^＾:："  # noqa: RUF001

MARKER = re.compile(rf"{_OPEN}(?:{_NUMBERS}|{_OPEN}{_NUMBERS}{_CLOSE}){_CLOSE}")
MARKER_OPENING = re.compile(rf"{_OPEN}{{1,2}}[{_LISTED}]*+(?:†[^{re.escape(OPENING + CLOSING)}\n]*+)?+{_CLOSE}?\Z")
"""What may become a marker."""

MARKER_OVERLONG = re.compile(rf"{_OPEN}(?=[{_LISTED}]{{{LONGEST - 1}}})")
"""The bracket before a list of numbers without end."""

MARKER_CUT = re.compile(rf"{_OPEN}{{1,2}}(?=[\^＾]?[{_DIGITS}])[{_LISTED}]*+\Z")  # noqa: RUF001
"""One that a text breaks off in."""

CODE = re.compile(r"(?P<run>`++)[^`\n]*+(?:(?!(?P=run)(?!`))`++[^`\n]*+)*+(?P=run)(?!`)")
"""Within a line."""

_STRAY = re.compile(rf"(?P<kept>\\[\\`]|{CODE.pattern})|`++")
_RANGE = re.compile(r"(\d+)(?:\s?[-‐‒–—−~]\s?\^?(\d+))?")  # noqa: RUF001
_SUFFIX = re.compile(r"†.*|:\d+")
_ROUND = str.maketrans(OPENING + CLOSING, "(" * len(OPENING) + ")" * len(CLOSING))


def numbers(marker: str, known: Collection[int]) -> list[int]:
    """Those of the `known` ones that a marker names, each once, in its order; `3-5` names what lies between, too."""
    return list(dict.fromkeys(_named(marker, known)))


def neutralised(text: str) -> str:
    """Of equal length, and without markers: their brackets become parentheses."""
    return MARKER.sub(lambda found: found[0].translate(_ROUND), text)


def closed(text: str) -> str:
    """Of equal length, and without backticks that close nothing, which become apostrophes: behind it another one would
    make code of what lies between."""
    return _STRAY.sub(lambda found: found["kept"] or "'" * len(found[0]), text)


def _named(marker: str, known: Collection[int]) -> Iterator[int]:
    for found in _RANGE.finditer(_SUFFIX.sub("", normalize("NFKC", marker))):
        first = int(found[1])
        last = int(found[2] or first)
        yield from (n for n in sorted(known) if first <= n <= last)
