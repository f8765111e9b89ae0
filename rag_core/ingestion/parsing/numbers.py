"""Numbers as a spreadsheet shows them."""

import re

_LONG = re.compile(r"-?\d+\.\d{12,}(?:[eE][-+]?\d+)?")


def shown(text: str) -> str:
    """Without the digits that binary fractions leave behind: 4.4 for 4.4000000000000004."""
    return number(float(text)) if _LONG.fullmatch(text) else text


def number(value: float) -> str:
    """15 digits, as many as a spreadsheet keeps; whole numbers without a fraction."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
