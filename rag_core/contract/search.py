"""Prepare a question, search by one method or by several, merge, rerank."""

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
    outer_reranked,
)
from rag_core.contract.models import loaded_encoder, patiently
from rag_core.contract.names import collection_of
from rag_core.errors import GenerationError, ModelError, NotFoundError, RagError, RetrievalError, VectorError
from rag_core.models.encoders.query_embedder import QuestionEncoder, Questions
from rag_core.models.endpoint import Client
from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import rrf
from rag_core.retrieval.graph import GraphLeg
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.legs import LegRetriever, named
from rag_core.retrieval.query import expansion
from rag_core.settings import load_settings
from rag_core.stage import recording, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres
from rag_core.storage.vector_store.port import direction
from rag_core.types import Hit, Matrix, Metadata, Query, StageReport
from rag_core.wiring.embedding import embedding_space
from rag_core.wiring.endpoint import client
from rag_core.wiring.reranking import reranker

T = TypeVar("T")

VECTOR_HITS, KEYWORD_HITS, GRAPH_HITS, MERGED_HITS, RERANKED_HITS = 20, 20, 10, 40, 5
METHOD_TIMEOUT = EXPANSION_TIMEOUT = 5.0
RRF_K = 60

# what no text has in it: control characters, and halves of code points that UTF-8 cannot write
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
    """`similarity_score` is from 0 to 1; `source` is `vector`, `keyword`, `graph`, or `hybrid` where several were
    merged. `metadata` is its document's, with the `uri`, `title` and `language`, and its own; `scores`
    what each stage gave it.
    """

    chunk_id: UUID
    text: str
    similarity_score: float
    source: str
    metadata: Metadata = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Best first. A stage whose `error` is not empty was left out."""

    chunks: list[RetrievedChunk]
    stages: tuple[StageReport, ...] = ()


DEFAULT_OPTIONS = QueryOptions()


def expand_query(question: str, strict: bool = False) -> str:
    """The question, and behind it up to 8 terms that documents may have in its place: synonyms, and what abbreviations
    stand for, by the profile's language model.

    The question alone, and a warning, if the profile has no such model, or if it fails or is late, or if the question
    has more than 1000 characters; RuntimeError if `strict`.
    """
    try:
        return _expanded(question, load_settings().generation)
    except RagError as error:
        if strict:
            raise RuntimeError(f"the question cannot be expanded: {error}") from error
        _log.warning("the question is not expanded: %s", error)
        return question


def preprocess_query(question: str | None, enable_expansion: bool = False) -> str:
    """White space and control characters as single spaces, the words as they are: each method reads them in its way.
    Expanded if that is wanted. Never raises; of None it is empty.
    """
    plain = " ".join(_UNREADABLE.sub(" ", question or "").split())
    return expand_query(plain) if enable_expansion and plain else plain


def get_query_embedding(question: str) -> list[float]:
    """Of length 1. RuntimeError if the model cannot be loaded or reached."""
    check_question(question)
    with _told("the question cannot be embedded"):
        vector: list[float] = patiently(loaded_encoder(load_settings()).embed_questions, [question])[0].tolist()
        return vector


def vector_search(name: str, query_embedding: Sequence[float], top_k: int = VECTOR_HITS) -> list[RetrievedChunk]:
    """Best first; `similarity_score` is (1 + cosine) / 2. ValueError if nothing is stored under the name, or for a
    vector of another dimension than the model's, with NaN, or of zeros; RuntimeError if it cannot be searched.
    """
    _check_top_k(top_k)
    settings = load_settings()
    with _told(f"{name} cannot be searched"):
        space = embedding_space(settings.embedding)
        vector = direction(query_embedding, space.dimension)
        query = Query(text="", tenant=settings.tenant, collection=collection_of(name))

        async def found(corpus: CorpusReader) -> list[Hit]:
            async with corpus.reading(query):
                return await corpus.hits(query, "dense", await corpus.nearest(query, vector, space, top_k))

        return [_retrieved("vector", _of_cosine, hit) for hit in _reading(settings, found)]


def keyword_search(name: str, question: str, top_k: int = KEYWORD_HITS) -> list[RetrievedChunk]:
    """By BM25, best first; `similarity_score` is s / (1 + s) of its score. Only chunks that have a word of the
    question. ValueError if nothing is stored under the name; RuntimeError if it cannot be searched.
    """
    return _leg_search(name, question, top_k, "keyword")


def graph_search(name: str, question: str, top_k: int = GRAPH_HITS) -> list[RetrievedChunk]:
    """Chunks that mention what the question is about, or what stands together with it elsewhere; best first.

    `[]` if no part of the question is an entity of what is stored, as where nothing was ingested with `graph`.
    Raises what `keyword_search` raises.
    """
    return _leg_search(name, question, top_k, "graph")


def hybrid_search(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> RetrievalResult:
    """Up to 40 chunks by the methods that are enabled, side by side; each once.

    They are merged by reciprocal rank fusion; `similarity_score` is 1 for what every method ranks first.

    A method that fails or is late is left out, with a warning and its stage's error. ValueError if nothing is stored
    under the name, or if no method is enabled; RuntimeError if none of them answered.
    """
    check_question(question)
    settings = load_settings()
    query = Query(text=question, tenant=settings.tenant, collection=collection_of(name))
    methods = _enabled(options)
    if not methods:
        raise ValueError("options must enable vector, keyword or graph search, got none of them")
    source = "hybrid" if len(methods) > 1 else methods[0]
    if options.enable_vector_search:
        with suppress(ModelError):  # of which the method tells; loading does not count against its time
            loaded_encoder(settings)

    async def found(corpus: CorpusReader) -> tuple[list[Hit], list[StageReport]]:
        legs = {_STAGES[method]: _leg(method, settings, corpus) for method in methods}
        hybrid = Hybrid(
            corpus=corpus, legs=legs, fusion=partial(rrf, k=RRF_K), depth=MERGED_HITS, timeout=METHOD_TIMEOUT
        )
        with recording() as stages:
            return await hybrid.retrieve(query, MERGED_HITS), stages

    with _told(f"{name} cannot be searched"):
        hits, stages = _reading(settings, found)
    for report in stages:
        if report.error:
            _log.warning("searched %s without %s: %s", name, report.stage, report.error)
    first_by_all = len(methods) / (RRF_K + 1)
    chunks = [_retrieved(source, lambda score: score / first_by_all, hit) for hit in hits]
    return RetrievalResult(chunks=chunks, stages=tuple(stages))


def rerank_chunks(
    query: str, chunks: Sequence[RetrievedChunk], top_k: int = RERANKED_HITS, strict: bool = False
) -> list[RetrievedChunk]:
    """The best by the profile's reranker, whose score takes the place of `similarity_score`; the rest of them stays.

    If there is none, or it fails, the first `top_k` as they are, and a warning; RuntimeError if `strict`.
    """
    _check_top_k(top_k)
    chosen = _chosen_reranker(load_settings().retrieval)
    try:
        if chosen is None:
            raise RetrievalError("the profile has no reranker")
        return _reranked(chosen, query, chunks)[:top_k]
    except RagError as error:
        if strict:
            raise RuntimeError(f"the chunks cannot be reranked: {error}") from error
        _log.warning("the chunks are not reranked: %s", error)
        return list(chunks[:top_k])


def search_documents(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> RetrievalResult:
    """The best `options.top_k` of `hybrid_search` for the question as it was processed, reranked by the question as it
    was asked where the profile has a reranker. Raises what `hybrid_search` raises.
    """
    _check_top_k(options.top_k)
    found = hybrid_search(name, preprocess_query(question, options.expand_query), options)
    if options.enable_reranking and _chosen_reranker(load_settings().retrieval):
        return replace(found, chunks=rerank_chunks(question, found.chunks, options.top_k))
    return replace(found, chunks=found.chunks[: options.top_k])


def _expanded(question: str, chosen: GenerationSettings) -> str:
    match chosen:
        case OpenAIGenerator():
            with start_blocking_portal() as portal:
                return portal.call(_asked_to_expand, client(chosen), question)
        case _:
            raise GenerationError(f"generation.type must be openai, a language model's, got {chosen.type}")


async def _asked_to_expand(model: Client, question: str) -> str:
    async with stage("expand", EXPANSION_TIMEOUT):
        return await named(expansion.expanded(model, question))


def check_question(question: str) -> None:
    """ValueError if it has no words."""
    if not question.strip():
        raise ValueError(f"a question has words, got {question!r}")


def _check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise ValueError(f"top_k must be >= 1, got {top_k}")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Failures by the names that Python has."""
    try:
        yield
    except (NotFoundError, VectorError) as error:
        raise ValueError(f"{what}: {error}") from error
    except RagError as error:
        raise RuntimeError(f"{what}: {error}") from error


def _reading(settings: Settings, work: Callable[[CorpusReader], Awaitable[T]]) -> T:
    postgres = Postgres.open(settings.store.url)

    async def opened() -> T:
        corpus = CorpusReader(postgres)
        try:
            return await work(corpus)
        finally:
            await corpus.close()

    with start_blocking_portal() as portal:  # also where an event loop runs
        return portal.call(opened)


def _leg_search(name: str, question: str, top_k: int, method: "_Method") -> list[RetrievedChunk]:
    check_question(question)
    _check_top_k(top_k)
    settings = load_settings()
    query = Query(text=question, tenant=settings.tenant, collection=collection_of(name))

    async def found(corpus: CorpusReader) -> list[Hit]:
        return await LegRetriever(corpus, _STAGES[method], _leg(method, settings, corpus)).retrieve(query, top_k)

    with _told(f"{name} cannot be searched"):
        return [_retrieved(method, _saturated, hit) for hit in _reading(settings, found)]


_Method: TypeAlias = Literal["vector", "keyword", "graph"]
_STAGES: Mapping[_Method, str] = {"vector": "dense", "keyword": "bm25", "graph": "graph"}


def _enabled(options: QueryOptions) -> list[_Method]:
    switches: dict[_Method, bool] = {
        "vector": options.enable_vector_search,
        "keyword": options.enable_keyword_search,
        "graph": options.enable_graph_search,
    }
    return [method for method, on in switches.items() if on]


def _leg(method: _Method, settings: Settings, corpus: CorpusReader) -> Leg:
    match method:
        case "vector":
            return _Dense(settings, corpus)
        case "keyword":
            defaults = Bm25Retriever(type="bm25")
            return Bm25Leg(corpus, Bm25(defaults.k1, defaults.b))
        case "graph":
            return GraphLeg(corpus)
        case _:
            assert_never(method)


class _Dense:
    """The dense leg, made when it is first asked: the other methods answer without its model."""

    def __init__(self, settings: Settings, corpus: CorpusReader) -> None:
        self._settings, self._corpus = settings, corpus

    async def rank(self, query: Query, k: int) -> Ranking:
        return await self._made.rank(query, k)

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        return await self._made.score(query, chunk_ids)

    @cached_property
    def _made(self) -> DenseLeg:
        return DenseLeg(self._corpus, Questions(_Patient(self._settings)), embedding_space(self._settings.embedding))


@dataclass(frozen=True, slots=True)
class _Patient:
    settings: Settings

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        encoder: QuestionEncoder = loaded_encoder(self.settings)
        return patiently(encoder.embed_questions, texts)


def _retrieved(source: str, similarity: Callable[[float], float], hit: Hit) -> RetrievedChunk:
    place = {"uri": hit.origin.uri, "title": hit.origin.title, "language": hit.origin.language}
    return RetrievedChunk(
        chunk_id=hit.chunk.id,
        text=hit.chunk.text,
        similarity_score=similarity(hit.score),
        source=source,
        metadata={**place, **hit.origin.metadata, **hit.chunk.metadata},
        scores=hit.scores,
    )


def _of_cosine(cosine: float) -> float:
    return min(1.0, max(0.0, (1 + cosine) / 2))


def _saturated(score: float) -> float:
    return score / (1 + score)


def _logistic(score: float) -> float:
    return 1 / (1 + exp(-score))


def _chosen_reranker(retrieval: RetrievalSettings) -> RerankerSettings | None:
    reranked = outer_reranked(retrieval)
    return reranked.reranker if reranked else None


def _reranked(chosen: RerankerSettings, question: str, chunks: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    with start_blocking_portal() as portal:
        scores = portal.call(named, reranker(chosen).score(question, [chunk.text for chunk in chunks]))
    if len(scores) != len(chunks):
        raise RetrievalError(f"the reranker must give a score a text, got {len(scores)} for {len(chunks)}")
    # that of a cross-encoder is from 0 to 1 already
    similarity = float if isinstance(chosen, CrossEncoderReranker) else _logistic
    rescored = [
        replace(chunk, similarity_score=similarity(score), scores={**chunk.scores, "rerank": score})
        for chunk, score in zip(chunks, scores, strict=True)
    ]
    return sorted(rescored, key=lambda chunk: (-chunk.scores["rerank"], chunk.chunk_id))
