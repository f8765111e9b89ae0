"""The splade leg: chunks that share terms with the question, their own or those that a model adds, as it weighs them
(Formal et al., SPLADE v2, 2021)."""

from collections.abc import Sequence
from uuid import UUID

from rag_core.protocols import QueryWeigher, Ranking
from rag_core.retrieval.question_cache import Remembered
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Query, TermWeights


class SpladeLeg:
    """Scores are the dot products of the weights, by the model of that `fingerprint`. A question is weighed once,
    however often the leg is asked about it."""

    def __init__(self, corpus: CorpusReader, weigher: QueryWeigher, fingerprint: str) -> None:
        from rag_core.storage.lexical.splade_scoring import (
            compile_all,  # imports numba: not for who only lists or ingests
        )

        compile_all()
        self._corpus, self._weigher, self._fingerprint = corpus, weigher, fingerprint
        self._weights = Remembered(self._weighed)

    async def rank(self, query: Query, k: int) -> Ranking:
        """A chunk that shares no term with the question is not ranked."""
        return await self._corpus.splade(query, await self._weights.of(query.text), self._fingerprint, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        """NaN for chunks that have no weights."""
        weights = await self._weights.of(query.text)
        return await self._corpus.splade_scores(query, weights, self._fingerprint, chunk_ids)

    async def _weighed(self, question: str) -> TermWeights:
        (weights,) = await self._weigher.weigh([question])
        return weights
