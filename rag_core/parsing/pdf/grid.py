"""Tables found in printed lines: rows whose wide gaps are below each other, and the heads above them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_core.parsing.pdf.columns import Row, join_signs
from rag_core.parsing.pdf.grid_heads import MAX_HEADS
from rag_core.parsing.pdf.grid_table import MAX_LABELS, GridTable, has_figures
from rag_core.parsing.table_heads import count_levels, join_levels

VERSION = 3

_MAX_NOTES = 8  # lines between a table and its rest on the next page


@dataclass(frozen=True, slots=True)
class Grid:
    """The table in the rows from `start` to `end`, half open. `texts` holds its cells, row by row.

    The first row of `texts` is the header, with all levels of the head. `page_starts` holds, for each further page, the
    index in `texts` of its first row. A repeated header is left out.
    """

    start: int
    end: int
    texts: tuple[tuple[str, ...], ...]
    page_starts: tuple[int, ...] = ()


def find_grids(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yields the tables in order. A table that continues at the top of the next page is one.

    If notes separate it from its rest, that is a table with the same header.
    """
    rows = [join_signs(row) for row in rows]
    previous: GridTable | None = None
    start = end = 0
    while start < len(rows):
        table = _find_table(rows, start, end)
        if not table.is_complete:
            start += 1
            continue
        if previous and _is_rest(rows, previous, table):
            table.prepend_head(previous)
        while following := _find_continuation(rows, table):
            table.append(following)
        yield _build_grid(table)
        previous, start, end = table, table.end, table.end


def _is_rest(rows: Sequence[Row], previous: GridTable, table: GridTable) -> bool:
    notes = rows[previous.end : table.start]
    are_notes = all(len(row.cells) == 1 and row.page < table.page for row in notes)
    return 0 < len(notes) <= _MAX_NOTES and are_notes and table.begins_with_figures and previous.is_continued_by(table)


def _build_grid(table: GridTable) -> Grid:
    levels = count_levels(table.texts)
    texts = (join_levels(table.texts[:levels]), *table.texts[levels:])
    page_starts = tuple(max(row - levels + 1, 1) for row in table.page_starts)
    return Grid(table.start, table.end, tuple(map(tuple, texts)), page_starts)


def _find_table(rows: Sequence[Row], start: int, free: int) -> GridTable:
    """The table whose first row with several cells is at `start`. Its head can begin above, from the row `free` on."""
    if len(rows[start].cells) == 1:
        return GridTable(rows[start], start)
    lead = range(start, min(start + MAX_HEADS + 1, len(rows)))
    first_figures = next((index for index in lead if has_figures(rows[index])), start)
    if first_figures > start:
        below = _grow_table(rows, first_figures)
        below.add_heads(rows, free)
        if below.start <= start and below.is_complete:
            return below
    table = _grow_table(rows, start)
    table.add_heads(rows, free)
    return table


def _grow_table(rows: Sequence[Row], start: int) -> GridTable:
    table = GridTable(rows[start], start)
    while table.end < len(rows) and (table.add(rows) or table.add_labels(rows)):
        pass
    return table


def _find_continuation(rows: Sequence[Row], table: GridTable) -> GridTable | None:
    """The rest of the table at the top of the next page, below at most a few labels."""
    for labels in range(MAX_LABELS + 1):
        start = table.end + labels
        are_labels = all(len(row.cells) == 1 and row.page > table.last_page for row in rows[table.end : start])
        if start >= len(rows) or not are_labels:
            return None
        following = _find_table(rows, start, table.end)
        if table.is_continued_by(following):
            following.prepend_labels(rows, table.end)
            return following
    return None
