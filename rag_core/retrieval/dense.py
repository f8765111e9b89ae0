"""The dense leg: chunks whose vectors are nearest to the question's."""

from collections.abc import Sequence
from uuid import UUID

from rag_core.protocols import QueryEmbedder, Ranking
from rag_core.retrieval.question_cache import Remembered
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Matrix, Query, Space


class DenseLeg:
    """Scores are cosines. A question is encoded once, however often the leg is asked about it."""

    def __init__(self, corpus: CorpusReader, embedder: QueryEmbedder, space: Space) -> None:
        self._corpus, self._embedder, self._space = corpus, embedder, space
        self._vectors = Remembered(self._vector)

    async def rank(self, query: Query, k: int) -> Ranking:
        return await self._corpus.nearest(query, await self._vectors.of(query.text), self._space, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """NaN for chunks that have no vector."""
        return await self._corpus.similarities(query, await self._vectors.of(query.text), self._space, chunk_ids)

    async def _vector(self, question: str) -> Matrix:
        vectors = await self._embedder.embed([question])
        vector: Matrix = vectors[0]
        return vector
