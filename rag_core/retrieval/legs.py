"""From a leg to a retriever and back; and what anybody's own leg or model may raise, by a name of ours."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from math import nan
from typing import TypeVar
from uuid import UUID

from rag_core.errors import RagError, RetrievalError
from rag_core.protocols import Leg, Ranking, Retriever
from rag_core.stage import stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LegRetriever:
    """One leg by itself, with its texts."""

    corpus: CorpusReader
    name: str
    leg: Leg

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        async with self.corpus.reading(query):
            async with stage(self.name) as ranked:
                ranking = await self.leg.rank(query, k)
                ranked.ranking = tuple(id for id, _ in ranking)
            async with stage("fetch") as fetched:
                hits = await self.corpus.hits(query, self.name, ranking)
                fetched.ranking = tuple(hit.chunk.id for hit in hits)
        return hits


@dataclass(frozen=True, slots=True)
class RetrieverLeg:
    """A retriever of the same corpus as a leg. It knows no score but of what it finds: the others' are NaN."""

    retriever: Retriever

    async def rank(self, query: Query, k: int) -> Ranking:
        return [(hit.chunk.id, hit.score) for hit in await self.retriever.retrieve(query, k)]

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:  # noqa: ARG002
        return [nan] * len(chunk_ids)


async def named(work: Awaitable[T]) -> T:
    """RetrievalError for an error that has no name in `rag_core.errors`."""
    try:
        return await work
    except RagError:
        raise
    except Exception as error:  # what legs and models of anybody's own raise has no common root
        raise RetrievalError(f"{type(error).__name__}: {error}") from error
