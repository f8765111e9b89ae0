"""The sentences of a passage that can be an answer by themselves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.answering.citing.table_rows import name_columns
from rag_core.chunking.tables import RULE
from rag_core.text.analysis import terms
from rag_core.text.sentences import CODE_BLOCK, sentence_spans
from rag_core.types import Passage

_HEADING = re.compile(r"#{1,6}\s")
_NO_SENTENCE = re.compile(rf"{_HEADING.pattern}|[\W\d_]*$")
_BARE_REPLY = re.compile(r"(?:yes|no|ja|nein|oui|non|sí|si|是的?|不是?|不能|可以|不可以)\W*", re.IGNORECASE)
_TABLE_BARS = "| \t"
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")
FULL_STOP = re.compile(r"[.!?…。！？]\W*$")  # noqa: RUF001

MAX_OPENING_LINES = 4
"""A document's opening is its first sentence with the lines before it, if these are at most this many together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A sentence, list item or table row; `start` and `end` are code points of the passage.

    `terms` are those of its own words, and `known_terms` also those of the document's title and opening, such as the
    header of a mail or the parties of a contract, and of the headings above it; `near_terms` include those of the
    sentences before and after it. A label is a line that is no sentence, such as a plain heading.
    `named_row` is a table row with the names of its columns, and `cell_terms` are those of its cells alone; both are
    empty for other texts.
    """

    passage: Passage
    start: int
    end: int
    terms: frozenset[str]
    known_terms: frozenset[str]
    near_terms: frozenset[str]
    is_label: bool
    named_row: str = ""
    cell_terms: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The text on one line: a sentence can span several. A table row has the names of its columns."""
        return self.named_row or " ".join(self.passage.text[self.start : self.end].split())


def find_candidates(passages: Sequence[Passage]) -> list[Candidate]:
    """The candidates of all passages. Equal texts are one candidate, the first.

    Headings, headers of tables and code are not candidates, but count for the `near_terms` of the sentences next to
    them.
    """
    candidates: list[Candidate] = []
    for passage in passages:
        text, spans = passage.text, _join_bare_replies(passage.text, sentence_spans(passage.text))
        heading_terms = frozenset[str]()
        named_rows = name_columns(passage)
        sentence_terms = [frozenset(terms(text[start:end], passage.language)) for start, end in spans]
        title_terms = _read_title_terms(passage, spans)
        code = [block.span() for block in CODE_BLOCK.finditer(text)]
        rules = {start for start, end in spans if RULE.fullmatch(text, start, end)}
        for index, (start, end) in enumerate(spans):
            is_header = any(next_start in rules for next_start, _ in spans[index + 1 : index + 2])
            in_code = any(block_start <= start < block_end for block_start, block_end in code)
            if _HEADING.match(text, start) and not in_code:
                heading_terms = sentence_terms[index]
            if is_header or in_code or _NO_SENTENCE.match(text, start, end):
                continue
            near_terms = frozenset[str]().union(*sentence_terms[max(0, index - 1) : index + 2])
            first, last = _strip_marks(text, start, end)
            is_marked = text[start] == "|" or bool(_BULLET.match(text, start, end))
            named_row = named_rows.get((start, end), "")
            own_terms = sentence_terms[index].union(terms(named_row, passage.language))
            candidates.append(
                Candidate(
                    passage=passage,
                    start=first,
                    end=last,
                    terms=own_terms,
                    known_terms=own_terms | title_terms | heading_terms,
                    near_terms=near_terms | own_terms,
                    is_label=not is_marked and not FULL_STOP.search(text[first:last]),
                    named_row=named_row,
                    cell_terms=sentence_terms[index] if named_row else frozenset(),
                )
            )
    return list({candidate.text: candidate for candidate in reversed(candidates)}.values())[::-1]


def _read_title_terms(passage: Passage, spans: Sequence[tuple[int, int]]) -> frozenset[str]:
    """The terms of the title, of the first chunk's headings, and of the opening if the passage begins the document."""
    opening = _find_opening(passage.text, spans) if passage.start == 0 else []
    lines = [passage.text[start:end] for start, end in opening if not _HEADING.match(passage.text, start)]
    title = "\n".join([passage.hit.origin.title, passage.chunks[0].prefix, *lines])
    return frozenset(terms(title, passage.language))


def _find_opening(text: str, spans: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The lines that open a document, up to its first sentence; none if that is not among the first ones."""
    first = spans[:MAX_OPENING_LINES]
    count = next((count for count, (start, end) in enumerate(first, 1) if FULL_STOP.search(text[start:end])), 0)
    return first[:count]


def _join_bare_replies(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins a sentence that is only a yes or no with the next one of its line, which says what it is about."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and _BARE_REPLY.fullmatch(text, *joined[-1]) and "\n" not in text[joined[-1][1] : start]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _strip_marks(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without a list's bullet, the bars around a table's row, or a plain text's heading in capitals."""
    if bullet := _BULLET.match(text, start, end):
        return bullet.end(), end
    if text[start] == "|":
        row = text[start:end]
        return start + len(row) - len(row.lstrip(_TABLE_BARS)), start + len(row.rstrip(_TABLE_BARS))
    first_line, _, others = text[start:end].partition("\n")
    return (end - len(others.lstrip()) if others and first_line.isupper() else start), end
