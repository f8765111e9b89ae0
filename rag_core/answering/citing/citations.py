"""An answer with its citations, while it is written."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TypeAlias

from rag_core.answering.citing.citation_notes import noted
from rag_core.answering.citing.citation_quotes import QuotedPassage
from rag_core.answering.citing.links import origins
from rag_core.answering.citing.marker_page import Piece
from rag_core.answering.citing.marker_scan import MarkerScanner
from rag_core.events import CitationAdded, TextDelta
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Citation, CitationStyle, Passage

Told: TypeAlias = list[TextDelta | CitationAdded]

_LONGEST_CLAIM = 1000
_WORD = re.compile(r"\w")
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]")
_LETTER = re.compile(r"[^\W\d_]")
_NO_NEWLINE = re.compile(r"[^\n]")


class Citer:
    """Reads a generator's text, in whatever pieces it comes, and tells what the user may read of it.

    Markers name the passages by their `n`. Links may lead to `hosts`, and to where a passage comes from as soon as
    it is cited.
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
        self._scanner = MarkerScanner(origins(passages), hosts, mark)
        self._told, self._prose = _Text(), _Text()
        self._claim: tuple[int, int] | None = None
        self._citations: dict[tuple[int, tuple[int, int]], Citation] = {}

    def feed(self, text: str) -> Told:
        """What is decided by now: a link or code is held back until its end, but no more than 2,000 code points."""
        return self._tell(self._scanner.feed(text))

    def finish(self) -> Told:
        """The rest, and the list that the style ends an answer with."""
        return [*self._tell(self._scanner.finish()), *self._noted()]

    @property
    def answer(self) -> Answer:
        """So far."""
        citations = tuple(self._citations.values())
        return Answer(text=str(self._told), citations=citations, confidence=coverage(str(self._prose), citations))

    def _tell(self, pieces: Sequence[Piece]) -> Told:
        told: Told = []
        for marked, run in groupby(pieces, key=_marked):
            if marked:
                told += chain.from_iterable(map(self._cited, run))
            else:
                told.append(self._written(run))
        return told

    def _written(self, pieces: Iterable[Piece]) -> TextDelta:
        return TextDelta("".join(map(self._add, pieces)))

    def _cited(self, marker: Piece) -> Told:
        claim = self._claim = self._claim or self._claim_before()
        start = len(self._told)
        delta = TextDelta(self._add(marker))
        return [delta, CitationAdded(self._citation(marker.n, claim, (start, len(self._told))))]

    def _add(self, piece: Piece) -> str:
        """Markers and blocks of code are blank in the prose."""
        prose = _NO_NEWLINE.sub(" ", piece.text) if piece.n or piece.block else piece.text
        self._told.add(piece.text)
        self._prose.add(prose)
        if _WORD.search(prose):
            self._claim = None
        return piece.text

    def _claim_before(self) -> tuple[int, int]:
        """Of length 0, and here, where no sentence ended or goes on."""
        before = self._prose.end_of(_LONGEST_CLAIM)
        first = len(self._prose) - len(before)
        spans = [span for span in sentence_spans(before)[-1:] if _is_claim(before, *span)]
        start, end = spans[0] if spans else (len(before), len(before))
        return first + start, first + end

    def _citation(self, n: int, claim: tuple[int, int], span: tuple[int, int]) -> Citation:
        """A further marker of the same claim is a further span."""
        known = self._citations.get((n, claim))
        if known:
            citation = replace(known, spans=(*known.spans, span))
        else:
            text = self._prose.end_of(len(self._prose) - claim[0])[: claim[1] - claim[0]]
            citation = self._passages[n].citation(text, claim, span, self._collection)
        self._citations[n, claim] = citation
        return citation

    def _noted(self) -> Iterator[TextDelta]:
        if notes := noted(list(self._citations.values()), self._style, self._scanner.hosts):
            ending = f"\n{self._scanner.fence}{notes}" if self._scanner.fence else notes
            self._told.add(ending)
            yield TextDelta(ending)


def cite(
    text: str,
    passages: Sequence[Passage],
    collection: str,
    style: CitationStyle = "inline",
    hosts: frozenset[str] = frozenset(),
) -> Answer:
    """Of a whole text at once."""
    citer = Citer(passages, collection, style, hosts)
    citer.feed(text)
    citer.finish()
    return citer.answer


def coverage(prose: str, citations: Sequence[Citation]) -> float:
    """The share of the sentences that are the claim of a citation, from 0 to 1; headings are none."""
    spans = sentence_spans(prose)
    sentences = {place for place, (start, end) in enumerate(spans) if _is_sentence(prose[start:end])}
    starts = [start for start, _ in spans]
    cited = {bisect_left(starts, each.claim[1]) - 1 for each in citations}
    return len(cited & sentences) / len(sentences) if sentences else 0.0


def _is_sentence(text: str) -> bool:
    return not text.startswith("#") and bool(_LETTER.search(text))


def _is_claim(before: str, start: int, end: int) -> bool:
    """The mark of a list is none, nor is a heading behind which the line ended."""
    text, after = before[start:end], before[end:]
    over = text.startswith("#") and "\n" in after
    return bool(_WORD.search(text)) and not _LIST_NUMBER.fullmatch(text) and not over


def _marked(piece: Piece) -> bool:
    return piece.n > 0


class _Text:
    """Grows at its end, in time that does not depend on its length."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def end_of(self, length: int) -> str:
        """Its last `length` code points, or all where it is shorter."""
        taken: list[str] = []
        for piece in reversed(self._pieces):
            if length <= 0:
                break
            taken.append(piece[-length:])
            length -= len(piece)
        return "".join(reversed(taken))
