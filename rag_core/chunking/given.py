"""Chunks and vectors that documents bring along, and the checks that they fit the collection."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from rag_core.errors import DocumentError
from rag_core.protocols import Chunker, Tokenizer
from rag_core.types import Chunk, Document, GivenChunk, Matrix, chunk_id

LENGTH_TOLERANCE = 0.01
"""The largest difference of a vector's length from 1. Vectors that were stored with 16 bits differ by up to .001."""


@dataclass(frozen=True, slots=True)
class GivenChunker:
    """A chunker that keeps the chunks that a document brings, in text order. Another one splits the other documents.

    A chunk without a vector must have at most `max_tokens` tokens with its prefix: the embedder would cut off the rest.
    """

    chunker: Chunker
    tokenizer: Tokenizer
    max_tokens: int

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """Raises DocumentError if a given chunk is empty, outside of the text, or too long to be embedded."""
        if not document.given:
            return self.chunker.split(document_id, document)
        chunks = tuple(_build_chunks(document_id, document))
        missing = [chunk for chunk, given in zip(chunks, document.given, strict=True) if not given.vector]
        for chunk, length in zip(
            missing, self.tokenizer.lengths([chunk.embedded_text for chunk in missing]), strict=True
        ):
            if length > self.max_tokens:
                raise DocumentError(
                    "split",
                    f"chunk {chunk.ordinal} must have at most {self.max_tokens} tokens, the window of the embedding "
                    f"model, got {length}: give its vector too, or shorter chunks",
                )
        return chunks


def stack_given_vectors(document: Document, dimension: int) -> Matrix | None:
    """The vectors that the document brings, one row per chunk; None if it brings none.

    Raises DocumentError if only some chunks have one, or if one does not have this dimension and length 1.
    """
    vectors = [given.vector for given in document.given if given.vector]
    if not vectors:
        return None
    if len(vectors) < len(document.given):
        raise DocumentError(
            "split", f"all chunks or none must have a vector, got {len(vectors)} of {len(document.given)}"
        )
    for ordinal, vector in enumerate(vectors):
        if len(vector) != dimension:
            raise DocumentError(
                "split",
                f"the vector of chunk {ordinal} must have the {dimension} dimensions of the collection's embedding "
                f"model, got {len(vector)}",
            )
    matrix = np.array(vectors, np.float32)
    lengths = np.linalg.norm(matrix, axis=1)
    if len(wrong := np.flatnonzero(~(np.abs(lengths - 1) <= LENGTH_TOLERANCE))):
        raise DocumentError(
            "split",
            f"the vector of chunk {wrong[0]} must have length 1 (at most {LENGTH_TOLERANCE} more or less), got "
            f"{lengths[wrong[0]]:.4g}",
        )
    return matrix


def _build_chunks(document_id: UUID, document: Document) -> Iterator[Chunk]:
    repetitions: Counter[str] = Counter()
    for ordinal, given in enumerate(document.given):
        start, end = _strip_span(document.text, ordinal, given)
        text = document.text[start:end]
        yield Chunk(
            id=chunk_id(document_id, text, repetitions[text]),
            document_id=document_id,
            ordinal=ordinal,
            text=text,
            start=start,
            end=end,
            prefix=given.prefix,
            metadata=given.metadata,
        )
        repetitions[text] += 1


def _strip_span(text: str, ordinal: int, given: GivenChunk) -> tuple[int, int]:
    """The span without white space at both ends."""
    if not 0 <= given.start < given.end <= len(text):
        raise DocumentError(
            "split",
            f"chunk {ordinal} must be a span of the {len(text)} characters of the text, got "
            f"[{given.start}, {given.end})",
        )
    chunk = text[given.start : given.end]
    if not chunk.strip():
        raise DocumentError("split", f"chunk {ordinal} must not be blank, got {chunk!r:.60}")
    return given.end - len(chunk.lstrip()), given.start + len(chunk.rstrip())


def sort_given(document: Document) -> Document:
    """The document with its given chunks in text order."""
    return replace(document, given=tuple(sorted(document.given, key=lambda given: (given.start, given.end))))
