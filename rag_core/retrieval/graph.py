"""The graph leg: chunks that mention an entity of the question, or an entity that is related to one."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.graph import reading
from rag_core.types import Query


@dataclass(frozen=True, slots=True)
class GraphLeg:
    """Ranks chunks of collections that were ingested with `graph`; for others it returns no chunks."""

    corpus: CorpusReader

    async def rank(self, query: Query, k: int) -> Ranking:
        """Returns no chunks if no part of the question is an entity of the collection."""
        async with self.corpus.snapshot(query) as snapshot:
            return await reading.rank(snapshot, query, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        async with self.corpus.snapshot(query) as snapshot:
            return await reading.score(snapshot, query, chunk_ids)
