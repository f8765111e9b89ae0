"""The heads above the rows of a printed table.

A change of the results needs a new `grid.VERSION`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rag_core.parsing.pdf.columns import Cell, Column, Row, place_heads, place_narrow_heads
from rag_core.parsing.table_heads import is_value

MAX_HEADS = 4
MAX_HEAD_STEP = 2.6
"""In sizes of the letters, from a head or the label of a section to the row below it."""

_MAX_HEAD_CHARS = 60


class Heads(NamedTuple):
    """The levels of a head from the row `start` on. A text that spans columns is repeated in each of them."""

    start: int
    levels: list[list[str]]


class _PlacedHead(NamedTuple):
    cells: Sequence[Cell]
    spans: Sequence[tuple[int, int]]

    @property
    def is_level(self) -> bool:
        """True if a text spans columns."""
        return any(first < last for first, last in self.spans)

    def texts(self, width: int) -> list[str]:
        texts = [""] * width
        for cell, (first, last) in zip(self.cells, self.spans, strict=True):
            texts[first : last + 1] = [cell.text] * (last + 1 - first)
        return texts


def find_heads(rows: Sequence[Row], end: int, free: int, columns: Sequence[Column], only_levels: bool) -> Heads:
    """Finds the head that ends above the row `end`; it has no level if there is none. `free` is its first row at most.

    `only_levels`: each row must have a text that spans columns, as for a table without figures.
    """
    levels: list[list[str]] = []
    extents = list(columns)
    start = end
    while start > free and len(levels) < MAX_HEADS and len(extents) > 1:
        head = _place_head(rows[start - 1], rows[start], extents)
        if not head.spans or (only_levels and not head.is_level):
            break
        texts = head.texts(len(extents))
        if levels and not head.is_level and not (texts[0] and levels[0][0]):
            levels[0] = [" ".join(filter(None, pair)) for pair in zip(texts, levels[0], strict=True)]
        else:
            levels.insert(0, texts)
        for cell, (first, last) in zip(head.cells, head.spans, strict=True):
            extents[first] = extents[first].with_cell(cell) if first == last else extents[first]
        start -= 1
    return Heads(start, levels)


def is_close_above(row: Row, below: Row) -> bool:
    """True if the row can be a head or a label of the row below it."""
    return row.page == below.page and row.is_above(below) and row.baseline - below.baseline <= MAX_HEAD_STEP * row.size


def _place_head(row: Row, below: Row, columns: Sequence[Column]) -> _PlacedHead:
    """The cells of the row with the columns that each spans; without any if the row is not a head."""
    is_short = all(len(cell.text) <= _MAX_HEAD_CHARS for cell in row.cells)
    has_values = any(is_value(cell.text) for cell in row.cells[1:])
    if not is_close_above(row, below) or not is_short or has_values or len(row.cells) > len(columns):
        return _PlacedHead((), ())
    if spans := place_narrow_heads(row, columns):
        return _PlacedHead(row.narrow_cells, spans)
    spans = place_heads(row.cells, columns, row.size, row.baseline - below.baseline)
    is_alone = len(spans) == 1 and spans[0][0] == 0
    return _PlacedHead((), ()) if is_alone or not spans else _PlacedHead(row.cells, spans)
