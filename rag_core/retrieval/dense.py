"""The dense leg: chunks whose vectors are nearest to the vector of the question."""

from collections.abc import Sequence
from uuid import UUID

from rag_core.protocols import QueryEmbedder, Ranking
from rag_core.retrieval.question_cache import QuestionCache
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Matrix, Query, Space


class DenseLeg:
    """Scores are cosines. The vectors of recent questions are cached."""

    def __init__(self, corpus: CorpusReader, embedder: QueryEmbedder, space: Space) -> None:
        self._corpus, self._embedder, self._space = corpus, embedder, space
        self._vectors = QuestionCache(self._embed)

    async def rank(self, query: Query, k: int) -> Ranking:
        return await self._corpus.rank_dense(query, await self._vectors.get(query.text), self._space, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """A chunk without a vector has NaN."""
        return await self._corpus.score_dense(query, await self._vectors.get(query.text), self._space, chunk_ids)

    async def _embed(self, question: str) -> Matrix:
        vectors = await self._embedder.embed([question])
        vector: Matrix = vectors[0]
        return vector
