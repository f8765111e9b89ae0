"""Printed lines to paragraphs, tables and headings, without headers and footers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from rag_core.parsing.pdf.cell_order import order_rows
from rag_core.parsing.pdf.contents import find_contents
from rag_core.parsing.pdf.furniture import without_furniture
from rag_core.parsing.pdf.headings import with_headings
from rag_core.parsing.pdf.interruptions import SENTENCE_END, find_rest
from rag_core.parsing.pdf.lines import WORD_CUT, Line, Paragraph, find_line_grids, merge_rows

VERSION = 3

_NUMBERED_ITEM = re.compile(r"(?:\d{1,3}|[a-z])[.)]\s")
_PARAGRAPH_STEP = 1.2  # times the usual distance of lines: a wider one separates paragraphs
_CUT_WORD = re.compile(rf"(-?)\b(\w++){WORD_CUT}(\w+)")
_COMPOUND = re.compile(r"\w+(?:-\w+)+")
_NEIGHBOUR_LINES = 8


def build_paragraphs(pages: Sequence[Sequence[Line]]) -> list[Paragraph]:
    """The paragraphs and tables of the pages in order. Headers, footers and page numbers are left out."""
    rows = [list(order_rows(list(merge_rows(page)))) for page in pages]
    lines = [line for page in without_furniture(rows) for line in page]
    steps = [(above.baseline - line.baseline) / line.size for above, line in pairwise(lines) if above.page == line.page]
    leading = median([step for step in steps if 0.8 < step < 2.5] or [1.2])
    compounds = frozenset(word.casefold() for line in lines for word in _COMPOUND.findall(line.text))
    areas = list(find_contents(lines, len(pages)))
    if sum(map(len, areas)) == len(lines):
        areas = []
    paragraphs: list[Paragraph] = []
    end = 0
    for area in areas:
        paragraphs += _build_part(lines[end : area.start], leading, compounds)
        separators = ("", *["\n"] * (len(area) - 1))
        paragraphs.append(Paragraph(tuple(lines[area.start : area.stop]), separators, is_contents=True))
        end = area.stop
    paragraphs += _build_part(lines[end:], leading, compounds)
    return with_headings(list(_join_interrupted(paragraphs, leading, compounds)))


def _build_part(lines: Sequence[Line], leading: float, compounds: frozenset[str]) -> Iterator[Paragraph]:
    """Yields the paragraphs and tables of lines without a table of contents."""
    end = 0
    for grid in find_line_grids(lines):
        yield from _group_lines(list(_join_cut_words(lines[end : grid.start], compounds)), leading)
        table_lines = tuple(lines[grid.start : grid.end])
        separators = ("", *["\n"] * (len(table_lines) - 1))
        yield Paragraph(table_lines, separators, table=grid.texts, page_starts=grid.page_starts)
        end = grid.end
    yield from _group_lines(list(_join_cut_words(lines[end:], compounds)), leading)


def _join_interrupted(
    paragraphs: Sequence[Paragraph], leading: float, compounds: frozenset[str]
) -> Iterator[Paragraph]:
    """Yields the paragraphs, and joins those between whose pages or columns a table, a note or a footer stands.

    What interrupts a paragraph comes before it if both are on one page, else after it: so every page begins where it
    did.
    """
    index = 0
    while index < len(paragraphs):
        current, before, after = paragraphs[index], list[Paragraph](), list[Paragraph]()
        index += 1
        while rest := find_rest(paragraphs, index, current):
            lines = [*current.lines, *paragraphs[rest].lines]
            joined = list(_group_lines(list(_join_cut_words(lines, compounds)), leading))
            if len(joined) > 1:
                break
            for aside in paragraphs[index:rest]:
                is_on_page = aside.lines[0].page == current.lines[0].page
                (before if is_on_page else after).append(aside)
            current, index = joined[0], rest + 1
        yield from (*before, current, *after)


def _join_cut_words(lines: Sequence[Line], compounds: frozenset[str]) -> Iterator[Line]:
    """Yields the lines with words joined that are cut at the end of a line; compounds keep their hyphen.

    A word is a compound if it has another hyphen, or is one of the `compounds` that the document writes elsewhere.
    """

    def join_word(cut: re.Match[str]) -> str:
        compound = f"{cut[2]}-{cut[3]}"
        keeps_hyphen = cut[1] or compound.casefold() in compounds
        return cut[1] + (compound if keeps_hyphen else cut[2] + cut[3])

    marked = [
        replace(line, text=f"{line.text[:-1]}{WORD_CUT}") if line.is_cut_before(following) else line
        for line, following in _with_following(lines)
    ]
    moved = ""  # the end of a cut word, which moves up to the line where the word begins
    for line, following in _with_following(marked):
        text = line.text[len(moved) :].lstrip()
        moved = following.text.partition(" ")[0] if line.text.endswith(WORD_CUT) and following else ""
        if text or moved:
            letter_width = (line.right - line.left) / (max(len(line.text), 1) * line.size)  # in sizes of the letters
            right = line.right + letter_width * line.size * len(moved)
            yield replace(line, text=_CUT_WORD.sub(join_word, text + moved), right=right)


def _with_following(lines: Sequence[Line]) -> Iterable[tuple[Line, Line | None]]:
    return zip(lines, [*lines[1:], None], strict=False)


def _group_lines(lines: Sequence[Line], leading: float) -> Iterator[Paragraph]:
    """Yields the paragraphs of running text. `leading` is the usual distance of lines, in sizes of their letters."""
    margins = _right_margins(lines)
    group: list[Line] = []
    separators: list[str] = []
    for index, line in enumerate(lines):
        separator = _separator(group, line, leading, margins[index - 1]) if group else ""
        if separator == " " and (group[-1].cells or line.cells):
            separator = "\n"
        if separator is None:
            yield Paragraph(tuple(group), tuple(separators))
            group, separators, separator = [], [], ""
        group.append(line)
        separators.append(separator)
    if group:
        yield Paragraph(tuple(group), tuple(separators))


def _right_margins(lines: Sequence[Line]) -> list[float]:
    """The right end of each line's column: the rightmost end of the lines near it that begin at its left end."""
    return [
        max(
            near.right
            for near in lines[max(0, index - _NEIGHBOUR_LINES) : index + _NEIGHBOUR_LINES + 1]
            if near is line or (near.page == line.page and abs(near.left - line.left) < 4 * line.size)
        )
        for index, line in enumerate(lines)
    ]


def _separator(group: Sequence[Line], line: Line, leading: float, margin: float) -> str | None:
    """What separates a line from those above it in its paragraph; None if it begins a paragraph."""
    above = group[-1]
    is_ended, is_lower = SENTENCE_END.search(above.text) is not None, line.text[:1].islower()
    has_same_size = abs(above.size - line.size) < 0.1 * max(above.size, line.size)
    has_same_weight = above.bold == line.bold or (is_lower and not is_ended)
    if not has_same_size or not has_same_weight or line.is_list_item:
        return None
    is_numbered = _NUMBERED_ITEM.match(line.text) is not None
    if is_numbered and (is_ended or _NUMBERED_ITEM.match(group[0].text) or _has_room(above, line, margin)):
        return None
    if above.page != line.page or line.baseline > above.baseline - 0.3 * line.size:  # in the next column or page
        return " " if is_lower and not is_ended else None
    if _is_far_below(group, line, leading) or (is_ended and _is_indented(group, line)):
        return None
    if _has_room(above, line, margin):
        return None if is_ended and not is_lower else "\n"
    return " "


def _has_room(above: Line, line: Line, margin: float) -> bool:
    """True if the first word fits into the line above, so that the author must have broken the line there."""
    letter_width = (above.right - above.left) / max(len(above.text), 1)
    word = line.text.partition(" ")[0]
    return margin - above.right > letter_width * (len(word) + 2)


def _is_far_below(group: Sequence[Line], line: Line, leading: float) -> bool:
    """True if the line is further below the group than the lines of the group, or of the document, are apart."""
    step = group[-1].baseline - line.baseline
    usual = leading * line.size
    if len(group) > 1 and group[-2].page == line.page and group[-2].baseline > group[-1].baseline:
        usual = max(group[-2].baseline - group[-1].baseline, line.size)
    return step > _PARAGRAPH_STEP * usual


def _is_indented(group: Sequence[Line], line: Line) -> bool:
    """True if the line begins right of the one above, or left of it after an indented first line.

    The second line of a list item hangs below the first and does not count.
    """
    shift = line.left - group[-1].left
    is_item = len(group) == 1 and (group[0].is_list_item or _NUMBERED_ITEM.match(group[0].text))
    is_outdented = shift < -0.8 * line.size and len(group) > 1
    return is_outdented or (shift > 0.8 * line.size and not is_item)
