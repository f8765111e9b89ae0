"""The search of stored documents by one or several methods."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from anyio import to_thread

from rag_core.config import (
    Bm25Retriever,
    DenseRetriever,
    GraphRetriever,
    HybridRetriever,
    LegSettings,
    RetrievalSettings,
    RrfFusion,
)
from rag_core.contract.chunk import RetrievedChunk
from rag_core.contract.indexing import builtin_errors, collection_name
from rag_core.contract.pre_retrieval import check_question, get_query_embedding
from rag_core.contract.stage_log import count_results, log_stage, warn
from rag_core.contract.vector_store.port import check_top_k, unit_vector
from rag_core.errors import ModelError
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.types import Hit, Matrix, StageReport
from rag_core.wiring.embedding import embedding_space, load_shared_encoder
from rag_core.wiring.models import RemoteModels

EmbedQuestion: TypeAlias = Callable[[str], Sequence[float] | Matrix]

VECTOR_HITS, KEYWORD_HITS, GRAPH_HITS, MERGED_HITS, RERANKED_HITS = 20, 20, 10, 40, 5
RRF_K = 60

_LEGS: Mapping[str, LegSettings] = {
    "vector": DenseRetriever(type="dense"),
    "keyword": Bm25Retriever(type="bm25"),
    "graph": GraphRetriever(type="graph"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    top_k: int = RERANKED_HITS
    expand_query: bool = False
    enable_reranking: bool = True
    enable_vector_search: bool = True
    enable_keyword_search: bool = True
    enable_graph_search: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Chunks, best first, and the stages that produced them. A stage with an `error` was left out."""

    chunks: list[RetrievedChunk]
    stages: tuple[StageReport, ...] = ()


DEFAULT_OPTIONS = QueryOptions()


@log_stage("vector_search")
def vector_search(name: str, query_embedding: Sequence[float], top_k: int = VECTOR_HITS) -> list[RetrievedChunk]:
    """The nearest chunks, best first; `similarity_score` is (1 + cosine) / 2.

    Raises ValueError if nothing is stored under the name, or if the vector has a wrong dimension, NaN or only zeros.
    Raises RuntimeError if the search fails.
    """
    with builtin_errors(f"{name} cannot be searched"):
        vector = unit_vector(query_embedding, embedding_space(load_settings().embedding).dimension)
    # the text is not embedded: it stands for the vector
    hits, _ = _search(name, "a vector", top_k, _LEGS["vector"], lambda _: vector)
    count_results(vector_results=len(hits))
    # rounding can make a cosine slightly larger than 1 or smaller than -1
    return [_chunk_from_hit(hit, "vector", min(1.0, max(0.0, (1 + hit.score) / 2))) for hit in hits]


@log_stage("keyword_search")
def keyword_search(name: str, question: str, top_k: int = KEYWORD_HITS) -> list[RetrievedChunk]:
    """The best chunks by BM25 that contain a word of the question, best first.

    `similarity_score` is s / (1 + s) for the BM25 score s. Raises ValueError if nothing is stored under the name, and
    RuntimeError if the search fails.
    """
    return _search_one_method(name, question, top_k, "keyword")


@log_stage("graph_search")
def graph_search(name: str, question: str, top_k: int = GRAPH_HITS) -> list[RetrievedChunk]:
    """Chunks that mention the question's entities or entities related to them, best first.

    Returns [] if the stored documents mention no entity of the question. `index_document` and `store_document` find the
    entities of what they store; `rag ingest` does so if the settings have `graph`. Raises the errors of
    `keyword_search`.
    """
    return _search_one_method(name, question, top_k, "graph")


@log_stage("hybrid_search")
def hybrid_search(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> RetrievalResult:
    """Runs the enabled methods in parallel and merges up to 40 distinct chunks by reciprocal rank fusion.

    `similarity_score` is 1 for a chunk that every method ranks first. A method that fails or runs out of time is left
    out: a warning is logged, and its stage has the error.

    Raises ValueError if nothing is stored under the name, or if no method is enabled. Raises RuntimeError if every
    method fails.
    """
    check_question(question)
    legs = {method: leg for method, leg in _LEGS.items() if getattr(options, f"enable_{method}_search")}
    if not legs:
        raise ValueError("options must enable vector, keyword or graph search, got none of them")
    stages = _load_model() if "vector" in legs else []
    retrievers: dict[str, RetrievalSettings] = {leg.type: leg for leg in legs.values()}
    if stages and len(legs) > 1:
        del retrievers["dense"]
    fusion = RrfFusion(type="rrf", k=RRF_K)
    retriever = HybridRetriever(type="hybrid", retrievers=retrievers, fusion=fusion, depth=MERGED_HITS)
    hits, reports = _search(name, question, MERGED_HITS, retriever)
    stages += reports
    for report in stages:
        if report.error:
            warn(f"searched {name} without {report.stage}: {report.error}")
    _count_hits(legs, stages, hits)
    source, max_score = "hybrid" if len(legs) > 1 else next(iter(legs)), len(legs) / (RRF_K + 1)
    chunks = [_chunk_from_hit(hit, source, hit.score / max_score) for hit in hits]
    return RetrievalResult(chunks=chunks, stages=tuple(stages))


def _search_one_method(name: str, question: str, top_k: int, method: str) -> list[RetrievedChunk]:
    check_question(question)
    hits, _ = _search(name, question, top_k, _LEGS[method])
    count_results(**{f"{method}_results": len(hits)})
    return [_chunk_from_hit(hit, method, hit.score / (1 + hit.score)) for hit in hits]


def _count_hits(legs: Mapping[str, LegSettings], stages: Sequence[StageReport], hits: Sequence[Hit]) -> None:
    """Counts the hits of each method, and those after the merge."""
    by_stage = {report.stage: len(report.ranking) for report in stages}
    count_results(**{f"{method}_results": by_stage.get(leg.type, 0) for method, leg in legs.items()})
    count_results(merged_results=len(hits))


def _load_model() -> list[StageReport]:
    """Loads the embedding model, so that loading does not count against a time limit. Returns its failure, if any."""
    try:
        load_shared_encoder(load_settings().embedding)
    except ModelError as error:
        return [StageReport(stage="dense", seconds=0.0, error=str(error), error_type=type(error).__name__)]
    return []


def _search(
    name: str, question: str, k: int, retriever: RetrievalSettings, embed: EmbedQuestion = get_query_embedding
) -> tuple[list[Hit], list[StageReport]]:
    collection = collection_name(name)
    with builtin_errors(f"{name} cannot be searched"):
        check_top_k(k)
        settings = load_settings().model_copy(update={"retrieval": retriever})
        with KnowledgeBase(settings, RemoteModels(embedder=_Embedder(embed))) as knowledge:
            return knowledge.explain(question, k, collection)


@dataclass(frozen=True, slots=True)
class _Embedder:
    """A QueryEmbedder that calls a function for each text, in a thread."""

    embed_question: EmbedQuestion

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return np.array([await to_thread.run_sync(self.embed_question, text) for text in texts], np.float32)


def _chunk_from_hit(hit: Hit, source: str, similarity_score: float) -> RetrievedChunk:
    origin = {"uri": hit.origin.uri, "title": hit.origin.title, "language": hit.origin.language}
    return RetrievedChunk(
        chunk_id=hit.chunk.id,
        text=hit.chunk.text,
        similarity_score=similarity_score,
        source=source,
        metadata={**origin, **hit.origin.metadata, **hit.chunk.metadata},
        scores=hit.scores,
    )
