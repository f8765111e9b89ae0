"""Whole sentences packed into chunks, within the sections of a document."""

from uuid import UUID

from rag_core.chunking.outline import Outliner
from rag_core.chunking.packing import merged, packed
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document


class SectionsChunker:
    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._outliner, self._tokens, self._overlap = Outliner(tokenizer, tokens, prefix_tokens), tokens, overlap

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        outline = self._outliner.outline(document)
        groups = merged(outline.sentences, outline.sections, self._tokens)
        parts = [part for group in groups for part in packed(group, self._tokens, self._overlap)]
        return tuple(self._outliner.chunks(document_id, document, outline, parts))
