"""Tables found in printed lines: rows whose wide gaps are below each other, and the heads above them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from rag_core.parsing.pdf.columns import Cell, Column, Row, join_signs, place_heads, place_narrow_heads
from rag_core.parsing.table_heads import count_levels, is_figure, is_value, join_levels

VERSION = 3

_MIN_ROWS = 2
_MAX_MEAN_CHARS = 40  # of a cell: in two columns of running text the mean is higher
_MAX_CONTINUATION_STEP = 1.6  # in sizes of the letters, from a row to a line that continues one of its cells
_SAME_CELL_STEP = 0.85  # of the usual step between rows: lines that are closer are in one cell
_RECENT_STEPS = 8  # the number of steps whose median is the usual one
_MAX_COLUMN_SHIFT = 0.5  # in sizes of the letters, from a column to the same one on the next page
_MIN_SHARE = 0.75  # of the length of a cell that reaches over two columns: then it is in the larger one
_MAX_HEADS = 4
_MAX_HEAD_CHARS = 60
_MAX_HEAD_STEP = 2.6  # in sizes of the letters, from a head or a section's label to the row below it
_MAX_LABELS = 2  # lines between two rows
_MAX_LABEL_CHARS = 80
_LIST_MARKER = re.compile(r"\W{1,2}|(?:\d{1,3}|[a-zA-Z])[.)]")
_NUMBER = re.compile(r"\W*\d[\d\W]*")


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
    """Yields the tables in order. A table that continues at the top of the next page is one."""
    rows = [join_signs(row) for row in rows]
    start = end = 0
    while start < len(rows):
        table = _find_table(rows, start, end)
        if not table.is_complete:
            start += 1
            continue
        while following := _find_continuation(rows, table):
            table.append(following)
        yield table.grid()
        start = end = table.end


def _find_table(rows: Sequence[Row], start: int, free: int) -> "_Table":
    """The table whose first row with several cells is at `start`. Its head can begin above, from the row `free` on."""
    lead = range(start, min(start + _MAX_HEADS + 1, len(rows)))
    first_figures = next((index for index in lead if _has_figures(rows[index])), start)
    if len(rows[start].cells) > 1 and first_figures > start:
        below = _grow_table(rows, first_figures)
        below.add_heads(rows, free)
        if below.start <= start and below.is_complete:
            return below
    table = _grow_table(rows, start)
    table.add_heads(rows, free)
    return table


def _grow_table(rows: Sequence[Row], start: int) -> "_Table":
    table = _Table(rows[start], start)
    while len(table.columns) > 1 and table.end < len(rows) and (table.add(rows) or table.add_labels(rows)):
        pass
    return table


def _find_continuation(rows: Sequence[Row], table: "_Table") -> "_Table | None":
    """The rest of the table at the top of the next page, below at most a few labels."""
    for labels in range(_MAX_LABELS + 1):
        start = table.end + labels
        if start >= len(rows) or any(len(row.cells) > 1 for row in rows[table.end : start]):
            return None
        following = _find_table(rows, start, table.end)
        if table.is_continued_by(following):
            following.prepend_labels(rows, table.end)
            return following
    return None


def _has_figures(row: Row) -> bool:
    return any(is_figure(cell.text) for cell in row.cells[1:])


class _Table:
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

    def grid(self) -> Grid:
        levels = count_levels(self.texts)
        texts = (join_levels(self.texts[:levels]), *self.texts[levels:])
        page_starts = tuple(max(row - levels + 1, 1) for row in self.page_starts)
        return Grid(self.start, self.end, tuple(map(tuple, texts)), page_starts)

    def add(self, rows: Sequence[Row]) -> bool:
        """Adds the next row and returns True, or returns False if its cells do not fit the columns."""
        row, above = rows[self.end], rows[self.end - 1]
        step = above.baseline - row.baseline
        if row.page != above.page or step <= 0.3 * row.size:
            return False
        columns = self._place(row)
        if not columns:
            return False
        is_single, text = len(columns) == 1, row.cells[0].text
        continues_label = text[:1].islower() and step <= _MAX_CONTINUATION_STEP * row.size and bool(self.texts[-1][0])
        if is_single and columns == [0] and not continues_label:
            return False
        if is_single and step > max(_MAX_CONTINUATION_STEP * row.size, self._usual_step(0.0) / _SAME_CELL_STEP):
            return False
        for column, cell in zip(columns, row.cells, strict=True):
            self.columns[column] = self.columns[column].with_cell(cell)
        if is_single and self._continues_cell(columns[0], text, step):
            self.texts[-1][columns[0]] += f" {text}"
        else:
            texts = dict(zip(columns, (cell.text for cell in row.cells), strict=True))
            self.texts.append([texts.get(column, "") for column in range(len(self.columns))])
        if not is_single:
            self._steps.append(step)
            self.row_count += 1
        self.end += 1
        return True

    def add_labels(self, rows: Sequence[Row]) -> bool:
        """Adds the labels of a section, and the row with figures below them; returns False if there are none."""
        if rows[self.end].page != rows[self.end - 1].page:
            return False
        for end in range(self.end + 1, min(self.end + _MAX_LABELS + 1, len(rows))):
            labels, following = rows[self.end : end], rows[end]
            if not all(self._is_label(label, row) for label, row in zip(labels, rows[self.end + 1 :], strict=False)):
                return False
            if len(following.cells) > 1 and _has_figures(following) and self._place(following):
                for label in labels:
                    self.texts.append([label.cells[0].text, *[""] * (len(self.columns) - 1)])
                self.end = end
                is_added = self.add(rows)
                if is_added and self.texts[-1][0][:1].islower():
                    wrapped = self.texts.pop(-2)[0]
                    self.texts[-1][0] = f"{wrapped} {self.texts[-1][0]}"
                return is_added
        return False

    def _is_label(self, row: Row, below: Row) -> bool:
        if len(row.cells) > 1 or row.page != below.page or len(row.cells[0].text) > _MAX_LABEL_CHARS:
            return False
        step = row.baseline - below.baseline
        is_near = 0.3 * row.size < step <= _MAX_HEAD_STEP * row.size
        return is_near and row.cells[0].left < self.columns[0].right and not row.cells[0].text.endswith(".")

    def _place(self, row: Row) -> list[int]:
        """The column of each cell; empty if they do not fit. A cell of figures between columns gets a new one."""
        columns = [self._find_columns(cell) for cell in row.cells]
        matched = [column[0] for column in columns if len(column) == 1]
        if any(len(column) > 1 for column in columns) or len(set(matched)) < len(matched):
            return []
        if len(matched) == len(columns):
            return matched
        if len(matched) < 2 or not _has_figures(row) or not self._has_figures:
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
        for labels in range(_MAX_LABELS + 1):
            start = self.start - labels
            if start <= free or not all(
                self._is_label(rows[index], rows[index + 1]) for index in range(start, self.start)
            ):
                return
            head_start, heads = self._find_heads(rows, start, free)
            if heads:
                self.prepend_labels(rows, start)
                self.texts, self.start = heads + self.texts, head_start
                self.row_count += len(heads)
                return

    def _find_heads(self, rows: Sequence[Row], end: int, free: int) -> tuple[int, list[list[str]]]:
        """The first row of the head that ends above the row `end`, and its levels."""
        heads: list[list[str]] = []
        columns = list(self.columns)
        start = end
        while start > free and len(heads) < _MAX_HEADS and len(columns) > 1:
            row = rows[start - 1]
            cells, spans = self._place_head(row, rows[start], columns)
            if not spans:
                break
            texts = [""] * len(columns)
            for cell, (first, last) in zip(cells, spans, strict=True):
                texts[first : last + 1] = [cell.text] * (last + 1 - first)
                if first == last:
                    columns[first] = columns[first].with_cell(cell)
            is_level = any(first < last for first, last in spans)
            if heads and not is_level and not (texts[0] and heads[0][0]):
                heads[0] = [" ".join(filter(None, pair)) for pair in zip(texts, heads[0], strict=True)]
            else:
                heads.insert(0, texts)
            start -= 1
        return start, heads

    def _place_head(
        self, row: Row, below: Row, columns: Sequence[Column]
    ) -> tuple[Sequence[Cell], list[tuple[int, int]]]:
        """The cells of the row and the columns that each spans; without columns if the row is not a head."""
        step = row.baseline - below.baseline
        is_near = row.page == below.page and 0.3 * row.size < step <= _MAX_HEAD_STEP * row.size
        is_short = all(len(cell.text) <= _MAX_HEAD_CHARS for cell in row.cells)
        if (
            not is_near
            or not is_short
            or any(is_value(cell.text) for cell in row.cells[1:])
            or len(row.cells) > len(columns)
        ):
            return (), []
        if self._has_figures and (spans := place_narrow_heads(row, columns)):
            return row.narrow_cells, spans
        spans = place_heads(row.cells, columns, row.size, step)
        is_alone = len(spans) == 1 and spans[0][0] == 0
        is_level = any(first < last for first, last in spans)
        is_head = not is_alone and (self._has_figures or (is_level and self.row_count > 1))
        return row.cells, spans if is_head else []

    def prepend_labels(self, rows: Sequence[Row], start: int) -> None:
        """Adds the labels of a section above the first row, from the row `start` on."""
        labels = [[row.cells[0].text, *[""] * (len(self.columns) - 1)] for row in rows[start : self.start]]
        self.texts, self.start = labels + self.texts, start

    def is_continued_by(self, following: "_Table") -> bool:
        """True if `following` is on the next page, has the same columns, and has the same head or none."""
        columns = zip(self.columns, following.columns, strict=False)
        has_own_head = _is_head(following.texts[0]) and not _is_head(self.texts[-1])
        return (
            following.page == self.page + 1 + len(self.page_starts)
            and len(following.columns) == len(self.columns) > 1
            and all(column.is_aligned(other, _MAX_COLUMN_SHIFT * self._size) for column, other in columns)
            and (not has_own_head or self._repeated_levels(following) > 0)
        )

    def append(self, following: "_Table") -> None:
        self.page_starts.append(len(self.texts))
        self.texts += following.texts[self._repeated_levels(following) :]
        self.end = following.end

    def _repeated_levels(self, following: "_Table") -> int:
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
