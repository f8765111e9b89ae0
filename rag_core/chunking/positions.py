"""The position of a chunk in its document: its headings and its page."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from uuid import UUID

from rag_core.protocols import Chunker
from rag_core.types import Chunk, Document


@dataclass(frozen=True, slots=True)
class PagedChunker:
    """Adds to another chunker's chunks the page on which each begins, counted from 1, as metadata."""

    chunker: Chunker

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        chunks = self.chunker.split(document_id, document)
        return tuple(with_page(chunk, document) for chunk in chunks) if document.pages else chunks


def with_page(chunk: Chunk, document: Document) -> Chunk:
    page = max(1, bisect_right(document.pages, chunk.start))
    return replace(chunk, metadata={**chunk.metadata, "page": page})


def with_section(chunk: Chunk, document: Document) -> Chunk:
    path = path_at(document, chunk.start)
    return replace(chunk, metadata={**chunk.metadata, "section": " > ".join(path)}) if path else chunk


def path_at(document: Document, offset: int) -> tuple[str, ...]:
    """The headings above the offset; empty before the first section."""
    begun = bisect_right(document.sections, offset, key=lambda section: section.start)
    return document.sections[begun - 1].path if begun else ()
