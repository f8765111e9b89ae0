"""Headings of a PDF, found by their letters or by bookmarks.

A change of the results needs a new `layout.VERSION`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag_core.parsing.pdf.lines import LARGE, Paragraph, usual_size

_MAX_HEADING_CHARS = 200
_MAX_BOOKMARK_CHARS = 300
_MAX_BOLD_HEADING_WORDS = 12
_MAX_LEVEL = 6
_SAME_LEVEL = 0.92  # of the size of a level's largest letters: slightly smaller ones are on the same level
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")


def with_headings(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    """Sets the levels of headings: larger letters, by size, and below them bold lines unless most text is bold."""
    size = usual_size(line for paragraph in paragraphs for line in paragraph.lines)
    sizes = Counter(paragraph.lines[0].size for paragraph in paragraphs if _is_large(paragraph, size))
    levels = _size_levels(sizes)
    with_sizes = [
        replace(paragraph, level=levels[paragraph.lines[0].size]) if _is_large(paragraph, size) else paragraph
        for paragraph in paragraphs
    ]
    if sum(paragraph.lines[0].bold for paragraph in paragraphs) * 2 > len(paragraphs):
        return with_sizes
    bold_level = min(max(levels.values(), default=0) + 1, _MAX_LEVEL)
    return [
        replace(paragraph, level=bold_level)
        if not paragraph.level and _is_bold_heading(paragraph, following)
        else paragraph
        for paragraph, following in zip(with_sizes, [*with_sizes[1:], None], strict=False)
    ]


def _is_large(paragraph: Paragraph, usual: float) -> bool:
    is_large = paragraph.lines[0].size >= LARGE * usual
    is_text = not paragraph.table and not paragraph.is_contents
    return is_large and is_text and not paragraph.is_list_item and _is_title(paragraph.text)


def _is_title(text: str) -> bool:
    """True if the text is short, has a word, and is not a line of a table of contents."""
    return len(text) <= _MAX_HEADING_CHARS and _TWO_LETTERS.search(text) is not None and " ... " not in text


def _size_levels(sizes: Mapping[float, int]) -> dict[float, int]:
    """The heading level of each size, 1 for the largest. `sizes` holds how many paragraphs have a size.

    A size that hardly differs from a larger one, or occurs only once, has no level of its own.
    """
    levels: dict[float, int] = {}
    level, largest = 0, 0.0
    for size in sorted(sizes, reverse=True):
        if not level or (size < _SAME_LEVEL * largest and sizes[size] > 1):
            level, largest = level + 1, size
        levels[size] = min(level, _MAX_LEVEL)
    return levels


def _is_bold_heading(paragraph: Paragraph, following: Paragraph | None) -> bool:
    """True for one bold line that looks like a title and has text of another weight below it."""
    if paragraph.table or len(paragraph.lines) > 1 or not paragraph.lines[0].bold:
        return False
    if following is None or following.lines[0].bold:
        return False
    text = paragraph.text
    is_short = len(text.split()) <= _MAX_BOLD_HEADING_WORDS
    return _is_title(text) and text[0].isalnum() and text[-1] not in ".,;:" and is_short


def with_bookmark_levels(paragraphs: Sequence[Paragraph], bookmarks: Sequence[tuple[str, int]]) -> list[Paragraph]:
    """Takes the headings from the bookmarks if there are at least two, and half of them occur in the text.

    `bookmarks` are titles with their levels, which count from 1. The first one with a title counts.
    """
    titles = {letters: level for title, level in reversed(bookmarks) if (letters := _letters(title))}
    short = [
        not paragraph.is_contents and sum(len(line.text) for line in paragraph.lines) <= _MAX_BOOKMARK_CHARS
        for paragraph in paragraphs
    ]
    levels = [
        titles.get(_letters(paragraph.text), 0) if is_short else 0
        for paragraph, is_short in zip(paragraphs, short, strict=True)
    ]
    if len(titles) < 2 or sum(map(bool, levels)) * 2 < len(titles):
        return list(paragraphs)
    return [replace(paragraph, level=level) for paragraph, level in zip(paragraphs, levels, strict=True)]


def _letters(title: str) -> str:
    """The letters alone: bookmarks can omit chapter numbers and spaces."""
    return "".join(letter for letter in title.casefold() if letter.isalpha())
