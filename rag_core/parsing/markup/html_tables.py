"""Tables of HTML with merged cells or signs in columns of their own, written again with one header row.

The converter leaves the cells empty that a merged cell covers, and takes the first row as the header. The VERSION of
`html` covers this module.
"""

import re

from html_to_markdown import ConversionResult
from html_to_markdown._html_to_markdown import TableGrid

from rag_core.parsing.table_heads import has_sign
from rag_core.parsing.tables import Cell, CoveredBy, table

_MAX_MERGED_CELLS = 10_000
_NEEDS_REWRITING = re.compile(r"<t[dh][^<>]*(?:col|row)span|<t[dh][^<>]*>(?:<[^<>]*>|\s)*[^\w\s<>&]{1,2}\s*<", re.I)


def needs_rewriting(html: str) -> bool:
    """True if a cell of a table is merged, or holds nothing but a sign."""
    return _NEEDS_REWRITING.search(html) is not None


def rewrite_tables(page: ConversionResult) -> str:
    """The Markdown of the page, with the tables that need it written again."""
    markdown = page.content or ""
    parts: list[str] = []
    end = 0
    for converted in page.tables:
        cells = converted.grid.cells
        has_merged = any(cell.row_span > 1 or cell.col_span > 1 for cell in cells)
        if not has_merged and not has_sign([cell.content for cell in cells]):
            continue
        _, bar, rows = converted.markdown.partition("|")
        source = bar + rows.rstrip("\n")
        start = markdown.find(source, end)
        if start >= 0:
            parts += [markdown[end:start], table(_place_cells(converted.grid)).text]
            end = start + len(source)
    return "".join([*parts, markdown[end:]])


def _place_cells(grid: TableGrid) -> list[list[Cell]]:
    """The rows of cells. Each cell takes the first column that no merged cell of a row above covers."""
    rows: list[dict[int, Cell]] = [{} for _ in range(grid.rows)]
    free_columns = [0] * grid.rows
    for cell in grid.cells:
        row, column = rows[cell.row], free_columns[cell.row]
        while column in row:
            column += 1
        free_columns[cell.row] = column + 1
        row[column] = cell.content.replace(r"\|", "|")
        height, width = min(cell.row_span, grid.rows - cell.row), min(cell.col_span, grid.cols)
        if height * width > _MAX_MERGED_CELLS:
            continue
        row |= {column + right: CoveredBy.LEFT for right in range(1, width)}
        for below in rows[cell.row + 1 : cell.row + height]:
            below |= {column + right: CoveredBy.ABOVE for right in range(width)}
    return [[row.get(column, "") for column in range(max(row, default=-1) + 1)] for row in rows]
