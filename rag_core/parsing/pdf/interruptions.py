"""Paragraphs that a table, a note or a footer interrupts at the end of a page or column.

A change of the results needs a new `layout.VERSION`.
"""

import re
from collections.abc import Sequence

from rag_core.parsing.pdf.lines import Paragraph

SENTENCE_END = re.compile(r"""[.!?:;\u3002\uff01\uff1f]["'\u201d\u2019)\]]*$""")

_MAX_ASIDES = 4
_MIN_CHARS = 40  # of a paragraph: a shorter one can be a title
_NOTE_SIZE = 0.92  # of the paragraph's letters: those of notes and footers are smaller
_SAME_SIZE = 0.05
_ASIDE = re.compile(
    r"\u00a9|\(c\)\s|copyright\b|all rights reserved|(?:table|figure|fig\.|abbildung|abb\.|tabelle)\s?\d", re.IGNORECASE
)


def find_rest(paragraphs: Sequence[Paragraph], index: int, current: Paragraph) -> int:
    """The index of the paragraph that continues `current`, behind at least one aside at `index`; 0 if there is none."""
    text = current.text
    if current.table or current.is_contents or len(text) < _MIN_CHARS or SENTENCE_END.search(text):
        return 0
    for rest in range(index + 1, min(index + _MAX_ASIDES + 1, len(paragraphs))):
        if not _is_aside(paragraphs[rest - 1], current):
            return 0
        if _continues(paragraphs[rest], current):
            return rest
    return 0


def _is_aside(paragraph: Paragraph, current: Paragraph) -> bool:
    if paragraph.is_contents:
        return False
    is_small = paragraph.lines[0].size <= _NOTE_SIZE * current.lines[-1].size
    is_in_margin = all(line.in_margin for line in paragraph.lines)
    return bool(paragraph.table) or is_small or is_in_margin or _ASIDE.match(paragraph.text) is not None


def _continues(paragraph: Paragraph, current: Paragraph) -> bool:
    """True if the paragraph goes on within a sentence, at the top of a later column or page, in the same letters."""
    first, last = paragraph.lines[0], current.lines[-1]
    has_same_size = abs(first.size - last.size) <= _SAME_SIZE * last.size
    is_later = first.page > last.page or (first.page == last.page and first.baseline > last.baseline + last.size)
    is_text = not paragraph.table and not paragraph.is_contents and not paragraph.is_list_item
    return is_text and has_same_size and is_later and first.text[:1].islower()
