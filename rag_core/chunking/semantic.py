"""Whole sentences, cut where the text changes its subject.

Every token of a section that has to be cut is encoded once more for it: the embedder's work doubles at the most.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from uuid import UUID

import numpy as np

from rag_core.chunking.outline import Outliner
from rag_core.chunking.packing import Sentence, merged, total_tokens
from rag_core.chunking.topic_boundaries import cheapest_cuts, similarities
from rag_core.errors import DocumentError, RagError
from rag_core.protocols import DocumentEmbedder, Tokenizer
from rag_core.types import Chunk, Document, Matrix


class SemanticChunker:
    """Within sections. The model is loaded for the first section that is longer than a chunk."""

    def __init__(
        self, tokenizer: Tokenizer, tokens: int, prefix_tokens: int, open_embedder: Callable[[], DocumentEmbedder]
    ) -> None:
        self._outliner, self._tokens = Outliner(tokenizer, tokens, prefix_tokens), tokens
        self._open_embedder = open_embedder

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        """DocumentError("split", ...), to be tried again, if the model cannot be loaded or fails."""
        outline = self._outliner.outline(document)
        groups = merged(outline.sentences, outline.sections, self._tokens)
        long = [sentence for group in groups if self._is_long(group) for sentence in group]
        vectors = self._vectors([document.text[sentence.start : sentence.end] for sentence in long])
        return tuple(self._outliner.chunks(document_id, document, outline, list(self._parts(groups, vectors))))

    def _is_long(self, group: Sequence[Sentence]) -> bool:
        return total_tokens(group) > self._tokens

    def _parts(self, groups: Sequence[Sequence[Sentence]], vectors: Matrix) -> Iterator[Sequence[Sentence]]:
        first = 0
        for group in groups:
            if not self._is_long(group):
                yield group
                continue
            costs = similarities(vectors[first : first + len(group)])
            first += len(group)
            for start, end in cheapest_cuts([sentence.tokens for sentence in group], costs.tolist(), self._tokens):
                yield group[start:end]

    def _vectors(self, texts: Sequence[str]) -> Matrix:
        try:
            return self._embedder.embed(texts) if texts else np.empty((0, 0), np.float32)
        except (RagError, OSError, ValueError, RuntimeError) as error:
            raise DocumentError("split", f"the embedding model fails: {error}", True) from error

    @cached_property
    def _embedder(self) -> DocumentEmbedder:
        return self._open_embedder()
