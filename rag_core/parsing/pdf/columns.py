"""The columns of a printed table, and the columns that a head spans.

A change of the results needs a new `grid.VERSION`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import NamedTuple

from rag_core.parsing.table_heads import is_trailing_sign, join_row_signs

_MIN_STEP = 0.3  # in sizes of the letters, from a row to the next
_MAX_COLUMNS = 40  # of a table whose heads are placed
_MAX_SPAN = 16  # columns below one head
_EDGE_COST = 4.0  # in sizes of the letters: a head is rather centred above several columns than at one end of them
_MAX_LINE_STEP = 1.3  # in sizes of the letters, from a line to the next in the same cell
_MAX_DISTANCE = 2.0  # in sizes of the letters, from a head to the columns that it spans
_SIGN_START = re.compile(r"(?<=[\d)%\u2013\u2014-])\s+(?=\W?[^\s\w(.-](?:\s|[\d(.]|$))")


class Cell(NamedTuple):
    text: str
    left: float
    right: float


class Row(NamedTuple):
    """A printed line. `narrow_cells` are the parts between gaps that are only wider than a space."""

    cells: tuple[Cell, ...]
    page: int
    baseline: float
    size: float
    narrow_cells: tuple[Cell, ...] = ()

    def is_above(self, row: "Row") -> bool:
        """True if the row is clearly lower on its page."""
        return self.baseline - row.baseline > _MIN_STEP * row.size


class Column(NamedTuple):
    left: float
    right: float

    def overlap(self, cell: Cell) -> float:
        """The length that the cell has in the column; 0 or less if it is outside."""
        return min(cell.right, self.right) - max(cell.left, self.left)

    def with_cell(self, cell: Cell) -> "Column":
        return Column(min(self.left, cell.left), max(self.right, cell.right))

    def is_aligned(self, other: "Column", max_shift: float) -> bool:
        """True if both columns have the same left end, right end or centre."""
        left, right = other.left - self.left, other.right - self.right
        return min(abs(left), abs(right), abs(left + right) / 2) <= max_shift


def join_signs(row: Row) -> Row:
    """The row with currency signs, percent signs and closing brackets in the cells of their numbers."""
    if len(row.cells) < 2:
        return row
    cells = [part for cell in row.cells for part in _split_before_signs(cell)]
    texts = join_row_signs([cell.text for cell in cells])
    joined: list[Cell] = []
    left = inf
    for cell, text in zip(cells, texts, strict=True):
        if text:
            joined.append(Cell(text, min(left, cell.left), cell.right))
            left = inf
        elif is_trailing_sign(cell.text) and joined:
            joined[-1] = joined[-1]._replace(right=cell.right)
        else:
            left = cell.left
    return row._replace(cells=tuple(joined))


def _split_before_signs(cell: Cell) -> Iterator[Cell]:
    """Yields the parts of a cell such as `12 $ 34`: the sign of the next number can be as near to the one before."""
    width = (cell.right - cell.left) / max(len(cell.text), 1)
    starts = [0, *(gap.end() for gap in _SIGN_START.finditer(cell.text))]
    for start, end in pairwise([*starts, len(cell.text)]):
        text = cell.text[start:end].rstrip()
        yield Cell(text, cell.left + width * start, cell.left + width * (start + len(text)))


def place_heads(heads: Sequence[Cell], columns: Sequence[Column], size: float, step: float) -> list[tuple[int, int]]:
    """The first and last column that each head spans; empty if the heads do not fit above the columns.

    Heads that leave no column without a head are preferred, then heads above one column each. It is the other way round
    for words whose `step` to the line below is that of lines in a cell: they are its first lines. Numbers at the right
    ends of their columns leave room on the left: heads can be centred above the columns with it.
    """
    if len(columns) > _MAX_COLUMNS:
        return []
    attempts = [(inf, _MAX_SPAN, size), (0.0, 1, size), (size, _MAX_SPAN, inf)]
    if step <= _MAX_LINE_STEP * size and not any(map(str.isdigit, "".join(head.text for head in heads))):
        attempts[:2] = reversed(attempts[:2])
    for skip_cost, max_span, max_misfit in attempts:
        cost, spans = min(
            _place_heads(heads, extents, size, skip_cost, max_span, max_misfit)
            for extents in (columns, _with_room(columns))
        )
        if cost < inf:
            return spans
    return []


def place_narrow_heads(row: Row, columns: Sequence[Column]) -> list[tuple[int, int]]:
    """The column of each narrow cell, as a span; empty if they do not fit above all columns except the first."""
    if len(row.narrow_cells) not in (len(columns) - 1, len(columns)) or len(columns) > _MAX_COLUMNS:
        return []
    return min(
        _place_heads(row.narrow_cells, extents, row.size, inf, 1, row.size)
        for extents in (columns, _with_room(columns))
    )[1]


def _with_room(columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, except for the first, as wide as their right ends are apart."""
    if len(columns) < 3:
        return columns
    width = median(right.right - left.right for left, right in pairwise(columns[1:]))
    return [columns[0], *(Column(min(column.left, column.right - width), column.right) for column in columns[1:])]


def _place_heads(
    heads: Sequence[Cell],
    columns: Sequence[Column],
    size: float,
    skip_cost: float,
    max_span: int,
    max_misfit: float,
) -> tuple[float, list[tuple[int, int]]]:
    """The spans with the smallest distances between the centre or the ends of a head and those of its columns.

    The first number is the sum of the distances and of `skip_cost` for each column without a head. The first column,
    which holds labels, can be without one. The second part is empty if a distance would exceed `max_misfit`.
    """
    # the cost and the spans of the heads so far, by the number of columns that are left of the next head
    placed: list[tuple[float, list[tuple[int, int]]]] = [
        (skip_cost * max(left - 1, 0) if left > 1 else 0.0, []) for left in range(len(columns) + 1)
    ]
    for head in heads:
        following: list[tuple[float, list[tuple[int, int]]]] = [(inf, [])] * (len(columns) + 1)
        for last in range(len(columns)):
            cost, spans = following[last]
            choices = [(cost + skip_cost, spans)]
            for first in range(max(last - max_span + 1, 0), last + 1):
                cost, spans = placed[first]
                misfit = _misfit(head, columns, first, last, size)
                if misfit <= max_misfit:
                    choices.append((cost + misfit, [*spans, (first, last)]))
            following[last + 1] = min(choices)
        placed = following
    cost, spans = placed[-1]
    return (cost, spans) if cost < inf else (inf, [])


def _misfit(head: Cell, columns: Sequence[Column], first: int, last: int, size: float) -> float:
    left, right = columns[first].left, columns[last].right
    if head.right < left - _MAX_DISTANCE * size or head.left > right + _MAX_DISTANCE * size:
        return inf
    centre = abs(head.left + head.right - left - right) / 2
    edge = min(abs(head.left - left), abs(head.right - right)) + (_EDGE_COST * size if first < last else 0.0)
    before = max(0.0, columns[first - 1].right - head.left) if first else 0.0
    after = max(0.0, head.right - columns[last + 1].left) if last + 1 < len(columns) else 0.0
    return min(centre, edge) + before + after
