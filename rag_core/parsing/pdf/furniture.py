"""Headers, footers and page numbers: lines that neighbouring pages repeat.

A change of the results needs a new `layout.VERSION`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import NamedTuple, TypeAlias

from rag_core.parsing.blocks import is_page_number
from rag_core.parsing.pdf.lines import LARGE, Line, find_line_grids, usual_size

_NUMBER = re.compile(r"\d{1,9}|\b[ivxlc]{1,7}\b")
_TENS = ("", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc")
_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
# From -100 on: pages with Roman numbers are before page 1
_ROMAN_NUMBERS = {tens + ones: number for number, (tens, ones) in enumerate(product(_TENS, _ONES), start=-100)}
_NEIGHBOUR_PAGES = 4  # before and after a page
_MIN_REPEATS = 3  # among the neighbouring pages and the page itself; 2 in a document of two pages


class _Numbers(NamedTuple):
    """The numbers in a line. `folio` is the one at an end of the line with a cell of its own, as page numbers have.

    `folio` is 0 if the line has no such number.
    """

    folio: int
    others: tuple[int, ...]

    def is_continued_by(self, later: "_Numbers | None", distance: int, is_counting: bool) -> bool:
        """True if the line `distance` pages later has the same numbers.

        If the line is counting, its numbers can also increase by 1 a page, and its folio by any amount.
        """
        if later is None or len(later.others) != len(self.others) or (later.folio - self.folio) * distance < 0:
            return False
        steps = {after - before for before, after in zip(self.others, later.others, strict=True)}
        return steps <= {0, distance} if is_counting else self.folio == later.folio and steps <= {0}


_NumbersByLine: TypeAlias = Mapping[tuple[str, int, int], _Numbers]
"""The numbers of each line in a margin, by its shape, its page, and its baseline in whole points."""


def without_furniture(pages: Sequence[Sequence[Line]]) -> Iterator[list[Line]]:
    """Yields the lines of each page without headers, footers and page numbers."""
    size = usual_size(line for page in pages for line in page if not line.in_margin) or inf
    margins = [list(_margin_lines(page)) for page in pages]
    numbers = {(_shape(line), line.page, round(line.baseline)): _numbers(line) for page in margins for line in page}
    for page, margin in zip(pages, margins, strict=True):
        furniture = {id(line) for line in margin if _is_furniture(line, numbers, size, len(pages))}
        yield [line for line in page if id(line) not in furniture]


def _margin_lines(page: Sequence[Line]) -> Iterator[Line]:
    """Yields the lines in the margin, without the first and last rows of a table that fills the page."""
    tables = [range(grid.start, grid.end) for grid in find_line_grids(page)]
    outside = [table for table in tables if not all(page[index].in_margin for index in table)]
    rows = {index for table in outside for index in table}
    return (line for index, line in enumerate(page) if line.in_margin and index not in rows)


def _shape(line: Line) -> str:
    """The text with `#` for each number."""
    return _NUMBER.sub("#", line.text.casefold())


def _numbers(line: Line) -> _Numbers:
    texts = _NUMBER.findall(line.text.casefold())
    numbers = [int(text) if text.isdecimal() else _ROMAN_NUMBERS.get(text, 0) for text in texts]
    for end in (0, -1):
        if line.cells and _NUMBER.fullmatch(line.cells[end].text.casefold()):
            return _Numbers(numbers.pop(end), tuple(numbers))
    return _Numbers(0, tuple(numbers))


def _is_furniture(line: Line, numbers: _NumbersByLine, usual: float, page_count: int) -> bool:
    """True if neighbouring pages repeat the line; more than two thirds of them if it is as large as a heading.

    The first of two pages keeps its lines, except for page numbers.
    """
    if page_count == 2 and line.page == 0 and not is_page_number(line.text):
        return False
    neighbours = range(max(line.page - _NEIGHBOUR_PAGES, 0), min(line.page + _NEIGHBOUR_PAGES + 1, page_count))
    shape, height, line_numbers = _shape(line), round(line.baseline), _numbers(line)
    is_large = line.size >= LARGE * usual
    is_counting = not is_large and (not line.bold or line_numbers.folio != 0 or is_page_number(line.text))
    repeats = sum(
        any(
            line_numbers.is_continued_by(numbers.get((shape, page, height + shift)), page - line.page, is_counting)
            for shift in (0, -1, 1)
        )
        for page in neighbours
    )
    return repeats >= max(min(_MIN_REPEATS, max(page_count, 2)), len(neighbours) * 2 // 3 + 1 if is_large else 0)
