"""A retriever's hits in the order of a reranker."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from uuid import UUID

from rag_core.errors import RetrievalError
from rag_core.protocols import Reranker, Retriever
from rag_core.retrieval.legs import named
from rag_core.stage import attempt
from rag_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranked:
    """The reranker reads the first `depth` hits; if it fails, or takes longer than `timeout` seconds, they stay."""

    retriever: Retriever
    reranker: Reranker
    depth: int
    timeout: float = inf

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """Prefix and text are reranked. Hits below `depth` follow, as the retriever ranked them."""
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        if not hits:
            return []
        work = self._reordered(query, hits)
        return (await attempt("rerank", work, otherwise=hits, timeout=self.timeout, ranking=_ids))[:k]

    async def _reordered(self, query: Query, hits: list[Hit]) -> list[Hit]:
        read, rest = hits[: self.depth], hits[self.depth :]
        scores = await named(self.reranker.score(query.text, [hit.chunk.embedded_text for hit in read]))
        if len(scores) != len(read):
            raise RetrievalError(f"the reranker must give a score a text, got {len(scores)} for {len(read)}")
        reranked = [hit.rescored("rerank", score) for hit, score in zip(read, scores, strict=True)]
        return sorted(reranked, key=lambda hit: -hit.score) + rest  # who ties keeps the order that it came in


def _ids(hits: Iterable[Hit]) -> Iterator[UUID]:
    return (hit.chunk.id for hit in hits)
