"""The cells of a workbook whose format tells more than their value: calamine tells values without their formats."""

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from rag_core.parsing.office.numbers import is_padded, is_percent
from rag_core.parsing.office.packages import Part

Codes: TypeAlias = Mapping[tuple[int, int], str]
"""Formats of percents, and of numbers with leading zeros, by row and column, which count from 0."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BUILT_IN = {"9": "0%", "10": "0.00%"}
_CELL = re.compile(rb"<(?:\w+:)?c\s([^<>]*)>")
_ATTRIBUTE = re.compile(rb"""\b([rst])\s*=\s*["']\s*(\w+)\s*["']""")
_PLACE = re.compile(rb"([A-Za-z]{1,3})(\d{1,7})")


def styles(workbook: Part) -> dict[bytes, str]:
    """Codes by the number of the style; a cell names its style so."""
    return {str(style).encode(): code for part in workbook.related("styles") for style, code in _styles(part)}


def codes(sheet: bytes, known: Mapping[bytes, str]) -> dict[tuple[int, int], str]:
    """As Codes, of the cells that hold a number."""
    return dict(_cells(sheet, known)) if known else {}


def column_of(letters: bytes) -> int:
    """A is 1, XFD is 16384."""
    place = 0
    for letter in letters.upper():
        place = place * 26 + letter - ord("A") + 1
    return place


def _styles(part: Part) -> Iterator[tuple[int, str]]:
    own = {each.get("numFmtId", ""): each.get("formatCode", "") for each in part.root.iter(f"{_SHEET}numFmt")}
    known = _BUILT_IN | {id: code for id, code in own.items() if is_percent(code) or is_padded(code)}
    for style, each in enumerate(part.root.iterfind(f"{_SHEET}cellXfs/{_SHEET}xf")):
        if (format_ := each.get("numFmtId", "")) in known:
            yield style, known[format_]


def _cells(sheet: bytes, known: Mapping[bytes, str]) -> Iterator[tuple[tuple[int, int], str]]:
    for cell in _CELL.finditer(sheet):
        said = dict(_ATTRIBUTE.findall(cell[1]))
        place = _PLACE.fullmatch(said.get(b"r", b""))
        if place and said.get(b"s", b"") in known and said.get(b"t", b"n") == b"n":
            yield (int(place[2]) - 1, column_of(place[1]) - 1), known[said[b"s"]]
