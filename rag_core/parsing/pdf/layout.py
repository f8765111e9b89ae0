"""Printed lines to running text: which lines are furniture, which make one paragraph, which are headings.

Lengths are points, the origin is at the bottom left of the page, as in PDF.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf
from statistics import median
from typing import NamedTuple, TypeAlias

from rag_core.parsing.blocks import is_page_number
from rag_core.parsing.pdf.grid import Cell, Grid, Row, grids

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`page` counts from 0; `margin`: it stands where headers and footers do. U+FFFE parts a word cut at a line end.

    `cells` are its parts where wide gaps part it.
    """

    text: str
    page: int
    left: float
    right: float
    baseline: float
    size: float
    bold: bool = False
    margin: bool = False
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines and what stands before each of them: nothing before the first, else a space, a newline, or nothing.

    `level` is that of a heading, 0 for what is none; `table` has the rows where the lines are those of one, and `turns`
    says with which of them further pages begin.
    """

    lines: tuple[Line, ...]
    joints: tuple[str, ...]
    level: int = 0
    table: tuple[tuple[str, ...], ...] = ()
    turns: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return "".join(joint + line.text for joint, line in zip(self.joints, self.lines, strict=True))

    @property
    def is_listed(self) -> bool:
        return _LISTED.match(self.lines[0].text) is not None


@dataclass(frozen=True, slots=True)
class _Style:
    """Of a whole document: the usual distance of lines in sizes of their letters, and words written with a hyphen."""

    leading: float
    compounds: frozenset[str]


class _Numbers(NamedTuple):
    """Of a line. `folio` has a cell of its own at one of its ends, as a page's number has; it is 0 without one."""

    folio: int
    others: tuple[int, ...]

    def go_on(self, there: "_Numbers | None", ahead: int, counting: bool) -> bool:
        """Whether the same line `ahead` pages later has the same numbers; if it is counting, also with some that have
        gone up by one a page, and a folio that has gone up at all.
        """
        if there is None or len(there.others) != len(self.others) or (there.folio - self.folio) * ahead < 0:
            return False
        steps = {theirs - own for own, theirs in zip(self.others, there.others, strict=True)}
        return (counting or self.folio == there.folio) and steps <= {0, ahead * counting}


CUT = "\ufffe"
GAP = 1.2
"""Wider gaps than this, in sizes of the letters, part cells."""

_Standing: TypeAlias = Mapping[tuple[str, int, int], _Numbers]
"""Of each line in a margin, by its text without numbers, its page, and its baseline in whole points."""

_NUMBER = re.compile(r"\d{1,9}|\b[ivxlc]{1,7}\b")
_TENS = ("", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc")
_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
# Below the others: pages with such numbers come before page 1
_ROMAN = {tens + ones: number for number, (tens, ones) in enumerate(product(_TENS, _ONES), start=-100)}
_NEAR, _FEWEST = 4, 3  # pages around a page, and those of them that repeat a line, until it is a header or a footer
_BULLET = re.compile(r"[\u2022\u25cf\u25aa\u25a0\u25e6\u2023\u00b7\u2219\u25b8\u25ba\uf0b7\uf0a7\x7f-\x9f](?:\s+|$)")
_LISTED = re.compile(r"- ")
_NUMBERED = re.compile(r"(?:\d{1,3}|[a-z])[.)]\s")
_ENDS = re.compile(r"""[.!?:;\u3002\uff01\uff1f]["'\u201d\u2019)\]]*$""")
_LOOSER = 1.2  # times the usual distance of lines: a new paragraph
_LARGER = 1.15  # times the usual size of letters: a heading
_LONGEST_HEADING = 200
_MOST_WORDS_IN_BOLD = 12
_DEEPEST = 6
_CUT_WORD = re.compile(rf"(-?)\b(\w++){CUT}(\w+)")
_COMPOUND = re.compile(r"\w+(?:-\w+)+")
_AROUND = 8


def paragraphs(pages: Sequence[Sequence[Line]]) -> list[Paragraph]:
    """Headers, footers and page numbers that neighbouring pages repeat are left out."""
    rows = [list(_rows(page)) for page in pages]
    return _with_headings(list(_parted([line for page in _without_furniture(rows) for line in page])))


def _parted(lines: Sequence[Line]) -> Iterator[Paragraph]:
    """Tables, and the running text between them."""
    style = _Style(_leading(lines), frozenset(_compounds(lines)))
    end = 0
    for grid in _grids(lines):
        yield from _grouped(_uncut(lines[end : grid.start], style), style)
        rows = tuple(lines[grid.start : grid.end])
        yield Paragraph(rows, ("", *["\n"] * (len(rows) - 1)), table=grid.texts, turns=grid.turns)
        end = grid.end
    yield from _grouped(_uncut(lines[end:], style), style)


def _grids(lines: Sequence[Line]) -> Iterator[Grid]:
    return grids([Row(_cells(line), line.page, line.baseline, line.size) for line in lines])


def _cells(line: Line) -> tuple[Cell, ...]:
    return line.cells or (Cell(line.text, line.left, line.right),)


def _without_furniture(pages: Sequence[Sequence[Line]]) -> Iterator[list[Line]]:
    usual = _usual_size(line for page in pages for line in page if not line.margin) or inf
    margins = [list(_in_margin(page)) for page in pages]
    standing = {(_shape(line), line.page, round(line.baseline)): _numbers(line) for page in margins for line in page}
    for page, margin in zip(pages, margins, strict=True):
        furniture = {id(line) for line in margin if _is_furniture(line, standing, usual, len(pages))}
        yield [line for line in page if id(line) not in furniture]


def _in_margin(page: Sequence[Line]) -> Iterator[Line]:
    """Not the first and last rows of a table that fills the page."""
    tables = [range(grid.start, grid.end) for grid in _grids(page)]
    filling = [table for table in tables if not all(page[index].margin for index in table)]
    tabular = {index for table in filling for index in table}
    return (line for index, line in enumerate(page) if line.margin and index not in tabular)


def _shape(line: Line) -> str:
    return _NUMBER.sub("#", line.text.casefold())


def _numbers(line: Line) -> _Numbers:
    numbers = [_value(number) for number in _NUMBER.findall(line.text.casefold())]
    for end in (0, -1):
        if line.cells and _NUMBER.fullmatch(line.cells[end].text.casefold()):
            return _Numbers(numbers.pop(end), tuple(numbers))
    return _Numbers(0, tuple(numbers))


def _value(number: str) -> int:
    return int(number) if number.isdecimal() else _ROMAN.get(number, 0)


def _is_furniture(line: Line, standing: _Standing, usual: float, pages: int) -> bool:
    """Near pages repeat it, and more than two thirds of them what is in letters like a heading's."""
    near = range(max(line.page - _NEAR, 0), min(line.page + _NEAR + 1, pages))
    shape, height, numbers = _shape(line), round(line.baseline), _numbers(line)
    is_large = line.size >= _LARGER * usual
    counting = not is_large and (not line.bold or numbers.folio != 0 or is_page_number(line.text))
    repeated = sum(
        any(
            numbers.go_on(standing.get((shape, page, height + shift)), page - line.page, counting)
            for shift in (0, -1, 1)
        )
        for page in near
    )
    return repeated >= max(_FEWEST, len(near) * 2 // 3 + 1 if is_large else 0)


def _rows(lines: Iterable[Line]) -> Iterator[Line]:
    """What stands on one height, such as a raised fraction or the cells of a table, is one line."""
    row: Line | None = None
    for line in map(_bulleted, lines):
        if row is not None and _is_beside(row, line):
            row = _beside(row, line)
            continue
        if row is not None:
            yield row
        row = line
    if row is not None:
        yield row


def _beside(row: Line, line: Line) -> Line:
    gap = (line.left - row.right) / row.size
    text = row.text + (" " if gap > 0.15 else "") + line.text
    last, first = _cells(row)[-1], _cells(line)[0]
    closed = () if gap > GAP else (Cell(f"{last.text}{' ' if gap > 0.15 else ''}{first.text}", last.left, first.right),)
    cells = (*_cells(row)[:-1], *closed, *_cells(line)[1:]) if closed else (*_cells(row), *_cells(line))
    return replace(row, text=text, right=line.right, bold=row.bold and line.bold, cells=cells)


def _bulleted(line: Line) -> Line:
    return replace(line, text=_BULLET.sub("- ", line.text, count=1)) if _BULLET.match(line.text) else line


def _is_beside(row: Line, line: Line) -> bool:
    is_level = abs(row.baseline - line.baseline) < 0.35 * max(row.size, line.size)
    return is_level and line.left > row.right - 0.5 * row.size


def _compounds(lines: Iterable[Line]) -> Iterator[str]:
    return (word.casefold() for line in lines for word in _COMPOUND.findall(line.text))


def _uncut(lines: Sequence[Line], style: _Style) -> list[Line]:
    """Words cut at a line's end are whole again; a hyphen stays where the word has another, or the document writes it
    with one.
    """

    def whole(cut: re.Match[str]) -> str:
        compound = f"{cut[2]}-{cut[3]}"
        keeps = cut[1] or compound.casefold() in style.compounds
        return cut[1] + (compound if keeps else cut[2] + cut[3])

    moved = [
        replace(line, text=f"{line.text[:-1]}{CUT}") if _is_cut(line, following) else line
        for line, following in pairwise([*lines, None])
        if line
    ]
    return [replace(line, text=_CUT_WORD.sub(whole, line.text)) for line in _carried(moved)]


def _is_cut(line: Line, following: Line | None) -> bool:
    if following is None or not re.search(r"[^\W\d_]-$", line.text):
        return False
    return following.text[:1].islower() and abs(line.size - following.size) < 0.1 * line.size


def _carried(lines: Sequence[Line]) -> Iterator[Line]:
    """The rest of a cut word goes to the line where it began."""
    pending = ""
    for line, following in pairwise([*lines, None]):
        if line is None:
            continue
        text = line.text[len(pending) :].lstrip()
        pending = following.text.partition(" ")[0] if line.text.endswith(CUT) and following else ""
        if text or pending:
            yield replace(line, text=text + pending, right=line.right + _width(line) * line.size * len(pending))


def _grouped(lines: Sequence[Line], style: _Style) -> Iterator[Paragraph]:
    margins = _margins(lines)
    group: list[Line] = []
    joints: list[str] = []
    for index, line in enumerate(lines):
        joint = _joint(group, line, style.leading, margins[index - 1]) if group else ""
        if joint == " " and (group[-1].cells or line.cells):
            joint = "\n"
        if joint is None:
            yield Paragraph(tuple(group), tuple(joints))
            group, joints, joint = [], [], ""
        group.append(line)
        joints.append(joint)
    if group:
        yield Paragraph(tuple(group), tuple(joints))


def _leading(lines: Sequence[Line]) -> float:
    """The usual distance of lines, in sizes of their letters."""
    steps = [(above.baseline - line.baseline) / line.size for above, line in pairwise(lines) if above.page == line.page]
    return median([step for step in steps if 0.8 < step < 2.5] or [1.2])


def _width(line: Line) -> float:
    return (line.right - line.left) / (max(len(line.text), 1) * line.size)


def _margins(lines: Sequence[Line]) -> list[float]:
    """How far to the right the column of each line reaches."""
    return [
        max(
            near.right
            for near in lines[max(0, index - _AROUND) : index + _AROUND + 1]
            if near is line or (near.page == line.page and abs(near.left - line.left) < 4 * line.size)
        )
        for index, line in enumerate(lines)
    ]


def _joint(group: Sequence[Line], line: Line, leading: float, margin: float) -> str | None:
    """What parts a line from the paragraph above it; None if it begins one of its own."""
    above = group[-1]
    ends = _ENDS.search(above.text) is not None
    if not _is_alike(above, line) or _LISTED.match(line.text):
        return None
    if _NUMBERED.match(line.text) and (ends or _NUMBERED.match(group[0].text) or _has_room(above, line, margin)):
        return None
    if _is_elsewhere(above, line):
        return " " if not ends and line.text[:1].islower() else None
    if _is_loose(group, line, leading) or (ends and _is_indented(group, line)):
        return None
    if _has_room(above, line, margin):
        return None if ends and not line.text[:1].islower() else "\n"
    return " "


def _is_alike(above: Line, line: Line) -> bool:
    runs_on = line.text[:1].islower() and not _ENDS.search(above.text)
    return abs(above.size - line.size) < 0.1 * max(above.size, line.size) and (above.bold == line.bold or runs_on)


def _is_elsewhere(above: Line, line: Line) -> bool:
    """In the next column, or on the next page."""
    return above.page != line.page or line.baseline > above.baseline - 0.3 * line.size


def _is_loose(group: Sequence[Line], line: Line, leading: float) -> bool:
    step = group[-1].baseline - line.baseline
    usual = leading * line.size
    if len(group) > 1 and group[-2].page == line.page and group[-2].baseline > group[-1].baseline:
        usual = max(group[-2].baseline - group[-1].baseline, line.size)
    return step > _LOOSER * usual


def _is_indented(group: Sequence[Line], line: Line) -> bool:
    shift = line.left - group[-1].left
    hangs = len(group) == 1 and (_LISTED.match(group[0].text) or _NUMBERED.match(group[0].text))
    outdented = shift < -0.8 * line.size and len(group) > 1
    return outdented or (shift > 0.8 * line.size and not hangs)


def _has_room(above: Line, line: Line, margin: float) -> bool:
    """The first word would have fitted in the line above: whoever broke the line there wanted it so."""
    letter = (above.right - above.left) / max(len(above.text), 1)
    word = line.text.partition(" ")[0]
    return margin - above.right > letter * (len(word) + 2)


def _with_headings(found: Sequence[Paragraph]) -> list[Paragraph]:
    usual = _usual_size(line for paragraph in found for line in paragraph.lines)
    large = [paragraph for paragraph in found if _is_large(paragraph, usual)]
    levels = _levels(Counter(paragraph.lines[0].size for paragraph in large))
    mostly_bold = sum(paragraph.lines[0].bold for paragraph in found) * 2 > len(found)
    headed = [
        replace(paragraph, level=levels[paragraph.lines[0].size]) if _is_large(paragraph, usual) else paragraph
        for paragraph in found
    ]
    below = min(max(levels.values(), default=0) + 1, _DEEPEST)
    return [
        replace(paragraph, level=below)
        if not mostly_bold and not paragraph.level and _is_bold_heading(paragraph, following)
        else paragraph
        for paragraph, following in pairwise([*headed, None])
        if paragraph
    ]


def _usual_size(lines: Iterable[Line]) -> float:
    letters: Counter[float] = Counter()
    for line in lines:
        letters[line.size] += len(line.text)
    return letters.most_common(1)[0][0] if letters else 0.0


def _is_large(paragraph: Paragraph, usual: float) -> bool:
    text = paragraph.text
    return (
        not paragraph.table
        and _is_title(text)
        and paragraph.lines[0].size >= _LARGER * usual
        and not paragraph.is_listed
    )


def _is_title(text: str) -> bool:
    """Not a line of a table of contents."""
    return len(text) <= _LONGEST_HEADING and re.search(r"[^\W\d_]{2}", text) is not None and " ... " not in text


def _levels(sizes: Mapping[float, int]) -> dict[float, int]:
    """1 for the largest letters; what hardly differs, or stands but once, opens no level of its own."""
    levels: dict[float, int] = {}
    level, largest = 0, 0.0
    for size in sorted(sizes, reverse=True):
        if not level or (size < 0.92 * largest and sizes[size] > 1):
            level, largest = level + 1, size
        levels[size] = min(level, _DEEPEST)
    return levels


def _is_bold_heading(paragraph: Paragraph, following: Paragraph | None) -> bool:
    text = paragraph.text
    if (
        paragraph.table
        or not paragraph.lines[0].bold
        or len(paragraph.lines) > 1
        or following is None
        or following.lines[0].bold
    ):
        return False
    return _is_title(text) and text[0].isalnum() and text[-1] not in ".,;:" and len(text.split()) <= _MOST_WORDS_IN_BOLD
