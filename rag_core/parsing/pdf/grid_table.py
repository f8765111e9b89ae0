"""A printed table that grows row by row, and joins its parts on several pages.

A change of the results needs a new `grid.VERSION`.
"""

import re
from collections.abc import Sequence
from math import inf
from statistics import median

from rag_core.parsing.pdf.columns import Cell, Column, Row
from rag_core.parsing.pdf.grid_heads import find_heads, is_close_above
from rag_core.parsing.table_heads import count_levels, is_figure

_MIN_ROWS = 2
_MAX_MEAN_CHARS = 40  # of a cell: in two columns of running text the mean is higher
_MAX_CONTINUATION_STEP = 1.6  # in sizes of the letters, from a row to a line that continues one of its cells
_SAME_CELL_STEP = 0.85  # of the usual step between rows: lines that are closer are in one cell
_RECENT_STEPS = 8  # the number of steps whose median is the usual one
_MAX_COLUMN_SHIFT = 0.5  # in sizes of the letters, from a column to the same one on the next page
_MIN_SHARE = 0.75  # of the length of a cell that reaches over two columns: then it is in the larger one
_MAX_LABEL_CHARS = 80
_LIST_MARKER = re.compile(r"\W{1,2}|(?:\d{1,3}|[a-zA-Z])[.)]")
_NUMBER = re.compile(r"\W*\d[\d\W]*")


MAX_LABELS = 2
"""Lines between two rows, such as the names of sections."""


def has_figures(row: Row) -> bool:
    return any(is_figure(cell.text) for cell in row.cells[1:])


class GridTable:
    """A table as far as it has been read. `columns` holds the extents of its columns, `_steps` the distances of rows.

    `row_count` is the number of rows with more than one cell.
    """

    def __init__(self, first: Row, start: int) -> None:
        self.columns = [Column(cell.left, cell.right) for cell in first.cells]
        self.texts = [[cell.text for cell in first.cells]]
        self.page_starts = list[int]()
        self.start, self.end = start, start + 1
        self.row_count = 1
        self.page, self._size, self._steps = first.page, first.size, list[float]()

    @property
    def is_complete(self) -> bool:
        """True if it has enough rows, and is neither a list nor running text in columns."""
        texts = [text for row in self.texts for text in row if text]
        is_list = all(_LIST_MARKER.fullmatch(row[0]) for row in self.texts if row[0])
        is_short = sum(map(len, texts)) <= _MAX_MEAN_CHARS * len(texts)
        return self.row_count >= _MIN_ROWS and is_short and not is_list

    def add(self, rows: Sequence[Row]) -> bool:
        """Adds the next row and returns True, or returns False if its cells do not fit the columns."""
        row, above = rows[self.end], rows[self.end - 1]
        columns = self._place(row) if row.page == above.page and above.is_above(row) else []
        step = above.baseline - row.baseline
        if not columns or (len(columns) == 1 and not self._can_be_single(row, columns[0], step)):
            return False
        for column, cell in zip(columns, row.cells, strict=True):
            self.columns[column] = self.columns[column].with_cell(cell)
        self.end += 1
        if len(columns) == 1 and self._continues_cell(columns[0], row.cells[0].text, step):
            self.texts[-1][columns[0]] += f" {row.cells[0].text}"
            return True
        texts = dict(zip(columns, (cell.text for cell in row.cells), strict=True))
        self.texts.append([texts.get(column, "") for column in range(len(self.columns))])
        if len(columns) > 1:
            self._steps.append(step)
            self.row_count += 1
        return True

    def _can_be_single(self, row: Row, column: int, step: float) -> bool:
        """True if a line with one cell can be in the table: one in the first column only within the label above it."""
        if column == 0:
            is_within = row.cells[0].text[:1].islower() and self.texts[-1][0] != ""
            return is_within and step <= _MAX_CONTINUATION_STEP * row.size
        return step <= max(_MAX_CONTINUATION_STEP * row.size, self._usual_step(0.0) / _SAME_CELL_STEP)

    def add_labels(self, rows: Sequence[Row]) -> bool:
        """Adds the labels of a section, and the row with figures below them; returns False if there are none."""
        start = self.end
        if rows[start].page != rows[start - 1].page:
            return False
        for end in range(start + 1, min(start + MAX_LABELS + 1, len(rows))):
            if not self._is_label(rows[end - 1], rows[end]):
                return False
            if len(rows[end].cells) > 1 and has_figures(rows[end]) and self._place(rows[end]):
                self.texts += self._label_texts(rows[start:end])
                self.end = end
                is_added = self.add(rows)
                if is_added and self.texts[-1][0][:1].islower():  # the row goes on with the label
                    self.texts[-2:] = [[f"{self.texts[-2][0]} {self.texts[-1][0]}", *self.texts[-1][1:]]]
                return is_added
        return False

    def prepend_labels(self, rows: Sequence[Row], start: int) -> None:
        """Adds the labels of a section above the first row, from the row `start` on."""
        self.texts, self.start = self._label_texts(rows[start : self.start]) + self.texts, start

    def _label_texts(self, labels: Sequence[Row]) -> list[list[str]]:
        return [[label.cells[0].text, *[""] * (len(self.columns) - 1)] for label in labels]

    def _is_label(self, row: Row, below: Row) -> bool:
        """True for a line alone at the left, close above another row."""
        if len(row.cells) > 1 or not is_close_above(row, below):
            return False
        label = row.cells[0]
        return len(label.text) <= _MAX_LABEL_CHARS and label.left < self.columns[0].right and label.text[-1:] != "."

    def _place(self, row: Row) -> list[int]:
        """The column of each cell; empty if they do not fit. A cell of figures between columns gets a new one."""
        columns = [self._find_columns(cell) for cell in row.cells]
        matched = [column[0] for column in columns if len(column) == 1]
        if any(len(column) > 1 for column in columns) or len(set(matched)) < len(matched):
            return []
        if len(matched) == len(columns):
            return matched
        if len(matched) < 2 or not has_figures(row) or not self._has_figures:
            return []
        for cell, column in zip(row.cells, columns, strict=True):
            if not column:
                index = sum(other.left < cell.left for other in self.columns)
                self.columns.insert(index, Column(cell.left, cell.right))
                for texts in self.texts:
                    texts.insert(index, "")
        return self._place(row)

    def _find_columns(self, cell: Cell) -> list[int]:
        """The columns that the cell overlaps; only one if it has most of the cell."""
        overlaps = {
            index: overlap for index, column in enumerate(self.columns) if (overlap := column.overlap(cell)) > 0
        }
        largest = max(overlaps, key=overlaps.__getitem__, default=0)
        if len(overlaps) > 1 and overlaps[largest] >= _MIN_SHARE * sum(overlaps.values()):
            return [largest]
        return list(overlaps)

    @property
    def _has_figures(self) -> bool:
        return not all(map(_is_head, self.texts))

    def add_heads(self, rows: Sequence[Row], free: int) -> None:
        """Adds the rows above that are heads, from the row `free` on, and the labels between them and the table."""
        only_levels = not self._has_figures
        if only_levels and self.row_count < _MIN_ROWS:
            return
        for start in range(self.start, max(self.start - MAX_LABELS, free) - 1, -1):
            if start < self.start and not self._is_label(rows[start], rows[start + 1]):
                return
            heads = find_heads(rows, start, free, self.columns, only_levels)
            if heads.levels:
                self.prepend_labels(rows, start)
                self.texts, self.start = heads.levels + self.texts, heads.start
                self.row_count += len(heads.levels)
                return

    @property
    def last_page(self) -> int:
        return self.page + len(self.page_starts)

    @property
    def begins_with_figures(self) -> bool:
        return not _is_head(self.texts[0])

    def prepend_head(self, other: "GridTable") -> None:
        """Repeats the head of a table with the same columns."""
        self.texts = other.texts[: count_levels(other.texts)] + self.texts

    def is_continued_by(self, following: "GridTable") -> bool:
        """True if `following` is on the next page, has the same columns, and has the same head or none."""
        columns = zip(self.columns, following.columns, strict=False)
        has_own_head = _is_head(following.texts[0]) and not _is_head(self.texts[-1])
        return (
            following.page == self.last_page + 1
            and len(following.columns) == len(self.columns) > 1
            and all(column.is_aligned(other, _MAX_COLUMN_SHIFT * self._size) for column, other in columns)
            and (not has_own_head or self._count_repeated_levels(following) > 0)
        )

    def append(self, following: "GridTable") -> None:
        self.page_starts.append(len(self.texts))
        self.texts += following.texts[self._count_repeated_levels(following) :]
        self.end = following.end

    def _count_repeated_levels(self, following: "GridTable") -> int:
        """The number of rows of this table's head with which `following` begins."""
        levels = count_levels(self.texts)
        return levels if following.texts[:levels] == self.texts[:levels] else 0

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


def _is_head(texts: Sequence[str]) -> bool:
    return not any(map(is_figure, texts[1:]))
