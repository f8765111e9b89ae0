"""A cap on the hits of each document, so that the hits come from many documents."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class PerDocument:
    """Keeps the best `max_hits` hits of each document among the first `depth` hits."""

    stage_name: ClassVar[str] = "per_document"

    retriever: Retriever
    max_hits: int
    depth: int

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage(self.stage_name) as running:
            counts: Counter[UUID] = Counter()
            best = []
            for hit in hits:
                counts[hit.chunk.document_id] += 1
                if counts[hit.chunk.document_id] <= self.max_hits:
                    best.append(hit)
            running.ranking = tuple(hit.chunk.id for hit in best)
        return best[:k]
