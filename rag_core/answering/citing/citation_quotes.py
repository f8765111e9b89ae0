"""The sentence of a passage that supports a claim."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rag_core.answering.citing.markers import neutralize_markers
from rag_core.answering.citing.table_rows import name_columns
from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.types import Chunk, Citation, Passage

_NUMBER_WEIGHT = 2
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Quote:
    """A span of a passage's text, in code points. `score` is the share of the claim's terms in it, from 0 to 1."""

    start: int
    end: int
    score: float


class QuotedPassage:
    """A passage that claims cite. It is split into sentences once, for all claims."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage

    def citation(
        self, claim: str, claim_span: tuple[int, int], marker_span: tuple[int, int], collection: str
    ) -> Citation:
        """The citation of a claim; the spans are in code points of the answer."""
        quote, origin = self.quote(claim), self.passage.hit.origin
        start, end = self.passage.start + quote.start, self.passage.start + quote.end
        chunk = self._find_chunk(start, end)
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
            spans=(marker_span,),
            claim=claim_span,
            score=quote.score,
            page=page if isinstance(page, int) else None,
            section=str(chunk.metadata.get("section", "")),
            updated_at=origin.updated_at,
        )

    def quote(self, claim: str) -> Quote:
        """The sentence that contains the claim verbatim, else the table row that does with the names of its columns.

        Otherwise the first of the sentences that share most terms with the claim.

        A number counts as much as two words.
        """
        if verbatim := self._find_verbatim(claim) or self._find_row(claim):
            return verbatim
        claim_terms = set(terms(claim, self.passage.language))
        shared = [claim_terms & sentence_terms for sentence_terms in self._sentence_terms]
        weights = [sum(_NUMBER_WEIGHT if any(map(str.isdigit, term)) else 1 for term in common) for common in shared]
        best = weights.index(max(weights))
        return Quote(*self._sentences[best], len(shared[best]) / max(len(claim_terms), 1))

    def _find_verbatim(self, claim: str) -> Quote | None:
        """The sentence that contains the claim's words in order, with any white space between them, or None."""
        if not _WORD.search(claim):
            return None
        words = r"\s+".join(map(re.escape, claim.split()))
        match = re.search(rf"(?<!\w){words}(?!\w)", self._text)
        if match is None:
            return None
        around = (span for span in self._sentences if span[0] <= match.start() and match.end() <= span[1])
        return Quote(*next(around, match.span()), 1.0)

    def _find_row(self, claim: str) -> Quote | None:
        words = " ".join(claim.split())
        rows = name_columns(self.passage).items() if words else ()
        return next((Quote(*span, 1.0) for span, row in rows if words in neutralize_markers(row)), None)

    def _find_chunk(self, start: int, end: int) -> Chunk:
        """The first chunk that contains the span of the document, else the first that contains its start."""
        for needed_end in (end, start + 1):
            for chunk in self.passage.chunks:
                if chunk.start <= start and needed_end <= chunk.end:
                    return chunk
        return self.passage.hit.chunk

    @cached_property
    def _text(self) -> str:
        """The text as a generator reads it; as long as that of the passage."""
        return neutralize_markers(self.passage.text)

    @cached_property
    def _sentences(self) -> Sequence[tuple[int, int]]:
        return sentence_spans(self.passage.text) or [(0, len(self.passage.text))]

    @cached_property
    def _sentence_terms(self) -> Sequence[set[str]]:
        return [set(terms(self._text[start:end], self.passage.language)) for start, end in self._sentences]
