"""Batching of questions from many callers: a batch of four takes half the time for each of them."""

from collections.abc import Sequence

from rag_core.models.batches import Batches
from rag_core.protocols import QueryEmbedder
from rag_core.types import Matrix

MAX_TEXTS = 8
"""The largest batch. Larger ones take no less time per text, and delay the first of them."""


class BatchingEmbedder:
    """A QueryEmbedder that encodes the calls together that arrive while its model is busy. A lone one never waits."""

    def __init__(self, embedder: QueryEmbedder) -> None:
        self._batches = Batches[str, Matrix](embedder.embed, lambda _text: 1, limit=MAX_TEXTS)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await self._batches.compute(texts)
