"""Markdown tables from cells, and the separate tables of one sheet.

The VERSIONs of `markdown`, `delimited` and `pdf` together cover this module.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import TypeAlias

from rag_core.parsing.blocks import Block, paragraph
from rag_core.parsing.table_heads import find_head, join_signs


class CoveredBy(Enum):
    """The position of the merged cell that covers this one."""

    LEFT = "left"
    ABOVE = "above"


Cell: TypeAlias = str | CoveredBy

# Longer texts are not repeated, so that a cell cannot grow a document without bound by spanning many others
_MAX_REPEATED_CHARS = 200
# One empty column is a spacer within a table; two separate tables that are next to each other
_MIN_GAP_COLUMNS = 2


def table(rows: Iterable[Sequence[Cell]]) -> Block:
    """A table below its titles. Its header joins the levels of the head.

    A merged cell's text is repeated in each cell that it covers, so that every row can be read alone. A cell that fills
    its row alone is not repeated within the row.
    """
    return plain_table(_resolve_merged_cells(rows))


def plain_table(rows: Iterable[Sequence[str]]) -> Block:
    """A table without merged cells. Empty rows and columns are dropped."""
    filled_rows = [row for row in rows if any(row)]
    width = max(map(len, filled_rows), default=0)
    columns = [column for column in range(width) if any(len(row) > column and row[column] for row in filled_rows)]
    cells = [[row[column] if column < len(row) else "" for column in columns] for row in filled_rows]
    if not cells:
        return Block("")
    headed = find_head(join_signs(cells))
    titles = [paragraph(title).text for title in headed.titles]
    return Block("\n\n".join([*titles, format_rows(headed.header, headed.rows)]))


def format_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([_format_row(header), _format_row(["---"] * len(header)), *map(_format_row, rows)])


def find_tables(rows: Iterable[Sequence[Cell]]) -> list[list[list[str]]]:
    """The filled areas of a sheet, separated by empty rows or two empty columns, from the top and the left."""
    return list(_split_areas(_resolve_merged_cells(rows)))


def join_cells(rows: Iterable[Sequence[Cell]]) -> str:
    """The texts one after another, for a table within a cell."""
    return " ".join(cell for row in rows for cell in row if not isinstance(cell, CoveredBy) and cell)


def _resolve_merged_cells(rows: Iterable[Sequence[Cell]]) -> list[list[str]]:
    """The rows as texts of one line each, without the empty cells at the end of a row."""
    grid: list[list[str]] = []
    for row in rows:
        above = grid[-1] if grid else []
        fills_row_alone = sum(cell is not CoveredBy.LEFT and cell != "" for cell in row) == 1
        texts: list[str] = []
        for column, cell in enumerate(row):
            if cell is CoveredBy.LEFT:
                texts.append("" if fills_row_alone or not texts else _repeat(texts[-1]))
            elif cell is CoveredBy.ABOVE:
                texts.append(_repeat(above[column]) if column < len(above) else "")
            else:
                texts.append(" ".join(cell.split()))
        while texts and not texts[-1]:
            texts.pop()
        grid.append(texts)
    return grid


def _repeat(text: str) -> str:
    return text if len(text) <= _MAX_REPEATED_CHARS else ""


def _format_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _split_areas(rows: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    for is_filled, group in groupby(rows, key=any):
        if not is_filled:
            continue
        band = list(group)
        filled = sorted({column for row in band for column, cell in enumerate(row) if cell})
        spans, start = [], filled[0]
        for column, next_column in zip(filled, [*filled[1:], filled[-1] + _MIN_GAP_COLUMNS + 1], strict=True):
            if next_column - column > _MIN_GAP_COLUMNS:
                spans.append((start, column + 1))
                start = next_column
        for start, end in spans:
            area = [row[start:end] for row in band]
            yield from [area] if len(spans) == 1 else _split_areas(area)
