"""Which sentence of a passage supports a claim."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rag_core.answering.citing.markers import neutralised
from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.types import Chunk, Citation, Passage

_NUMBER_COUNTS = 2
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Quote:
    """By code points of the passage. `score` is the share of the claim's terms that stand in it, from 0 to 1."""

    start: int
    end: int
    score: float


class QuotedPassage:
    """A passage whose sentences are read once, however many claims ask for one."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage

    def citation(self, claim: str, place: tuple[int, int], span: tuple[int, int], collection: str) -> Citation:
        """`place` and `span` are the claim's and its marker's."""
        quote, origin = self.quote(claim), self.passage.hit.origin
        start, end = self.passage.start + quote.start, self.passage.start + quote.end
        chunk = chunk_of(self.passage, start, end)
        page = chunk.metadata.get("page")
        return Citation(
            n=self.passage.n,
            chunk_id=chunk.id,
            document_id=chunk.document_id,
            collection=collection,
            title=origin.title,
            uri=origin.uri,
            quote=self.passage.text[quote.start : quote.end],
            start=start,
            end=end,
            spans=(span,),
            claim=place,
            score=quote.score,
            page=page if isinstance(page, int) else None,
            section=str(chunk.metadata.get("section", "")),
            updated_at=origin.updated_at,
        )

    def quote(self, claim: str) -> Quote:
        """The sentence that holds the claim as it is, otherwise the one that shares most of its terms, otherwise the
        first."""
        return self._verbatim(claim) or self._nearest(claim)

    def _verbatim(self, claim: str) -> Quote | None:
        if not _WORD.search(claim):
            return None
        words = r"\s+".join(map(re.escape, claim.split()))
        found = re.search(rf"(?<!\w){words}(?!\w)", self._text)
        return found and Quote(*self._widened(*found.span()), 1.0)

    def _widened(self, start: int, end: int) -> tuple[int, int]:
        """To the sentence around it, where there is one."""
        return next((span for span in self._sentences if span[0] <= start and end <= span[1]), (start, end))

    def _nearest(self, claim: str) -> Quote:
        wanted = set(terms(claim, self.passage.language))
        shared = [wanted & found for found in self._terms]
        best = max(range(len(shared)), key=lambda place: (_weight(shared[place]), -place))
        return Quote(*self._sentences[best], len(shared[best]) / max(len(wanted), 1))

    @cached_property
    def _text(self) -> str:
        """As a generator read it."""
        return neutralised(self.passage.text)

    @cached_property
    def _sentences(self) -> Sequence[tuple[int, int]]:
        return sentence_spans(self.passage.text) or [(0, len(self.passage.text))]

    @cached_property
    def _terms(self) -> Sequence[set[str]]:
        return [set(terms(self._text[start:end], self.passage.language)) for start, end in self._sentences]


def chunk_of(passage: Passage, start: int, end: int) -> Chunk:
    """The first that holds this span of the document; otherwise the first that holds its start."""
    return next(_holding(passage, start, end), None) or next(_holding(passage, start, start + 1), passage.hit.chunk)


def _holding(passage: Passage, start: int, end: int) -> Iterator[Chunk]:
    return (chunk for chunk in passage.chunks if chunk.start <= start and end <= chunk.end)


def _weight(shared: set[str]) -> int:
    return sum(_NUMBER_COUNTS if any(map(str.isdigit, term)) else 1 for term in shared)
