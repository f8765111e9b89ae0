"""Whole sentences packed into chunks, within the sections of a document."""

from uuid import UUID

from rag_core.chunking.outline import Outliner
from rag_core.chunking.packing import merge_sections, pack_sentences
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document


class SectionsChunker:
    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._outliner, self._tokens, self._overlap = Outliner(tokenizer, tokens, prefix_tokens), tokens, overlap

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        outline = self._outliner.outline(document)
        groups = merge_sections(outline.sentences, outline.sections, self._tokens)
        parts = [part for group in groups for part in pack_sentences(group, self._tokens, self._overlap)]
        return tuple(self._outliner.build_chunks(document_id, document, outline, parts))
