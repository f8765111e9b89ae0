"""Tables told from printed lines: parts with wide gaps between them that stand below each other."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

VERSION = 2

_FEWEST_ROWS = 2
_LONGEST_MEAN = 40  # letters of a cell: two columns of running text have more
_CLOSE = 1.6  # sizes of letters from a row to what it continues with
_CLOSER = 0.85  # of the step from row to row: the lines of one cell
_LATEST = 8  # steps that tell what is usual
_STRAY = 0.5  # sizes of letters by which a column may begin elsewhere on the next page
_MARKER = re.compile(r"\W{1,2}|(?:\d{1,3}|[a-zA-Z])[.)]")
_NUMBER = re.compile(r"\W*\d[\d\W]*")


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
    """The rows from `start` to `end`, and what stands in their columns. `turns` are the lines of `texts` with which
    further pages begin, where its header is not told again.
    """

    start: int
    end: int
    texts: tuple[tuple[str, ...], ...]
    turns: tuple[int, ...] = ()


def grids(rows: Sequence[Row]) -> Iterator[Grid]:
    start = 0
    while start < len(rows):
        grown = _grown(rows, start)
        if not _is_table(grown):
            start += 1
            continue
        while grown.end < len(rows) and grown.goes_on_with(following := _grown(rows, grown.end)):
            grown.append(following)
        yield Grid(start, grown.end, tuple(tuple(line) for line in grown.lines), tuple(grown.turns))
        start = grown.end


class _Growing:
    """A table as far as it has been read: its columns' extents, its lines of cells, its steps from row to row."""

    def __init__(self, first: Row, start: int) -> None:
        self.columns = [(cell.left, cell.right) for cell in first.cells]
        self.lines = [[cell.text for cell in first.cells]]
        self.turns = list[int]()
        self.end = start + 1
        self.full = 1
        self._page, self._size, self._steps = first.page, first.size, list[float]()

    def takes(self, row: Row, above: Row) -> bool:
        step = above.baseline - row.baseline
        if row.page != above.page or step <= 0.3 * row.size:
            return False
        places = [self._place(cell) for cell in row.cells]
        if -1 in places or len(set(places)) < len(places):
            return False
        if len(places) == 1 and (places == [0] or step > max(_CLOSE * row.size, self._step(0.0) / _CLOSER)):
            return False
        self._add(row, places, step)
        return True

    def goes_on_with(self, following: "_Growing") -> bool:
        """At the top of the next page, in the same columns."""
        columns = zip(self.columns, following.columns, strict=False)
        return (
            following._page == self._page + 1 + len(self.turns)
            and len(following.columns) == len(self.columns) > 1
            and all(_is_below(column, other, _STRAY * self._size) for column, other in columns)
        )

    def append(self, following: "_Growing") -> None:
        repeats = following.lines[0] == self.lines[0]
        self.turns.append(len(self.lines))
        self.lines += following.lines[repeats:]
        self.end = following.end

    def _place(self, cell: Cell) -> int:
        """The one column that it stands in; -1 if it reaches over several, or stands in none."""
        over = [number for number, (left, right) in enumerate(self.columns) if cell.left < right and cell.right > left]
        return over[0] if len(over) == 1 else -1

    def _add(self, row: Row, places: Sequence[int], step: float) -> None:
        for place, cell in zip(places, row.cells, strict=True):
            left, right = self.columns[place]
            self.columns[place] = (min(left, cell.left), max(right, cell.right))
        if len(places) == 1 and self._continues(places[0], row.cells[0].text, step):
            self.lines[-1][places[0]] += f" {row.cells[0].text}"
        else:
            found = dict(zip(places, (cell.text for cell in row.cells), strict=True))
            self.lines.append([found.get(number, "") for number in range(len(self.columns))])
        if len(places) > 1:
            self._steps.append(step)
            self.full += 1
        self.end += 1

    def _continues(self, place: int, text: str, step: float) -> bool:
        """The lines of a cell stand closer than rows do, or part a sentence; numbers are whole."""
        above = self.lines[-1][place]
        if not above or _NUMBER.fullmatch(above) or _NUMBER.fullmatch(text):
            return False
        return step < _CLOSER * self._step(inf) or text[:1].islower()

    def _step(self, unknown: float) -> float:
        return median(self._steps[-_LATEST:] or [unknown])


def _grown(rows: Sequence[Row], start: int) -> _Growing:
    grid = _Growing(rows[start], start)
    while len(grid.columns) > 1 and grid.end < len(rows) and grid.takes(rows[grid.end], rows[grid.end - 1]):
        pass
    return grid


def _is_below(column: tuple[float, float], other: tuple[float, float], stray: float) -> bool:
    """They are flush left or right, or centred on each other."""
    left, right = other[0] - column[0], other[1] - column[1]
    return min(abs(left), abs(right), abs(left + right) / 2) <= stray


def _is_table(grid: _Growing) -> bool:
    texts = [text for line in grid.lines for text in line if text]
    is_list = all(_MARKER.fullmatch(line[0]) for line in grid.lines if line[0])
    return grid.full >= _FEWEST_ROWS and sum(map(len, texts)) <= _LONGEST_MEAN * len(texts) and not is_list
