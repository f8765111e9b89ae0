"""Tables of contents: lines near the start that end with the numbers of pages.

A change of the results needs a new `layout.VERSION`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rag_core.parsing.pdf.lines import Line

_MIN_ENTRIES = 4
_MAX_TITLE_LINES = 2  # lines without a number before an entry: a long title, or the name of a part
_MAX_PAGES = 10
_MAX_SHARE = 0.2  # of the pages: contents of long documents
_MIN_ORDERED = 0.9  # share of entries whose page is not before that of the entry above
_MAX_ENTRY_CHARS = 200
_ENTRY = re.compile(r".*\w.* \.\.\.[ .]*(?P<page>\d{1,4}|[ivxlc]{1,7})")
_TITLE = re.compile(
    r"(?:table of )?contents|inhalt(?:sverzeichnis)?|sommaire|table des mati\u00e8res|\u00edndice", re.I
)
_GAP_ENTRY = re.compile(r".*[^\W\d_]{2}.* (?P<page>\d{1,4})")


def find_contents(lines: Sequence[Line], page_count: int) -> Iterator[range]:
    """Yields the indexes of the lines of each table of contents, with its title."""
    last_page = max(_MAX_PAGES, int(_MAX_SHARE * page_count))
    index = 0
    while index < len(lines) and lines[index].page < last_page:
        has_title = _TITLE.fullmatch(lines[index].text) is not None
        entries = _find_entries(lines, index + has_title, has_title)
        end = entries[-1][0] + 1 if entries else index + 1
        if len(entries) >= _MIN_ENTRIES and _is_ordered([page for _, page in entries]):
            yield range(index, end)
        index = end


def _find_entries(lines: Sequence[Line], start: int, has_title: bool) -> list[tuple[int, int]]:
    """The index and the page of each entry from the line `start` on. Roman numbers count as page 0."""
    entries: list[tuple[int, int]] = []
    for index in range(start, len(lines)):
        line = lines[index]
        if match := _match_entry(line, has_title):
            entries.append((index, int(match["page"]) if match["page"].isdecimal() else 0))
        elif index - (entries[-1][0] if entries else start - 1) > (_MAX_TITLE_LINES if entries or has_title else 0):
            break
    return entries


def _match_entry(line: Line, has_title: bool) -> re.Match[str] | None:
    """An entry with leaders; below the title of the contents, also one whose number only a wide gap separates."""
    if len(line.text) > _MAX_ENTRY_CHARS:
        return None
    return _ENTRY.fullmatch(line.text) or (_GAP_ENTRY.fullmatch(line.text) if has_title and line.cells else None)


def _is_ordered(pages: Sequence[int]) -> bool:
    steps = [later >= earlier for earlier, later in pairwise(pages)]
    return sum(steps) >= _MIN_ORDERED * len(steps) and len(set(pages)) > 1
