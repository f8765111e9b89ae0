"""Cells to Markdown tables, and the tables that stand on one sheet."""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import TypeAlias

from rag_core.parsing.blocks import Block


class Covered(Enum):
    """A place that a merged cell reaches over, from the left or from above."""

    LEFT = "left"
    ABOVE = "above"


Cell: TypeAlias = str | Covered

# So that no cell can grow a document without bound by spanning
_LONGEST_REPEATED = 200
# One empty column is a spacer within a row; two part tables that stand side by side
_GAP = 2


def table(rows: Iterable[Sequence[Cell]]) -> Block:
    """Its first row is the header. A merged cell's text stands in each place that it covers, so that rows can be read
    alone; but once where it has its row for itself.
    """
    return plain_table(repeated(rows))


def plain_table(rows: Iterable[Sequence[str]]) -> Block:
    """Without merged cells."""
    texts = [row for row in rows if any(row)]
    width = max(map(len, texts), default=0)
    kept = [column for column in range(width) if any(len(row) > column and row[column] for row in texts)]
    lines = [[row[column] if column < len(row) else "" for column in kept] for row in texts]
    return Block("\n".join(_lines(lines)) if lines else "")


def regions(rows: Iterable[Sequence[Cell]]) -> list[list[list[str]]]:
    """The filled parts of a sheet, parted by empty rows, and by two empty columns, from the top and the left."""
    return list(_parted(repeated(rows)))


def repeated(rows: Iterable[Sequence[Cell]]) -> list[list[str]]:
    """Merged cells resolved, lines as one, what is empty at a row's end cut off."""
    grid: list[list[str]] = []
    for row in rows:
        above = grid[-1] if grid else []
        grid.append(_resolved(row, above))
    return grid


def flat(rows: Iterable[Sequence[Cell]]) -> str:
    """The texts one after another, for a table within a cell."""
    return " ".join(cell for row in rows for cell in row if not isinstance(cell, Covered) and cell)


def _resolved(row: Sequence[Cell], above: Sequence[str]) -> list[str]:
    alone = sum(cell is not Covered.LEFT and cell != "" for cell in row) == 1
    texts: list[str] = []
    for column, cell in enumerate(row):
        if cell is Covered.LEFT:
            texts.append("" if alone or not texts else _short(texts[-1]))
        elif cell is Covered.ABOVE:
            texts.append(_short(above[column]) if column < len(above) else "")
        else:
            texts.append(" ".join(cell.split()))
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_REPEATED else ""


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    header, *rest = rows
    yield _line(header)
    yield _line(["---"] * len(header))
    yield from map(_line, rest)


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _parted(rows: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    for is_filled, group in groupby(rows, key=any):
        if is_filled:
            band = list(group)
            spans = list(_spans(band))
            for start, end in spans:
                part = [row[start:end] for row in band]
                yield from [part] if len(spans) == 1 else _parted(part)


def _spans(band: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """The columns of each table, half open."""
    filled = sorted({column for row in band for column, cell in enumerate(row) if cell})
    start = filled[0]
    for column, following in zip(filled, [*filled[1:], filled[-1] + _GAP + 1], strict=True):
        if following - column > _GAP:
            yield start, column + 1
            start = following
