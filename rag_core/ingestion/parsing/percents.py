"""The cells of a workbook that Excel shows as percents: calamine tells values without their formats."""

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from rag_core.ingestion.parsing.office import Part

Percents: TypeAlias = Mapping[tuple[int, int], int]
"""Decimals by row and column, which count from 0."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BUILT_IN = {"9": 0, "10": 2}
_CELL = re.compile(rb"<(?:\w+:)?c\s([^<>]*)>")
_ATTRIBUTE = re.compile(rb"""\b([rst])\s*=\s*["']\s*(\w+)\s*["']""")
_PLACE = re.compile(rb"([A-Za-z]{1,3})(\d{1,7})")
# Quoted text, escaped characters, conditions and colours, spaces as wide as a character, and fills
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|[_*].')
_DECIMALS = re.compile(r"\.([0#?]+)")


def percent_styles(workbook: Part) -> dict[bytes, int]:
    """Decimals by the number of the style; a cell names its style so."""
    return {str(style).encode(): decimals for part in workbook.related("styles") for style, decimals in _styles(part)}


def percent_cells(sheet: bytes, styles: Mapping[bytes, int]) -> dict[tuple[int, int], int]:
    """As Percents, of the cells that hold a number."""
    return dict(_cells(sheet, styles)) if styles else {}


def percent(number: str, decimals: int) -> str:
    """`12.5%` for 0.125; what is no number stays."""
    try:
        return f"{float(number) * 100:.{decimals}f}%"
    except ValueError:
        return number


def column_of(letters: bytes) -> int:
    """A is 1, XFD is 16384."""
    place = 0
    for letter in letters.upper():
        place = place * 26 + letter - ord("A") + 1
    return place


def _styles(part: Part) -> Iterator[tuple[int, int]]:
    codes = {each.get("numFmtId", ""): each.get("formatCode", "") for each in part.root.iter(f"{_SHEET}numFmt")}
    known = _BUILT_IN | {id: decimals for id, code in codes.items() if (decimals := _decimals(code)) >= 0}
    for style, each in enumerate(part.root.iterfind(f"{_SHEET}cellXfs/{_SHEET}xf")):
        if (format_ := each.get("numFmtId", "")) in known:
            yield style, known[format_]


def _decimals(code: str) -> int:
    """-1 if it is no format of percents."""
    shown = _LITERAL.sub("", code).partition(";")[0]
    found = _DECIMALS.search(shown)
    return (len(found[1]) if found else 0) if "%" in shown else -1


def _cells(sheet: bytes, styles: Mapping[bytes, int]) -> Iterator[tuple[tuple[int, int], int]]:
    for cell in _CELL.finditer(sheet):
        said = dict(_ATTRIBUTE.findall(cell[1]))
        place = _PLACE.fullmatch(said.get(b"r", b""))
        if place and said.get(b"s", b"") in styles and said.get(b"t", b"n") == b"n":
            yield (int(place[2]) - 1, column_of(place[1]) - 1), styles[said[b"s"]]
