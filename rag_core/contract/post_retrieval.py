"""The reranking of chunks."""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from rag_core.config import CrossEncoderReranker, RerankedRetriever, find_reranked_retriever
from rag_core.contract.chunk import RetrievedChunk, read_chunks
from rag_core.contract.indexing import builtin_errors
from rag_core.contract.models import call_models
from rag_core.contract.retrieval import RERANKED_HITS
from rag_core.contract.stage_log import count_results, log_stage, warn
from rag_core.contract.vector_store.port import check_top_k
from rag_core.errors import RagError, RetrievalError
from rag_core.retrieval.reranked import score_texts
from rag_core.settings import load_settings
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.reranking import build_reranker


@log_stage("rerank_chunks")
def rerank_chunks(
    query: str, chunks: Sequence[Mapping[str, Any]], top_k: int = RERANKED_HITS, strict: bool = False
) -> list[RetrievedChunk]:
    """The best chunks by the profile's reranker, whose score replaces `similarity_score`.

    If the profile has no reranker or the reranker fails, returns the first `top_k` chunks unchanged and logs a warning.
    If `strict`, raises RuntimeError instead. Raises ValueError if a chunk lacks a key of `CHUNK_KEYS`.
    """
    retrieved = read_chunks(chunks)
    with builtin_errors("the chunks cannot be reranked"):
        check_top_k(top_k)
    reranked = find_reranked_retriever(load_settings().retrieval)
    try:
        if reranked is None:
            raise RetrievalError("the profile has no reranker")
        best = _rerank(reranked, query, retrieved)[:top_k]
    except RagError as error:
        if strict:
            raise RuntimeError(f"the chunks cannot be reranked: {error}") from error
        warn(f"the chunks are not reranked: {error}")
        best = retrieved[:top_k]
    count_results(reranked_results=len(best))
    return best


def _rerank(section: RerankedRetriever, question: str, chunks: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    async def score(remote: RemoteModels) -> list[float]:
        reranker = build_reranker(section.reranker, remote.pool)
        return await score_texts(reranker, question, [chunk.text for chunk in chunks])

    scores = call_models(score)
    is_probability = isinstance(section.reranker, CrossEncoderReranker)  # its scores are from 0 to 1 already
    rescored = [
        chunk.rescored("rerank", score, float(score) if is_probability else 1 / (1 + exp(-score)))
        for chunk, score in zip(chunks, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: (-chunk.scores["rerank"], chunk.chunk_id))
