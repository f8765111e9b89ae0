"""Adapters between legs and retrievers, and the translation of errors from legs and models of other authors."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from math import nan
from typing import TypeVar
from uuid import UUID

from rag_core.errors import RetrievalError, translate_foreign_errors
from rag_core.protocols import Leg, Ranking, Retriever
from rag_core.stage import stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LegRetriever:
    """A retriever from one leg: it adds the texts."""

    corpus: CorpusReader
    name: str
    leg: Leg

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        async with self.corpus.reading(query):
            async with stage(self.name) as rank_stage:
                ranking = await self.leg.rank(query, k)
                rank_stage.ranking = tuple(id for id, _ in ranking)
            async with stage("fetch") as fetch_stage:
                hits = await self.corpus.fetch_hits(query, self.name, ranking)
                fetch_stage.ranking = tuple(hit.chunk.id for hit in hits)
        return hits


@dataclass(frozen=True, slots=True)
class RetrieverLeg:
    """A leg from a retriever of the same corpus. It cannot score other chunks than its hits: `score` returns NaN."""

    retriever: Retriever

    async def rank(self, query: Query, k: int) -> Ranking:
        return [(hit.chunk.id, hit.score) for hit in await self.retriever.retrieve(query, k)]

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:  # noqa: ARG002
        return [nan] * len(chunk_ids)


async def translate_errors(work: Awaitable[T]) -> T:
    """Returns the result of `work`. Raises RetrievalError for an error that is not a RagError."""
    with translate_foreign_errors(RetrievalError):
        return await work
