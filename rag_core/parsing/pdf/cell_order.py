"""Rows of tables that a program wrote cell by cell, put into the order of their lines.

A cell of several lines comes before the next cell of its row, which begins higher. A change of the results needs a new
`layout.VERSION`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rag_core.parsing.pdf.lines import Line, merge_rows
from rag_core.parsing.table_heads import is_figure

_MAX_HEIGHT = 4.5  # of a row, in sizes of the letters: running text in columns is higher
_SAME_LINE = 0.7  # in sizes of the letters: lines of a cell that is centred are between those of its neighbours
_MIN_STEP = 0.3  # in sizes of the letters, from a line to the next
_MAX_NEAR = 5.0  # in sizes of the letters, from a head to the row with figures below it, after a label


def order_rows(lines: Sequence[Line]) -> Iterator[Line]:
    """Yields the lines of a page. Those of rows with figures, and of the heads above such, are ordered by height."""
    end = 0
    for first, last in _find_rows(lines):
        if _is_in_table(lines, first, last):
            yield from lines[end:first]
            yield from _order_by_height(lines[first : last + 1])
            end = last + 1
    yield from lines[end:]


def _find_rows(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Yields the first and last line of each row in which a cell begins above the end of the one before it."""
    first, last = 0, -1
    for index in range(1, len(lines)):
        line, above = lines[index], lines[index - 1]
        if line.baseline < above.baseline + _MIN_STEP * line.size or line.left <= above.left:
            continue
        begin = index
        while begin > 0 and lines[begin - 1].baseline <= line.baseline + _SAME_LINE * line.size:
            begin -= 1
        bottom = min(part.baseline for part in lines[begin:index])
        end = index
        while (
            end + 1 < len(lines)
            and bottom - _MIN_STEP * line.size < lines[end + 1].baseline <= line.baseline + _SAME_LINE * line.size
        ):
            end += 1
        if begin <= last:
            last = max(last, end)
        else:
            if last > first:
                yield first, last
            first, last = begin, end
    if last > first:
        yield first, last


def _is_in_table(lines: Sequence[Line], first: int, last: int) -> bool:
    """True if the lines are no higher than a row, and have figures or are close above a line with figures."""
    size = lines[first].size
    heights = [line.baseline for line in lines[first : last + 1]]
    if max(heights) - min(heights) > _MAX_HEIGHT * size:
        return False
    below = [line for line in lines[last + 1 : last + 3] if 0 < min(heights) - line.baseline <= _MAX_NEAR * size]
    return any(_has_figures(line) for line in (*lines[first : last + 1], *below))


def _has_figures(line: Line) -> bool:
    return any(is_figure(part.text) for part in line.parts)


def _order_by_height(lines: Sequence[Line]) -> Iterator[Line]:
    parts = sorted((part for line in lines for part in _split_cells(line)), key=lambda part: -part.baseline)
    row: list[Line] = []
    for part in parts:
        is_beside = all(part.left >= other.right or part.right <= other.left for other in row)
        if row and (row[0].baseline - part.baseline > _SAME_LINE * part.size or not is_beside):
            yield from _merge_level(row)
            row = []
        row.append(part)
    yield from _merge_level(row)


def _split_cells(line: Line) -> Iterator[Line]:
    for cell in line.narrow_cells or line.parts:
        yield replace(line, text=cell.text, left=cell.left, right=cell.right, cells=(), narrow_cells=())


def _merge_level(row: Sequence[Line]) -> Iterator[Line]:
    """Yields one line of the cells, which can differ in height a little."""
    return merge_rows(replace(part, baseline=row[0].baseline) for part in sorted(row, key=lambda part: part.left))
