"""Numbers as a spreadsheet shows them."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache

_LONG = re.compile(r"-?\d+\.\d{12,}(?:[eE][-+]?\d+)?")
# Quoted text, escaped characters, conditions and colours, spaces as wide as a character, and fills
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|[_*].')
_DECIMALS = re.compile(r"\.([0#?]+)")
_ZEROS = re.compile("0{2,}")
_GENERAL = ("general", "standard")


def shown(text: str) -> str:
    """Without the digits that binary fractions leave behind: 4.4 for 4.4000000000000004."""
    return number(float(text)) if _LONG.fullmatch(text) else text


def number(value: float) -> str:
    """15 digits, as many as a spreadsheet keeps; whole numbers without a fraction."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"


def is_percent(code: str) -> bool:
    return "%" in _bare(code)


def is_padded(code: str) -> bool:
    """Whether it fills up whole numbers with zeros, as it does those of places or articles."""
    return _ZEROS.fullmatch(code.partition(";")[0]) is not None


def formatted(text: str, code: str, first_year: int = 1900) -> str:
    """As Excel shows a number in the format of that code: 12.5% for 0.125, 01230 for 1230, 2024-01-01 for the day
    45292. What is no number, or in another format, stays.
    """
    with suppress(ValueError, OverflowError):
        value = float(text)
        if is_percent(code):
            found = _DECIMALS.search(_bare(code))
            return f"{value * 100:.{len(found[1]) if found else 0}f}%"
        if is_padded(code) and value.is_integer():
            digits = len(code.partition(";")[0]) + (value < 0)
            return f"{int(value):0{digits}d}"
        if set("yd") & set(_bare(code)):
            return _moment(value, first_year)
    return shown(text)


@lru_cache(maxsize=256)
def _bare(code: str) -> str:
    """The format of positive numbers, without what it says verbatim."""
    bare = _LITERAL.sub("", code).partition(";")[0].lower()
    return "" if bare in _GENERAL else bare


def _moment(days: float, first_year: int) -> str:
    """Excel's days begin with 1, and it knows a 29th of February 1900."""
    zero = datetime(1904, 1, 1) if first_year == 1904 else datetime(1899, 12, 30)
    return (zero + timedelta(days=days)).isoformat(" ", "seconds").removesuffix(" 00:00:00")
