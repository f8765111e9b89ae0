"""A retriever whose hits a reranker sorts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from rag_core.errors import RetrievalError
from rag_core.protocols import Reranker, Retriever
from rag_core.retrieval.legs import translate_errors
from rag_core.stage import attempt
from rag_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranked:
    """Reranks the first `depth` hits. If the reranker fails or exceeds `timeout` seconds, the hits keep their order."""

    stage_name: ClassVar[str] = "rerank"

    retriever: Retriever
    reranker: Reranker
    depth: int
    timeout: float = inf

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """The reranker reads prefix and text. Hits below `depth` follow in the retriever's order."""
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        if not hits:
            return []
        reranked = await attempt(
            self.stage_name,
            self._rerank(query, hits),
            otherwise=hits,
            timeout=self.timeout,
            ranking=lambda hits: [hit.chunk.id for hit in hits],
        )
        return reranked[:k]

    async def _rerank(self, query: Query, hits: list[Hit]) -> list[Hit]:
        candidates, remaining = hits[: self.depth], hits[self.depth :]
        scores = await score_texts(self.reranker, query.text, [hit.chunk.embedded_text for hit in candidates])
        reranked = [hit.rescored("rerank", score) for hit, score in zip(candidates, scores, strict=True)]
        return sorted(reranked, key=lambda hit: -hit.score) + remaining  # ties keep their order


async def score_texts(reranker: Reranker, question: str, texts: Sequence[str]) -> list[float]:
    """The reranker's scores, in the order given. Raises RetrievalError if it breaks or a score is missing."""
    scores = await translate_errors(reranker.score(question, texts))
    if len(scores) != len(texts):
        raise RetrievalError(f"the reranker must return one score per text, got {len(scores)} for {len(texts)}")
    return scores
