"""Preparation of a question, search by one or several methods, fusion and reranking."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import exp
from typing import Literal, TypeAlias, TypeVar, assert_never
from uuid import UUID

from anyio.from_thread import start_blocking_portal

from rag_core.config import (
    Bm25Retriever,
    CrossEncoderReranker,
    GenerationSettings,
    OpenAIGenerator,
    RerankerSettings,
    RetrievalSettings,
    Settings,
    find_reranked_retriever,
)
from rag_core.contract.models import embed_with_retries, load_encoder
from rag_core.contract.names import collection_name
from rag_core.contract.vector_store.port import unit_vector
from rag_core.errors import GenerationError, ModelError, NotFoundError, RagError, RetrievalError, VectorError
from rag_core.models.encoders.query_embedder import QuestionEncoder, ThreadedQueryEmbedder
from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import fuse_rrf
from rag_core.retrieval.graph import GraphLeg
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.legs import LegRetriever, translate_errors
from rag_core.retrieval.query import expansion
from rag_core.settings import load_settings
from rag_core.stage import recording, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, Matrix, Metadata, Query, StageReport
from rag_core.wiring.embedding import embedding_space
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.reranking import build_reranker

T = TypeVar("T")

VECTOR_HITS, KEYWORD_HITS, GRAPH_HITS, MERGED_HITS, RERANKED_HITS = 20, 20, 10, 40, 5
METHOD_TIMEOUT = EXPANSION_TIMEOUT = 5.0
RRF_K = 60

# control characters, and surrogates, which UTF-8 cannot encode
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    top_k: int = RERANKED_HITS
    expand_query: bool = False
    enable_reranking: bool = True
    enable_vector_search: bool = True
    enable_keyword_search: bool = True
    enable_graph_search: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedChunk:
    """A chunk with its scores. `similarity_score` is from 0 to 1; `scores` holds the raw score of each stage.

    `source` is `vector`, `keyword`, `graph`, or `hybrid` if several methods were merged. `metadata` is that of document
    and chunk, with the document's `uri`, `title` and `language`.
    """

    chunk_id: UUID
    text: str
    similarity_score: float
    source: str
    metadata: Metadata = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Chunks, best first, and the stages that produced them. A stage with an `error` was left out."""

    chunks: list[RetrievedChunk]
    stages: tuple[StageReport, ...] = ()


DEFAULT_OPTIONS = QueryOptions()


def expand_query(question: str, strict: bool = False) -> str:
    """Appends up to 8 synonyms and meanings of abbreviations, which the profile's language model suggests.

    Returns the question alone, and logs a warning, if the profile has no language model, if the model fails or runs out
    of time, or if the question exceeds 1000 characters. If `strict`, raises RuntimeError instead.
    """
    try:
        return _expand_with_model(question, load_settings().generation)
    except RagError as error:
        if strict:
            raise RuntimeError(f"the question cannot be expanded: {error}") from error
        _log.warning("the question is not expanded: %s", error)
        return question


def preprocess_query(question: str | None, enable_expansion: bool = False) -> str:
    """Replaces white space and control characters by single spaces, and expands the question if that is enabled.

    Words stay unchanged, because each method analyzes them differently. Returns "" for None; raises no exception.
    """
    plain = " ".join(_UNREADABLE.sub(" ", question or "").split())
    return expand_query(plain) if enable_expansion and plain else plain


def get_query_embedding(question: str) -> list[float]:
    """A vector of length 1. Raises RuntimeError if the model cannot be loaded or reached."""
    check_question(question)
    with _translate_to_builtin_errors("the question cannot be embedded"):
        encoder = load_encoder(load_settings())
        vector: list[float] = embed_with_retries(encoder.embed_questions, [question])[0].tolist()
        return vector


def vector_search(name: str, query_embedding: Sequence[float], top_k: int = VECTOR_HITS) -> list[RetrievedChunk]:
    """The nearest chunks, best first; `similarity_score` is (1 + cosine) / 2.

    Raises ValueError if nothing is stored under the name, or if the vector has a wrong dimension, NaN or only zeros.
    Raises RuntimeError if the search fails.
    """
    _check_top_k(top_k)
    settings = load_settings()
    with _translate_to_builtin_errors(f"{name} cannot be searched"):
        space = embedding_space(settings.embedding)
        vector = unit_vector(query_embedding, space.dimension)
        query = Query(text="", tenant=settings.tenant, collection=collection_name(name))

        async def search(corpus: CorpusReader) -> list[Hit]:
            async with corpus.reading(query):
                return await corpus.fetch_hits(query, "dense", await corpus.rank_dense(query, vector, space, top_k))

        hits = _run_with_corpus(settings, search)
        # rounding can make a cosine slightly larger than 1 or smaller than -1
        return [_chunk_from_hit(hit, "vector", min(1.0, max(0.0, (1 + hit.score) / 2))) for hit in hits]


def keyword_search(name: str, question: str, top_k: int = KEYWORD_HITS) -> list[RetrievedChunk]:
    """The best chunks by BM25 that contain a word of the question, best first.

    `similarity_score` is s / (1 + s) for the BM25 score s. Raises ValueError if nothing is stored under the name, and
    RuntimeError if the search fails.
    """
    return _search_one_method(name, question, top_k, "keyword")


def graph_search(name: str, question: str, top_k: int = GRAPH_HITS) -> list[RetrievedChunk]:
    """Chunks that mention the question's entities or entities related to them, best first.

    Returns [] if the stored documents mention no entity of the question, or were ingested without `graph`. Raises the
    errors of `keyword_search`.
    """
    return _search_one_method(name, question, top_k, "graph")


def hybrid_search(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> RetrievalResult:
    """Runs the enabled methods in parallel and merges up to 40 distinct chunks by reciprocal rank fusion.

    `similarity_score` is 1 for a chunk that every method ranks first. A method that fails or runs out of time is left
    out: a warning is logged, and its stage has the error.

    Raises ValueError if nothing is stored under the name, or if no method is enabled. Raises RuntimeError if every
    method fails.
    """
    check_question(question)
    settings = load_settings()
    query = Query(text=question, tenant=settings.tenant, collection=collection_name(name))
    methods = _list_methods(options)
    if not methods:
        raise ValueError("options must enable vector, keyword or graph search, got none of them")
    source = "hybrid" if len(methods) > 1 else methods[0]
    if options.enable_vector_search:
        with suppress(ModelError):  # loading must not count against the method's time limit; the method reports errors
            load_encoder(settings)

    async def search(corpus: CorpusReader) -> tuple[list[Hit], list[StageReport]]:
        legs = {_STAGES[method]: _method_leg(method, settings, corpus) for method in methods}
        hybrid = Hybrid(
            corpus=corpus, legs=legs, fusion=partial(fuse_rrf, k=RRF_K), depth=MERGED_HITS, timeout=METHOD_TIMEOUT
        )
        with recording() as stages:
            return await hybrid.retrieve(query, MERGED_HITS), stages

    with _translate_to_builtin_errors(f"{name} cannot be searched"):
        hits, stages = _run_with_corpus(settings, search)
    for report in stages:
        if report.error:
            _log.warning("searched %s without %s: %s", name, report.stage, report.error)
    max_score = len(methods) / (RRF_K + 1)
    chunks = [_chunk_from_hit(hit, source, hit.score / max_score) for hit in hits]
    return RetrievalResult(chunks=chunks, stages=tuple(stages))


def rerank_chunks(
    query: str, chunks: Sequence[RetrievedChunk], top_k: int = RERANKED_HITS, strict: bool = False
) -> list[RetrievedChunk]:
    """The best chunks by the profile's reranker, whose score replaces `similarity_score`.

    If the profile has no reranker or the reranker fails, returns the first `top_k` chunks unchanged and logs a warning.
    If `strict`, raises RuntimeError instead.
    """
    _check_top_k(top_k)
    section = _find_reranker(load_settings().retrieval)
    try:
        if section is None:
            raise RetrievalError("the profile has no reranker")
        return _rerank(section, query, chunks)[:top_k]
    except RagError as error:
        if strict:
            raise RuntimeError(f"the chunks cannot be reranked: {error}") from error
        _log.warning("the chunks are not reranked: %s", error)
        return list(chunks[:top_k])


def search_documents(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> RetrievalResult:
    """The best `options.top_k` chunks of `hybrid_search` for the preprocessed question.

    If the profile has a reranker, it reranks them by the original question. Raises the errors of `hybrid_search`.
    """
    _check_top_k(options.top_k)
    retrieval = hybrid_search(name, preprocess_query(question, options.expand_query), options)
    if options.enable_reranking and _find_reranker(load_settings().retrieval):
        return replace(retrieval, chunks=rerank_chunks(question, retrieval.chunks, options.top_k))
    return replace(retrieval, chunks=retrieval.chunks[: options.top_k])


def _expand_with_model(question: str, generation: GenerationSettings) -> str:
    if not isinstance(generation, OpenAIGenerator):
        raise GenerationError(f"generation.type must be openai (a language model), got {generation.type}")
    client = build_client(generation)

    async def expand() -> str:
        async with stage("expand", EXPANSION_TIMEOUT):
            return await translate_errors(expansion.expand_question(client, question))

    with start_blocking_portal() as portal:
        return portal.call(expand)


def check_question(question: str) -> None:
    """Raises ValueError if the question has no words."""
    if not question.strip():
        raise ValueError(f"question must not be empty, got {question!r}")


def _check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise ValueError(f"top_k must be >= 1, got {top_k}")


@contextmanager
def _translate_to_builtin_errors(message: str) -> Iterator[None]:
    """Raises ValueError or RuntimeError, beginning with the message, for a RagError of the block."""
    try:
        yield
    except (NotFoundError, VectorError) as error:
        raise ValueError(f"{message}: {error}") from error
    except RagError as error:
        raise RuntimeError(f"{message}: {error}") from error


def _run_with_corpus(settings: Settings, work: Callable[[CorpusReader], Awaitable[T]]) -> T:
    """Runs the work in another thread, so that it also works inside a running event loop."""
    postgres = Postgres.open(settings.store.url)

    async def run() -> T:
        corpus = CorpusReader(postgres)
        try:
            return await work(corpus)
        finally:
            await corpus.close()

    with start_blocking_portal() as portal:
        return portal.call(run)


def _search_one_method(name: str, question: str, top_k: int, method: "_Method") -> list[RetrievedChunk]:
    check_question(question)
    _check_top_k(top_k)
    settings = load_settings()
    query = Query(text=question, tenant=settings.tenant, collection=collection_name(name))

    async def search(corpus: CorpusReader) -> list[Hit]:
        leg = _method_leg(method, settings, corpus)
        return await LegRetriever(corpus, _STAGES[method], leg).retrieve(query, top_k)

    with _translate_to_builtin_errors(f"{name} cannot be searched"):
        hits = _run_with_corpus(settings, search)
        return [_chunk_from_hit(hit, method, hit.score / (1 + hit.score)) for hit in hits]


_Method: TypeAlias = Literal["vector", "keyword", "graph"]
_STAGES: Mapping[_Method, str] = {"vector": "dense", "keyword": "bm25", "graph": "graph"}


def _list_methods(options: QueryOptions) -> list[_Method]:
    """The enabled methods."""
    switches: dict[_Method, bool] = {
        "vector": options.enable_vector_search,
        "keyword": options.enable_keyword_search,
        "graph": options.enable_graph_search,
    }
    return [method for method, is_enabled in switches.items() if is_enabled]


def _method_leg(method: _Method, settings: Settings, corpus: CorpusReader) -> Leg:
    match method:
        case "vector":
            return _LazyDenseLeg(settings, corpus)
        case "keyword":
            defaults = Bm25Retriever(type="bm25")
            return Bm25Leg(corpus, Bm25(defaults.k1, defaults.b))
        case "graph":
            return GraphLeg(corpus)
        case _:
            assert_never(method)


class _LazyDenseLeg:
    """A dense leg that is built when it is first used, so that the other methods work without its model."""

    def __init__(self, settings: Settings, corpus: CorpusReader) -> None:
        self._settings, self._corpus = settings, corpus

    async def rank(self, query: Query, k: int) -> Ranking:
        return await self._leg.rank(query, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        return await self._leg.score(query, chunk_ids)

    @cached_property
    def _leg(self) -> DenseLeg:
        embedder = ThreadedQueryEmbedder(_RetryingEncoder(self._settings))
        return DenseLeg(self._corpus, embedder, embedding_space(self._settings.embedding))


@dataclass(frozen=True, slots=True)
class _RetryingEncoder:
    settings: Settings

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        encoder: QuestionEncoder = load_encoder(self.settings)
        return embed_with_retries(encoder.embed_questions, texts)


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


def _find_reranker(retrieval: RetrievalSettings) -> RerankerSettings | None:
    reranked = find_reranked_retriever(retrieval)
    return reranked.reranker if reranked else None


def _rerank(section: RerankerSettings, question: str, chunks: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    texts = [chunk.text for chunk in chunks]
    with start_blocking_portal() as portal:
        scores = portal.call(translate_errors, build_reranker(section).score(question, texts))
    if len(scores) != len(chunks):
        raise RetrievalError(f"the reranker must return one score per text, got {len(scores)} for {len(chunks)}")
    is_probability = isinstance(section, CrossEncoderReranker)  # its scores are from 0 to 1 already
    similarities = [float(score) if is_probability else 1 / (1 + exp(-score)) for score in scores]
    rescored = [
        replace(chunk, similarity_score=similarity, scores={**chunk.scores, "rerank": score})
        for chunk, similarity, score in zip(chunks, similarities, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: (-chunk.scores["rerank"], chunk.chunk_id))
