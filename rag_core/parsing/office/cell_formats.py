"""Number formats that change how a cell reads. calamine returns values without their formats, so they are read here."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from rag_core.parsing.office.numbers import is_percent, is_zero_padded
from rag_core.parsing.office.packages import Part

FormatCodes: TypeAlias = Mapping[tuple[int, int], str]
"""Format codes of percentages and of numbers with leading zeros, by row and column, which count from 0."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BUILT_IN_CODES = {"9": "0%", "10": "0.00%"}
_CELL = re.compile(rb"<(?:\w+:)?c\s([^<>]*)>")
_ATTRIBUTE = re.compile(rb"""\b([rst])\s*=\s*["']\s*(\w+)\s*["']""")
_CELL_REFERENCE = re.compile(rb"([A-Za-z]{1,3})(\d{1,7})")


def read_style_codes(workbook: Part) -> dict[bytes, str]:
    """The codes of percentages and of numbers with leading zeros, by the style index that cells refer to."""
    codes: dict[bytes, str] = {}
    for part in workbook.find_parts("styles"):
        custom = {
            format.get("numFmtId", ""): format.get("formatCode", "") for format in part.root.iter(f"{_SHEET}numFmt")
        }
        by_id = _BUILT_IN_CODES | {id: code for id, code in custom.items() if is_percent(code) or is_zero_padded(code)}
        for style, format in enumerate(part.root.iterfind(f"{_SHEET}cellXfs/{_SHEET}xf")):
            if (id := format.get("numFmtId", "")) in by_id:
                codes[str(style).encode()] = by_id[id]
    return codes


def read_cell_codes(sheet: bytes, style_codes: Mapping[bytes, str]) -> dict[tuple[int, int], str]:
    """The FormatCodes of the cells that hold a number."""
    codes: dict[tuple[int, int], str] = {}
    for cell in _CELL.finditer(sheet):
        attributes = dict(_ATTRIBUTE.findall(cell[1]))
        reference = _CELL_REFERENCE.fullmatch(attributes.get(b"r", b""))
        style = attributes.get(b"s", b"")
        if reference and style in style_codes and attributes.get(b"t", b"n") == b"n":
            codes[int(reference[2]) - 1, column_number(reference[1]) - 1] = style_codes[style]
    return codes


def column_number(letters: bytes) -> int:
    """1 for A, 16384 for XFD."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - ord("A") + 1
    return number
