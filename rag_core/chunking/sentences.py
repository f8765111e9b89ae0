"""Whole sentences packed into chunks across sections, for texts whose headings mean little."""

from dataclasses import replace
from uuid import UUID

from rag_core.chunking.positions import with_section
from rag_core.chunking.sections import SectionsChunker
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document


class SentencesChunker:
    """Packs sentences across sections. A chunk's section is the one in which it begins."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._chunker = SectionsChunker(tokenizer, tokens, overlap, prefix_tokens)

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        chunks = self._chunker.split(document_id, replace(document, sections=()))
        return tuple(with_section(chunk, document) for chunk in chunks)
