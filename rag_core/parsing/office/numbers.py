"""Numbers as a spreadsheet shows them."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache

_MANY_DECIMALS = re.compile(r"-?\d+\.\d{12,}(?:[eE][-+]?\d+)?")
# Quoted text, escaped characters, conditions and colours, spaces as wide as a character, and fills
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|[_*].')
_DECIMALS = re.compile(r"\.([0#?]+)")
_ZEROS = re.compile("0{2,}")
_GENERAL = ("general", "standard")


def format_number(value: float) -> str:
    """Rounds to 15 digits, as many as a spreadsheet keeps; a whole number has no fraction."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"


def is_percent(code: str) -> bool:
    return "%" in _positive_format(code)


def is_zero_padded(code: str) -> bool:
    """True if the format pads whole numbers with zeros, as for postal codes and article numbers: 00000."""
    return _ZEROS.fullmatch(code.partition(";")[0]) is not None


def apply_format(text: str, code: str, first_year: int = 1900) -> str:
    """Shows a number as Excel does in the format with this code.

    12.5% for 0.125, 01230 for 1230, 2024-01-01 for the day 45292. A number in another format loses only the digits that
    binary fractions add: 4.4 for 4.4000000000000004. Text that is not a number is returned unchanged.

    `first_year` is 1900 or 1904, the year in which the workbook's days begin.
    """
    with suppress(ValueError, OverflowError):
        value = float(text)
        if is_percent(code):
            decimals = _DECIMALS.search(_positive_format(code))
            return f"{value * 100:.{len(decimals[1]) if decimals else 0}f}%"
        if is_zero_padded(code) and value.is_integer():
            digits = len(code.partition(";")[0]) + (value < 0)
            return f"{int(value):0{digits}d}"
        if set("yd") & set(_positive_format(code)):
            # Excel's first day is number 1, and it counts a 29 February 1900 that did not exist
            day_zero = datetime(1904, 1, 1) if first_year == 1904 else datetime(1899, 12, 30)
            return (day_zero + timedelta(days=value)).isoformat(" ", "seconds").removesuffix(" 00:00:00")
    return format_number(float(text)) if _MANY_DECIMALS.fullmatch(text) else text


@lru_cache(maxsize=256)
def _positive_format(code: str) -> str:
    """The part of a format code that applies to positive numbers, without literal text; empty for General."""
    bare = _LITERAL.sub("", code).partition(";")[0].lower()
    return "" if bare in _GENERAL else bare
