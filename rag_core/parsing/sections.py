"""Headings, and the sections that they open."""

from collections.abc import Iterable
from typing import NamedTuple

from rag_core.types import Section

LONGEST_TITLE = 120
"""Characters of a line that may be a title."""


class Heading(NamedTuple):
    """`level` counts from 1; `start` is the offset of the heading's first character."""

    level: int
    text: str
    start: int


def nested(headings: Iterable[Heading]) -> tuple[Section, ...]:
    """One section a heading, its path leading from the outermost heading to its own."""
    sections: list[Section] = []
    above: list[Heading] = []
    for heading in headings:
        above = [outer for outer in above if outer.level < heading.level] + [heading]
        sections.append(Section(path=tuple(each.text for each in above), start=heading.start))
    return tuple(sections)


def first_line(text: str) -> str:
    """The first line that says something, if it is short enough for a title."""
    line, _, _ = text.lstrip().partition("\n")
    return line.rstrip() if len(line.rstrip()) <= LONGEST_TITLE else ""
