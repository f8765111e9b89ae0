"""Tables told from printed lines: parts with wide gaps between them that stand below each other."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

VERSION = 1

_FEWEST_ROWS = 2
_LONGEST_MEAN = 40  # letters of a cell: two columns of running text have more
_CLOSE = 1.6  # sizes of letters from a row to what it continues with
_MARKER = re.compile(r"\W{1,2}|(?:\d{1,3}|[a-zA-Z])[.)]")


class Cell(NamedTuple):
    text: str
    left: float
    right: float


class Row(NamedTuple):
    cells: tuple[Cell, ...]
    page: int
    baseline: float
    size: float


@dataclass(frozen=True, slots=True)
class Grid:
    """The rows from `start` to `end`, and what stands in their columns."""

    start: int
    end: int
    texts: tuple[tuple[str, ...], ...]


def grids(rows: Sequence[Row]) -> Iterator[Grid]:
    start = 0
    while start < len(rows):
        grown = _grown(rows, start) if len(rows[start].cells) > 1 else None
        if grown is not None and _is_table(grown):
            yield Grid(start, grown.end, tuple(tuple(line) for line in grown.lines))
            start = grown.end
        else:
            start += 1


class _Growing:
    """A table as far as it has been read: its columns' extents, and its lines of cells."""

    def __init__(self, first: Row, start: int) -> None:
        self.columns = [(cell.left, cell.right) for cell in first.cells]
        self.lines = [[cell.text for cell in first.cells]]
        self.end = start + 1
        self.full = 1

    def takes(self, row: Row, above: Row) -> bool:
        step = above.baseline - row.baseline
        if row.page != above.page or step <= 0.3 * row.size:
            return False
        places = [self._place(cell) for cell in row.cells]
        if -1 in places or len(set(places)) < len(places):
            return False
        continues = len(places) == 1
        if continues and (places == [0] or step > _CLOSE * row.size):
            return False
        self._add(row, places, continues)
        return True

    def _place(self, cell: Cell) -> int:
        """The one column that it stands in; -1 if it reaches over several, or stands in none."""
        over = [number for number, (left, right) in enumerate(self.columns) if cell.left < right and cell.right > left]
        return over[0] if len(over) == 1 else -1

    def _add(self, row: Row, places: Sequence[int], continues: bool) -> None:
        for place, cell in zip(places, row.cells, strict=True):
            left, right = self.columns[place]
            self.columns[place] = (min(left, cell.left), max(right, cell.right))
        if continues:
            self.lines[-1][places[0]] += f" {row.cells[0].text}"
        else:
            found = dict(zip(places, (cell.text for cell in row.cells), strict=True))
            self.lines.append([found.get(number, "") for number in range(len(self.columns))])
            self.full += 1
        self.end += 1


def _grown(rows: Sequence[Row], start: int) -> _Growing:
    grid = _Growing(rows[start], start)
    while grid.end < len(rows) and grid.takes(rows[grid.end], rows[grid.end - 1]):
        pass
    return grid


def _is_table(grid: _Growing) -> bool:
    texts = [text for line in grid.lines for text in line if text]
    is_list = all(_MARKER.fullmatch(line[0]) for line in grid.lines if line[0])
    return grid.full >= _FEWEST_ROWS and sum(map(len, texts)) <= _LONGEST_MEAN * len(texts) and not is_list
