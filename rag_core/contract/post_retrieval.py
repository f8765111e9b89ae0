"""The reranking of chunks."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import exp

from rag_core.config import CrossEncoderReranker, RerankedRetriever, find_reranked_retriever
from rag_core.contract.indexing import builtin_errors
from rag_core.contract.models import call_models
from rag_core.contract.retrieval import RERANKED_HITS, RetrievedChunk
from rag_core.contract.vector_store.port import check_top_k
from rag_core.errors import RagError, RetrievalError
from rag_core.retrieval.reranked import score_texts
from rag_core.settings import load_settings
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.reranking import build_reranker

_log = logging.getLogger(__name__)


def rerank_chunks(
    query: str, chunks: Sequence[RetrievedChunk], top_k: int = RERANKED_HITS, strict: bool = False
) -> list[RetrievedChunk]:
    """The best chunks by the profile's reranker, whose score replaces `similarity_score`.

    If the profile has no reranker or the reranker fails, returns the first `top_k` chunks unchanged and logs a warning.
    If `strict`, raises RuntimeError instead.
    """
    with builtin_errors("the chunks cannot be reranked"):
        check_top_k(top_k)
    reranked = find_reranked_retriever(load_settings().retrieval)
    try:
        if reranked is None:
            raise RetrievalError("the profile has no reranker")
        return _rerank(reranked, query, chunks)[:top_k]
    except RagError as error:
        if strict:
            raise RuntimeError(f"the chunks cannot be reranked: {error}") from error
        _log.warning("the chunks are not reranked: %s", error)
        return list(chunks[:top_k])


def _rerank(section: RerankedRetriever, question: str, chunks: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    async def score(remote: RemoteModels) -> list[float]:
        reranker = build_reranker(section.reranker, remote.pool)
        return await score_texts(reranker, question, [chunk.text for chunk in chunks])

    scores = call_models(score)
    is_probability = isinstance(section.reranker, CrossEncoderReranker)  # its scores are from 0 to 1 already
    rescored = [
        replace(
            chunk,
            similarity_score=float(score) if is_probability else 1 / (1 + exp(-score)),
            scores={**chunk.scores, "rerank": score},
        )
        for chunk, score in zip(chunks, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: (-chunk.scores["rerank"], chunk.chunk_id))
