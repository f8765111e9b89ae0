"""The head of a table: titles above it, heads of several levels joined to one row, signs joined with their numbers.

The VERSIONs of `markdown`, `delimited` and `pdf` together cover this module.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Rows: TypeAlias = list[list[str]]
"""Texts of equally many columns. A merged cell's text is repeated in each cell that it covers."""

_LEVEL_SEPARATOR = " / "
_MAX_LEVELS = 4
_MAX_TITLES = 3
_SAMPLE_ROWS = 40  # below the head, which show the columns that hold figures
_MIN_FIGURES = 0.6  # share of a column's filled cells
_SIGN = r"(?:[$\u00a2-\u00a5\u20a0-\u20bf]|(?:US|CA|C|A|AU|NZ|HK|R)\$|EUR|USD|GBP|CHF|JPY)"
_LEADING_SIGNS = frozenset(
    ["$", "\u20ac", "\u00a3", "\u00a5", "\u20b9", "US$", "C$", "A$", "HK$", "R$", "EUR", "USD", "GBP", "CHF"]
)
_TRAILING_SIGNS = frozenset([")", "%", ")%"])
_NUMBER_START = re.compile(r"[(+\u2212\u2013\u2014-]?\s*[\d.]|[\u2013\u2014-]$")
_YEAR = re.compile(r"(?:FY\s?)?(?:19|20)\d\d")
_NO_VALUE = re.compile(r"[-\u2010-\u2015\u2212.*]+|n\.?/?[am]\.?", re.IGNORECASE)
_FIGURE = re.compile(
    rf"[(\s+\u2212\u2013-]*+{_SIGN}?\s*+[(+\u2212-]*+\d[\d\s.,'\u2019]*+\)?\s*+(?:%|{_SIGN})?\)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class HeadedTable:
    """`titles` are the texts above the head. `header` has all levels of the head, joined column by column."""

    titles: list[str]
    header: list[str]
    rows: Rows


def find_head(rows: Rows) -> HeadedTable:
    """Finds the head, which is the first row at least, in a table of one row or more."""
    first = _count_titles(rows)
    titles, rows = [next(filter(None, row)) for row in rows[:first]], rows[first:]
    levels = count_levels(rows)
    rows = _move_heads(rows, levels)
    return HeadedTable(titles, join_levels(rows[:levels]), rows[levels:])


def _move_heads(rows: Rows, levels: int) -> Rows:
    """Moves each head above an empty column to the next column if that has none: its column was left for a sign."""
    for column in reversed(range(len(rows[0]) - 1)):
        head, following = rows[levels - 1][column : column + 2]
        if head and not following and len(rows) > levels and not any(row[column] for row in rows[levels:]):
            rows = _merge_column(rows, column, column + 1)
    return rows


def is_figure(cell: str) -> bool:
    """True for a number with or without signs that is not a year."""
    return _FIGURE.fullmatch(cell) is not None and not _YEAR.fullmatch(cell)


def is_value(cell: str) -> bool:
    """True for a figure, and for what is written in place of one, such as a dash."""
    return is_figure(cell) or _NO_VALUE.fullmatch(cell) is not None


def _count_titles(rows: Rows) -> int:
    """The number of leading rows whose first cell is alone, if a head follows them."""
    count = 0
    while count < min(_MAX_TITLES, len(rows)) and rows[count][0] and not any(rows[count][1:]):
        count += 1
    if not count or len(rows) < count + 2:
        return 0
    head, *body = rows[count:]
    if columns := _figure_columns(body):
        return count if any(head[column] for column in columns) and not _has_values(head, columns) else 0
    return count if len(head) > 2 and len(set(filter(None, head))) == len(head) else 0


def count_levels(rows: Rows) -> int:
    """The number of rows that are the head. A further row is one if those above it leave cells open or span columns.

    It has texts or years where the rows below it have figures.
    """
    count = 1
    while count < min(_MAX_LEVELS, len(rows) - 1) and _continues_head(rows, count):
        count += 1
    return count


def _continues_head(rows: Rows, index: int) -> bool:
    above, row, body = rows[index - 1], rows[index], rows[index + 1 :]
    names = [column for column, cell in enumerate(row) if column and cell]
    has_spans = _has_spans(above)
    continues_first = not row[0] or row[0] == above[0]
    if not names or not (has_spans or continues_first or not all(above[1:])):
        return False
    if columns := _figure_columns(body):
        return not _has_values(row, columns) and any(row[column] for column in columns)
    return has_spans and not _has_spans(row) and (continues_first or not above[0])


def _has_spans(row: Sequence[str]) -> bool:
    return any(cell and cell == left for left, cell in pairwise(row))


def _has_values(row: Sequence[str], columns: Iterable[int]) -> bool:
    return any(is_value(row[column]) for column in columns)


def _figure_columns(rows: Rows) -> list[int]:
    """The columns, other than the first, most of whose filled cells are figures."""
    sample = rows[:_SAMPLE_ROWS]
    columns: list[int] = []
    for column in range(1, len(sample[0]) if sample else 0):
        filled = [cell for row in sample if (cell := row[column]) and not _NO_VALUE.fullmatch(cell)]
        if filled and sum(map(is_figure, filled)) >= _MIN_FIGURES * len(filled):
            columns.append(column)
    return columns


def join_levels(levels: Rows) -> list[str]:
    """The head of each column: its texts in all levels, without repetitions."""
    filled = [_extend_groups(level, levels[index + 1]) for index, level in enumerate(levels[:-1])] + levels[-1:]
    return [_LEVEL_SEPARATOR.join(dict.fromkeys(filter(None, texts))) for texts in zip(*filled, strict=True)]


def _extend_groups(level: list[str], below: Sequence[str]) -> list[str]:
    """Repeats each head to its right where it leaves cells open, unless merged cells show its extent."""
    if _has_spans(level):
        return level
    extended = level[:1]
    for cell, head in zip(level[1:], below[1:], strict=True):
        extended.append(cell or (extended[-1] if head and len(extended) > 1 else ""))
    return extended


def join_signs(rows: Rows) -> Rows:
    """Moves currency signs, percent signs and closing brackets with a column of their own into the number's cell."""
    if not any(map(has_sign, rows)):
        return rows
    joined = [join_row_signs(row) for row in rows]
    for column in reversed(range(len(rows[0]))):
        moved = [before[column] for before, row in zip(rows, joined, strict=True) if before[column] and not row[column]]
        if moved:
            joined = _merge_column(joined, column, column + 1 if moved[0] in _LEADING_SIGNS else column - 1)
    return joined


def join_row_signs(row: list[str]) -> list[str]:
    """The row with each sign in its number's cell; the cell that it leaves is empty."""
    cells = list(row)
    if not has_sign(row):
        return cells
    for column in range(len(cells) - 1):
        left, right = cells[column : column + 2]
        if left in _LEADING_SIGNS and _NUMBER_START.match(right):
            cells[column : column + 2] = "", f"{left} {right}"
        elif right in _TRAILING_SIGNS and left[-1:].isdigit():
            cells[column : column + 2] = f"{left}{right}", ""
    return cells


def has_sign(row: Sequence[str]) -> bool:
    """True if a cell is nothing but a sign of a number."""
    return not (_LEADING_SIGNS.isdisjoint(row) and _TRAILING_SIGNS.isdisjoint(row))


def is_trailing_sign(text: str) -> bool:
    return text in _TRAILING_SIGNS


def _merge_column(rows: Rows, column: int, target: int) -> Rows:
    """The rows without `column`, whose texts fill the empty cells of `target`. Unchanged if texts would be lost."""
    if any(row[column] and row[target] and row[column] != row[target] for row in rows):
        return rows
    merged = [[*row[:target], row[target] or row[column], *row[target + 1 :]] for row in rows]
    return [[*row[:column], *row[column + 1 :]] for row in merged]
