"""Hits of many documents, and not many of one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class PerDocument:
    """The best `most` hits of each document, chosen from the first `depth` ones."""

    retriever: Retriever
    most: int
    depth: int

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage("per_document") as kept:
            best = _best(hits, self.most)
            kept.ranking = tuple(hit.chunk.id for hit in best)
        return best[:k]


def _best(hits: Iterable[Hit], most: int) -> list[Hit]:
    seen: Counter[UUID] = Counter()
    best = []
    for hit in hits:
        seen[hit.chunk.document_id] += 1
        if seen[hit.chunk.document_id] <= most:
            best.append(hit)
    return best
