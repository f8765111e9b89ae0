"""An answer with its citations, while it is written."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from rag_core.answering.citing.citation_notes import source_list
from rag_core.answering.citing.citation_quotes import QuotedPassage
from rag_core.answering.citing.links import passage_hosts
from rag_core.answering.citing.marker_output import Piece
from rag_core.answering.citing.marker_scan import MarkerScanner
from rag_core.events import CitationAdded, TextDelta
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Citation, CitationStyle, Passage

CitedEvents: TypeAlias = list[TextDelta | CitationAdded]

_MAX_CLAIM_LENGTH = 1000
_WORD = re.compile(r"\w")
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]")
_LETTER = re.compile(r"[^\W\d_]")
_NO_NEWLINE = re.compile(r"[^\n]")


class Citer:
    """A filter for a generator's text that cites the passages which its markers name.

    The result does not depend on the pieces in which the text arrives. Links are allowed to `hosts`, and to the host of
    a passage once it is cited.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        collection: str,
        style: CitationStyle = "inline",
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._passages = {passage.n: QuotedPassage(passage) for passage in passages}
        self._collection, self._style = collection, style
        mark = "[^{}]" if style == "footnote" else "[{}]"
        self._scanner = MarkerScanner(passage_hosts(passages), hosts, mark)
        self._text, self._prose = _GrowingText(), _GrowingText()
        self._claim: tuple[int, int] | None = None
        self._citations: dict[tuple[int, tuple[int, int]], Citation] = {}

    def feed(self, text: str) -> CitedEvents:
        """Returns the events that later text cannot change.

        A link is held up to 2,000 code points; a block with code until it ends, or up to the next item of a list.
        """
        return self._cite_pieces(self._scanner.feed(text))

    def finish(self) -> CitedEvents:
        """Returns the events of the remaining text, and of the list of sources that the style requires."""
        events = self._cite_pieces(self._scanner.finish())
        if sources := source_list(list(self._citations.values()), self._style, self._scanner.hosts):
            fence = self._scanner.open_fence
            ending = f"\n{fence}{sources}" if fence else sources
            self._text.append(ending)
            events.append(TextDelta(ending))
        return events

    @property
    def answer(self) -> Answer:
        """The answer so far."""
        citations = tuple(self._citations.values())
        return Answer(text=str(self._text), citations=citations, coverage=coverage(str(self._prose), citations))

    def _cite_pieces(self, pieces: Sequence[Piece]) -> CitedEvents:
        """The events of the pieces: one for each marker and its citation, and one for the text between markers."""
        events: CitedEvents = []
        for are_markers, run in groupby(pieces, key=lambda piece: piece.n > 0):
            if not are_markers:
                events.append(TextDelta("".join(map(self._add_piece, run))))
                continue
            for marker in run:
                claim = self._claim = self._claim or self._find_claim()
                start = len(self._text)
                events.append(TextDelta(self._add_piece(marker)))
                events.append(CitationAdded(self._add_citation(marker.n, claim, (start, len(self._text)))))
        return events

    def _add_piece(self, piece: Piece) -> str:
        """Returns the piece's text. Markers and blocks of code are blank in the prose."""
        prose = _NO_NEWLINE.sub(" ", piece.text) if piece.n or piece.block else piece.text
        self._text.append(piece.text)
        self._prose.append(prose)
        if _WORD.search(prose):
            self._claim = None
        return piece.text

    def _find_claim(self) -> tuple[int, int]:
        """The span of the sentence before the current position, complete or not; an empty span here if there is none.

        The number of a list item is not a claim, nor is a heading after its line.
        """
        before = self._prose.tail(_MAX_CLAIM_LENGTH)
        offset = len(self._prose) - len(before)
        for start, end in sentence_spans(before)[-1:]:
            text = before[start:end]
            is_past_heading = text.startswith("#") and "\n" in before[end:]
            if _WORD.search(text) and not _LIST_NUMBER.fullmatch(text) and not is_past_heading:
                return offset + start, offset + end
        return len(self._prose), len(self._prose)

    def _add_citation(self, n: int, claim: tuple[int, int], marker: tuple[int, int]) -> Citation:
        """Returns the citation; a second marker of the same passage and claim is a second span of one citation."""
        existing = self._citations.get((n, claim))
        if existing:
            citation = replace(existing, spans=(*existing.spans, marker))
        else:
            text = self._prose.tail(len(self._prose) - claim[0])[: claim[1] - claim[0]]
            citation = self._passages[n].citation(text, claim, marker, self._collection)
        self._citations[n, claim] = citation
        return citation


def cite(
    text: str,
    passages: Sequence[Passage],
    collection: str,
    style: CitationStyle = "inline",
    hosts: frozenset[str] = frozenset(),
) -> Answer:
    """Filters and cites a complete text."""
    citer = Citer(passages, collection, style, hosts)
    citer.feed(text)
    citer.finish()
    return citer.answer


def coverage(prose: str, citations: Sequence[Citation]) -> float:
    """The share of the sentences that are the claim of a citation, from 0 to 1; headings do not count."""
    spans = sentence_spans(prose)
    texts = [prose[start:end] for start, end in spans]
    sentences = {index for index, text in enumerate(texts) if not text.startswith("#") and _LETTER.search(text)}
    starts = [start for start, _ in spans]
    cited = {bisect_left(starts, citation.claim[1]) - 1 for citation in citations}
    return len(cited & sentences) / len(sentences) if sentences else 0.0


class _GrowingText:
    """A text that grows at its end, in time that does not depend on its length."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        return "".join(self._pieces)

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def tail(self, length: int) -> str:
        """The last `length` code points, or the whole text if it is shorter."""
        pieces: list[str] = []
        for piece in reversed(self._pieces):
            if length <= 0:
                break
            pieces.append(piece[-length:])
            length -= len(piece)
        return "".join(reversed(pieces))
