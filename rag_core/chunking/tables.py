"""The rows of a text's Markdown tables, including tables in quotations."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_QUOTE = r"(?:>[ \t]*+)*+"
_ROW = re.compile(rf"^[ \t]*+({_QUOTE}(?:\|[^\n]*\S|\|))", re.MULTILINE)
_CELLS = re.compile(rf"{_QUOTE}(\|[^\n]*)")
RULE = re.compile(r"\|[\s|:-]+")
"""The row below the header of a table, without quotation marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`header` is the first row of its table, empty for that row itself."""

    start: int
    end: int
    header: str


def table_rows(text: str) -> list[Row]:
    """The rows of all tables, in text order."""
    rows: list[Row] = []
    for match in _ROW.finditer(text):
        start, end = match.span(1)
        continues = bool(rows) and text.count("\n", rows[-1].end, start) == 1
        header = (rows[-1].header or table_row(text[rows[-1].start : rows[-1].end])) if continues else ""
        rows.append(Row(start=start, end=end, header=header))
    return rows


def table_row(line: str) -> str:
    """The table row on that line, without quotation marks; empty if there is none."""
    row = _CELLS.match(line)
    return row[1] if row else ""


def row_at(rows: Sequence[Row], offset: int) -> Row | None:
    """The row that contains the character at that offset."""
    begun = bisect_right(rows, offset, key=lambda row: row.start)
    return rows[begun - 1] if begun and offset < rows[begun - 1].end else None
