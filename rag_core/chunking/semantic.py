"""Whole sentences in chunks that end where the text changes its subject.

To cut a section, each of its tokens is embedded one time more. At most, this doubles the embedder's work.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from uuid import UUID

import numpy as np

from rag_core.chunking.outline import Outliner
from rag_core.chunking.packing import Sentence, merge_sections, total_tokens
from rag_core.chunking.topic_boundaries import block_similarities, cheapest_cuts
from rag_core.errors import DocumentError, RagError
from rag_core.protocols import DocumentEmbedder, Tokenizer
from rag_core.types import Chunk, Document


class SemanticChunker:
    """Cuts within sections. The model is loaded for the first section that is longer than a chunk."""

    def __init__(
        self, tokenizer: Tokenizer, tokens: int, prefix_tokens: int, open_embedder: Callable[[], DocumentEmbedder]
    ) -> None:
        self._outliner, self._tokens = Outliner(tokenizer, tokens, prefix_tokens), tokens
        self._open_embedder = open_embedder

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """Raises DocumentError("split", ...), which can be retried, if the model cannot be loaded or fails."""
        outline = self._outliner.outline(document)
        groups = merge_sections(outline.sentences, outline.sections, self._tokens)
        to_cut = [sentence for group in groups if self._is_too_long(group) for sentence in group]
        texts = [document.text[sentence.start : sentence.end] for sentence in to_cut]
        try:
            vectors = self._embedder.embed(texts) if texts else np.empty((0, 0), np.float32)
        except (RagError, OSError, ValueError, RuntimeError) as error:
            raise DocumentError("split", f"the embedding model fails: {error}", True) from error
        parts: list[Sequence[Sentence]] = []
        first = 0
        for group in groups:
            if not self._is_too_long(group):
                parts.append(group)
                continue
            costs = block_similarities(vectors[first : first + len(group)]).tolist()
            first += len(group)
            cuts = cheapest_cuts([sentence.tokens for sentence in group], costs, self._tokens)
            parts += [group[start:end] for start, end in cuts]
        return tuple(self._outliner.build_chunks(document_id, document, outline, parts))

    @cached_property
    def _embedder(self) -> DocumentEmbedder:
        return self._open_embedder()

    def _is_too_long(self, group: Sequence[Sentence]) -> bool:
        return total_tokens(group) > self._tokens
