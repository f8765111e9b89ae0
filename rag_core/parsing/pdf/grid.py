"""Tables found in printed lines: rows whose wide gaps are below each other."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

VERSION = 3

_MIN_ROWS = 2
_MAX_MEAN_CHARS = 40  # of a cell: in two columns of running text the mean is higher
_MAX_CONTINUATION_STEP = 1.6  # in sizes of the letters, from a row to a line that continues one of its cells
_SAME_CELL_STEP = 0.85  # of the usual step between rows: lines that are closer are in one cell
_RECENT_STEPS = 8  # the number of steps whose median is the usual one
_MAX_COLUMN_SHIFT = 0.5  # in sizes of the letters, from a column to the same one on the next page
_LIST_MARKER = re.compile(r"\W{1,2}|(?:\d{1,3}|[a-zA-Z])[.)]")
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


class _Column(NamedTuple):
    left: float
    right: float

    def overlaps(self, cell: Cell) -> bool:
        return cell.left < self.right and cell.right > self.left

    def with_cell(self, cell: Cell) -> "_Column":
        return _Column(min(self.left, cell.left), max(self.right, cell.right))

    def is_aligned(self, other: "_Column", max_shift: float) -> bool:
        """True if both columns have the same left end, right end or centre."""
        left, right = other.left - self.left, other.right - self.right
        return min(abs(left), abs(right), abs(left + right) / 2) <= max_shift


@dataclass(frozen=True, slots=True)
class Grid:
    """The table in the rows from `start` to `end`, half open. `texts` holds its cells, row by row.

    `page_starts` holds, for each further page, the index in `texts` of its first row. A repeated header is left out.
    """

    start: int
    end: int
    texts: tuple[tuple[str, ...], ...]
    page_starts: tuple[int, ...] = ()


def find_grids(rows: Sequence[Row]) -> Iterator[Grid]:
    """Yields the tables in order. A table that continues at the top of the next page is one."""
    start = 0
    while start < len(rows):
        table = _grow_table(rows, start)
        if not table.is_complete:
            start += 1
            continue
        while table.end < len(rows) and table.is_continued_by(following := _grow_table(rows, table.end)):
            table.append(following)
        yield Grid(start, table.end, tuple(map(tuple, table.texts)), tuple(table.page_starts))
        start = table.end


class _Table:
    """A table as far as it has been read. `columns` holds the extents of its columns, `_steps` the distances of rows.

    `row_count` is the number of rows with more than one cell.
    """

    def __init__(self, first: Row, start: int) -> None:
        self.columns = [_Column(cell.left, cell.right) for cell in first.cells]
        self.texts = [[cell.text for cell in first.cells]]
        self.page_starts = list[int]()
        self.end = start + 1
        self.row_count = 1
        self._page, self._size, self._steps = first.page, first.size, list[float]()

    @property
    def is_complete(self) -> bool:
        """True if it has enough rows, and is neither a list nor running text in columns."""
        texts = [text for row in self.texts for text in row if text]
        is_list = all(_LIST_MARKER.fullmatch(row[0]) for row in self.texts if row[0])
        is_short = sum(map(len, texts)) <= _MAX_MEAN_CHARS * len(texts)
        return self.row_count >= _MIN_ROWS and is_short and not is_list

    def add(self, row: Row, above: Row) -> bool:
        """Adds a row and returns True, or returns False if its cells do not fit the columns."""
        step = above.baseline - row.baseline
        if row.page != above.page or step <= 0.3 * row.size:
            return False
        overlaps = [[n for n, column in enumerate(self.columns) if column.overlaps(cell)] for cell in row.cells]
        columns = [column for overlap in overlaps for column in overlap]
        if any(len(overlap) != 1 for overlap in overlaps) or len(set(columns)) < len(columns):
            return False
        is_single = len(columns) == 1
        if is_single and columns == [0]:
            return False
        if is_single and step > max(_MAX_CONTINUATION_STEP * row.size, self._usual_step(0.0) / _SAME_CELL_STEP):
            return False
        for column, cell in zip(columns, row.cells, strict=True):
            self.columns[column] = self.columns[column].with_cell(cell)
        if is_single and self._continues_cell(columns[0], row.cells[0].text, step):
            self.texts[-1][columns[0]] += f" {row.cells[0].text}"
        else:
            texts = dict(zip(columns, (cell.text for cell in row.cells), strict=True))
            self.texts.append([texts.get(column, "") for column in range(len(self.columns))])
        if not is_single:
            self._steps.append(step)
            self.row_count += 1
        self.end += 1
        return True

    def is_continued_by(self, following: "_Table") -> bool:
        """True if `following` is on the next page and has the same columns."""
        columns = zip(self.columns, following.columns, strict=False)
        return (
            following._page == self._page + 1 + len(self.page_starts)
            and len(following.columns) == len(self.columns) > 1
            and all(column.is_aligned(other, _MAX_COLUMN_SHIFT * self._size) for column, other in columns)
        )

    def append(self, following: "_Table") -> None:
        repeats_header = following.texts[0] == self.texts[0]
        self.page_starts.append(len(self.texts))
        self.texts += following.texts[repeats_header:]
        self.end = following.end

    def _continues_cell(self, column: int, text: str, step: float) -> bool:
        """True if the text is one more line of the cell above it: it is closer than rows are, or within a sentence.

        A number does not continue on the next line.
        """
        above = self.texts[-1][column]
        if not above or _NUMBER.fullmatch(above) or _NUMBER.fullmatch(text):
            return False
        return step < _SAME_CELL_STEP * self._usual_step(inf) or text[:1].islower()

    def _usual_step(self, default: float) -> float:
        return median(self._steps[-_RECENT_STEPS:] or [default])


def _grow_table(rows: Sequence[Row], start: int) -> _Table:
    table = _Table(rows[start], start)
    while len(table.columns) > 1 and table.end < len(rows) and table.add(rows[table.end], rows[table.end - 1]):
        pass
    return table
