"""Printed lines of a PDF, and the paragraphs that they make.

Lengths are points, the origin is at the bottom left of the page, as in PDF. A change of the results needs a new
`layout.VERSION`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rag_core.parsing.pdf.columns import Cell, Row
from rag_core.parsing.pdf.grid import Grid, find_grids

WORD_CUT = "\ufffe"
"""The character that PDFium writes where a word is cut at the end of a line."""

MIN_CELL_GAP = 1.2
"""Gaps that are wider, in sizes of the letters, separate cells."""

NARROW_CELL_GAP = 0.45
"""Gaps that are wider, in sizes of the letters, can separate cells of a table: spaces are narrower."""

LARGE = 1.15
"""Letters that are larger than usual by this factor are those of a heading."""

_MIN_SPACE = 0.15  # in sizes of the letters: a narrower gap is not a space
_BULLET = re.compile(r"[\u2022\u25cf\u25aa\u25a0\u25e6\u2023\u00b7\u2219\u25b8\u25ba\uf0b7\uf0a7\x7f-\x9f](?:\s+|$)")
_CUT_LETTER = re.compile(r"[^\W\d_]-$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line and the font of its letters. `page` counts from 0. `in_margin`: it is where headers and footers are.

    `cells` are the parts of a line that has wide gaps; it is empty for any other line. `narrow_cells` are the parts of
    a line between gaps that are only wider than a space.
    """

    text: str
    page: int
    left: float
    right: float
    baseline: float
    size: float
    bold: bool = False
    in_margin: bool = False
    cells: tuple[Cell, ...] = ()
    narrow_cells: tuple[Cell, ...] = ()

    @property
    def parts(self) -> tuple[Cell, ...]:
        """The cells, or the whole line as one cell."""
        return self.cells or (Cell(self.text, self.left, self.right),)

    @property
    def is_list_item(self) -> bool:
        return self.text.startswith("- ")

    def is_right_of(self, other: "Line") -> bool:
        """True if the line is at the height of `other` and begins where that ends."""
        is_level = abs(other.baseline - self.baseline) < 0.35 * max(other.size, self.size)
        return is_level and self.left > other.right - 0.5 * other.size

    def is_cut_before(self, following: "Line | None") -> bool:
        """True if the line ends with a hyphen within a word that `following` continues."""
        if following is None or not _CUT_LETTER.search(self.text):
            return False
        return following.text[:1].islower() and abs(self.size - following.size) < 0.1 * self.size

    def with_right_part(self, line: "Line") -> "Line":
        """One line made of this one and the one to the right of it."""
        gap = (line.left - self.right) / self.size
        space = " " if gap > _MIN_SPACE else ""
        text, last, first = f"{self.text}{space}{line.text}", self.parts[-1], line.parts[0]
        joined = Cell(f"{last.text}{space}{first.text}", last.left, first.right)
        middle = (last, first) if gap > MIN_CELL_GAP else (joined,)
        cells = (*self.parts[:-1], *middle, *line.parts[1:])
        narrow_cells = (*(self.narrow_cells or self.parts), *(line.narrow_cells or line.parts))
        return replace(
            self,
            text=text,
            right=line.right,
            bold=self.bold and line.bold,
            cells=cells,
            narrow_cells=narrow_cells if gap > NARROW_CELL_GAP else (),
        )


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines, and what separates each of them from the one before: a space, a newline or nothing.

    `level` is that of a heading, and 0 for any other paragraph. `table` holds the rows if the lines are those of a
    table; `page_starts` holds the indexes of the rows with which further pages begin. `is_contents`: it is a table of
    contents, which repeats headings and is not part of the text.
    """

    lines: tuple[Line, ...]
    separators: tuple[str, ...]
    level: int = 0
    table: tuple[tuple[str, ...], ...] = ()
    page_starts: tuple[int, ...] = ()
    is_contents: bool = False

    @property
    def text(self) -> str:
        return "".join(separator + line.text for separator, line in zip(self.separators, self.lines, strict=True))

    @property
    def is_list_item(self) -> bool:
        return self.lines[0].is_list_item


def merge_rows(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields the lines with bullets as `- `. Lines at one height, such as raised fractions and cells, become one."""
    row: Line | None = None
    for line in lines:
        if _BULLET.match(line.text):
            line = replace(line, text=_BULLET.sub("- ", line.text, count=1))
        if row is not None and line.is_right_of(row):
            row = row.with_right_part(line)
            continue
        if row is not None:
            yield row
        row = line
    if row is not None:
        yield row


def find_line_grids(lines: Sequence[Line]) -> Iterator[Grid]:
    """Yields the tables among the lines, in order."""
    return find_grids([Row(line.parts, line.page, line.baseline, line.size, line.narrow_cells) for line in lines])


def usual_size(lines: Iterable[Line]) -> float:
    """The size of most letters; 0 without letters."""
    letters: Counter[float] = Counter()
    for line in lines:
        letters[line.size] += len(line.text)
    return letters.most_common(1)[0][0] if letters else 0.0
