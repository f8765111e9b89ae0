"""The tables of reStructuredText, drawn with signs. The VERSION of `rst` covers this module."""

import re
from collections.abc import Sequence

SIMPLE_BORDER = re.compile(r"=+(?:[ \t]+=+)+[ \t]*")
GRID_BORDER = re.compile(r"\+(?:[-=]+\+)+[ \t]*")
_SPAN_LINE = re.compile(r"-+(?:[ \t]+-+)*[ \t]*")
_PARTIAL_BORDER = re.compile(r"\+?[-=]{3,}\+|\+[-=]{3,}")


def find_simple_table_end(lines: Sequence[str], start: int) -> int:
    """The index after the border that ends a simple table: the first one below its top with a blank line after it."""
    for index in range(start + 2, len(lines)):
        is_last = index + 1 == len(lines) or not lines[index + 1].strip()
        if is_last and SIMPLE_BORDER.fullmatch(lines[index]):
            return index + 1
    return len(lines)


def parse_simple_table(lines: Sequence[str]) -> list[list[str]]:
    """The rows of a table whose columns are below runs of `=`. A line with an empty first cell continues its row."""
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    rows: list[list[str]] = []
    for line in lines[1:]:
        if SIMPLE_BORDER.fullmatch(line) or _SPAN_LINE.fullmatch(line) or not line.strip():
            continue
        cells = _split_columns(line, starts)
        if rows and not cells[0]:
            rows[-1] = _join_cells(rows[-1], cells)
        else:
            rows.append(cells)
    return rows


def parse_grid_table(lines: Sequence[str]) -> list[list[str]]:
    """The rows of a table with lines around its cells. A cell over several columns is in the first of them."""
    edges = sorted({match.start() for line in lines for match in re.finditer(r"\+", line) if _is_border(line)})
    rows: list[list[str]] = []
    row = [""] * max(len(edges) - 1, 1)
    for line in lines:
        if _is_border(line):
            rows.append(row)
            row = [""] * len(row)
            continue
        text = _PARTIAL_BORDER.sub(lambda match: "|" + " " * (len(match[0]) - 2) + "|", line).ljust(edges[-1] + 1)
        starts = [edge for edge in edges[:-1] if text[edge] == "|"]
        ends = [*starts[1:], edges[-1]]
        cells = {edges.index(start): text[start + 1 : end].strip() for start, end in zip(starts, ends, strict=True)}
        row = _join_cells(row, [cells.get(column, "") for column in range(len(row))])
    return [*rows, row]


def _is_border(line: str) -> bool:
    return GRID_BORDER.fullmatch(line) is not None


def _split_columns(line: str, starts: Sequence[int]) -> list[str]:
    """The cells of a line. A text that crosses the start of a column is in the column before."""
    begins = [start for start in starts if start == 0 or not line[start - 1 : start].strip()]
    ends = [*begins[1:], len(line)]
    cells = {start: line[start:end].strip() for start, end in zip(begins, ends, strict=True)}
    return [cells.get(start, "") for start in starts]


def _join_cells(upper: Sequence[str], lower: Sequence[str]) -> list[str]:
    return [f"{above} {below}".strip() for above, below in zip(upper, lower, strict=True)]
