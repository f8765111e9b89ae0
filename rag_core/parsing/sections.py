"""Headings, and the sections that they open.

The VERSIONs of `markdown`, `text` and `pdf` together cover this module.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rag_core.types import Section

MAX_TITLE_CHARS = 120
"""A longer line is not taken for a title."""


class Heading(NamedTuple):
    """`level` counts from 1; `start` is the offset of the heading's first character."""

    level: int
    text: str
    start: int


def sections_from_headings(headings: Iterable[Heading]) -> tuple[Section, ...]:
    """One section for each heading. Its path leads from the outermost heading to this one."""
    sections: list[Section] = []
    enclosing: list[Heading] = []
    for heading in headings:
        enclosing = [outer for outer in enclosing if outer.level < heading.level] + [heading]
        sections.append(Section(path=tuple(outer.text for outer in enclosing), start=heading.start))
    return tuple(sections)


def title_from_first_line(text: str) -> str:
    """The first line that is not blank; empty if that line is too long for a title."""
    line, _, _ = text.lstrip().partition("\n")
    return line.rstrip() if len(line.rstrip()) <= MAX_TITLE_CHARS else ""
