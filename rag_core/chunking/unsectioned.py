"""Whole sentences packed into chunks, wherever sections begin: for texts whose headings mean little."""

from dataclasses import replace
from uuid import UUID

from rag_core.chunking.positions import with_section
from rag_core.chunking.sections import SectionsChunker
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document


class SentencesChunker:
    """A chunk's section is the one that it begins in."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._packing = SectionsChunker(tokenizer, tokens, overlap, prefix_tokens)

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        chunks = self._packing.split(document_id, replace(document, sections=()))
        return tuple(with_section(chunk, document) for chunk in chunks)
