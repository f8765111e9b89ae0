"""The dense leg: chunks whose vectors are nearest to the question's."""

from collections.abc import Sequence
from uuid import UUID

from rag_core.protocols import QueryEmbedder, Ranking
from rag_core.stage import stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Matrix, Query, Space

REMEMBERED = 64
"""Questions whose vectors are kept: more than are asked at once in one process."""


class DenseLeg:
    """Scores are cosines. A question is encoded once, however often the leg is asked about it."""

    def __init__(self, corpus: CorpusReader, embedder: QueryEmbedder, space: Space) -> None:
        self._corpus, self._embedder, self._space = corpus, embedder, space
        self._vectors: dict[str, Matrix] = {}

    async def rank(self, query: Query, k: int) -> Ranking:
        return await self._corpus.nearest(query, await self._vector(query.text), self._space, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """NaN for chunks that have no vector."""
        return await self._corpus.similarities(query, await self._vector(query.text), self._space, chunk_ids)

    async def _vector(self, question: str) -> Matrix:
        vector = self._vectors.pop(question, None)
        if vector is None:
            async with stage("embed"):
                (vector,) = await self._embedder.embed([question])
            if len(self._vectors) >= REMEMBERED:
                del self._vectors[next(iter(self._vectors))]
        self._vectors[question] = vector  # behind those that were asked before
        return vector
