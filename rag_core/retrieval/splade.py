"""The splade leg: chunks that share terms with the question, weighted by a model, which also adds related terms (Formal
et al., SPLADE v2, 2021)."""

from collections.abc import Sequence
from uuid import UUID

from rag_core.protocols import QueryWeigher, Ranking
from rag_core.retrieval.question_cache import QuestionCache
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Query, TermWeights


class SpladeLeg:
    """Scores are dot products of term weights. The stored weights must come from the model with this `fingerprint`. The
    weights of recent questions are cached."""

    def __init__(self, corpus: CorpusReader, weigher: QueryWeigher, fingerprint: str) -> None:
        from rag_core.storage.lexical.splade_scoring import compile_all  # numba is slow to import

        compile_all()
        self._corpus, self._weigher, self._fingerprint = corpus, weigher, fingerprint
        self._weights = QuestionCache(self._weigh)

    async def rank(self, query: Query, k: int) -> Ranking:
        """Leaves out chunks that share no term with the question."""
        return await self._corpus.rank_splade(query, await self._weights.get(query.text), self._fingerprint, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """A chunk without weights has NaN."""
        weights = await self._weights.get(query.text)
        return await self._corpus.score_splade(query, weights, self._fingerprint, chunk_ids)

    async def _weigh(self, question: str) -> TermWeights:
        (weights,) = await self._weigher.weigh([question])
        return weights
