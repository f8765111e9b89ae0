"""Retrievers, as deep as the settings' tree."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import assert_never

from rag_core.config import (
    Bm25Retriever,
    DenseRetriever,
    DistributionFusion,
    FusionSettings,
    GraphRetriever,
    HybridRetriever,
    LegSettings,
    LlmReranker,
    LtrFusion,
    PerDocumentRetriever,
    PythonObject,
    RerankedRetriever,
    RerankerSettings,
    RetrievalSettings,
    RrfFusion,
    Settings,
    SignalsRetriever,
    SpladeRetriever,
    WeightedFusion,
)
from rag_core.errors import ConfigError
from rag_core.models.encoders.batching import Joined
from rag_core.models.encoders.query_embedder import Questions, WeighedQuestions
from rag_core.protocols import Leg, Reranker, Retriever
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import distribution, ltr, rrf, weighted
from rag_core.retrieval.graph import GraphLeg
from rag_core.retrieval.hybrid import Fusion, Hybrid
from rag_core.retrieval.legs import LegRetriever, RetrieverLeg
from rag_core.retrieval.per_document import PerDocument
from rag_core.retrieval.reranked import Reranked
from rag_core.retrieval.rerankers.llm import LlmReranker as LanguageModel
from rag_core.retrieval.rerankers.pairs import PairReranker
from rag_core.retrieval.signals import Recency, Signals
from rag_core.retrieval.splade import SpladeLeg
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.wiring.embedding import embedding_space, shared_encoder
from rag_core.wiring.models import HERE, Elsewhere, chat, hosted_reranker
from rag_core.wiring.python import python_object
from rag_core.wiring.reranking import reranker
from rag_core.wiring.splade import fingerprint, weigher


def retriever(settings: Settings, corpus: CorpusReader, elsewhere: Elsewhere = HERE) -> Retriever:
    """Loads the models that its legs need, but for those that run elsewhere. ConfigError if a reranker is of a kind
    that cannot."""
    return _Builder(settings, corpus, elsewhere).retriever(settings.retrieval, settings.retrieval.type)


class _Builder:
    def __init__(self, settings: Settings, corpus: CorpusReader, elsewhere: Elsewhere) -> None:
        self._settings, self._corpus, self._elsewhere = settings, corpus, elsewhere

    def retriever(self, chosen: RetrievalSettings, name: str) -> Retriever:
        match chosen:
            case DenseRetriever() | Bm25Retriever() | SpladeRetriever() | GraphRetriever():
                return LegRetriever(self._corpus, name, self._leg(chosen))
            case HybridRetriever():
                return self._hybrid(chosen)
            case RerankedRetriever():
                return self._reranked(chosen)
            case PerDocumentRetriever():
                inner = self.retriever(chosen.retriever, chosen.retriever.type)
                return PerDocument(retriever=inner, most=chosen.max_chunks_per_document, depth=chosen.depth)
            case SignalsRetriever():
                return self._signals(chosen)
            case PythonObject():
                own: Retriever = python_object(chosen)
                return own
            case _:
                assert_never(chosen)

    def _leg(self, chosen: LegSettings) -> Leg:
        match chosen:
            case DenseRetriever():
                return self._dense
            case Bm25Retriever():
                return Bm25Leg(self._corpus, Bm25(chosen.k1, chosen.b))
            case SpladeRetriever():
                return self._splade
            case GraphRetriever():
                return GraphLeg(self._corpus)
            case _:
                assert_never(chosen)

    @cached_property
    def _dense(self) -> Leg:
        embedding = self._settings.embedding
        embedder = self._elsewhere.embedder or Joined(Questions(shared_encoder(embedding)))
        return DenseLeg(self._corpus, embedder, embedding_space(embedding))

    @cached_property
    def _splade(self) -> Leg:
        splade = self._settings.splade
        if splade is None:
            raise ConfigError("a splade retriever needs the section splade, got none")
        return SpladeLeg(self._corpus, WeighedQuestions(weigher(splade)), fingerprint(splade))

    def _part(self, chosen: RetrievalSettings, name: str) -> Leg:
        match chosen:
            case DenseRetriever() | Bm25Retriever() | SpladeRetriever() | GraphRetriever():
                return self._leg(chosen)
            case _:
                return RetrieverLeg(self.retriever(chosen, name))

    def _hybrid(self, chosen: HybridRetriever) -> Retriever:
        return Hybrid(
            corpus=self._corpus,
            legs={name: self._part(part, name) for name, part in chosen.retrievers.items()},
            fusion=fusion(chosen.fusion, list(chosen.retrievers)),
            depth=chosen.depth,
            timeout=chosen.timeout_ms / 1000,
            timeouts={name: timeout / 1000 for name, timeout in chosen.timeouts_ms.items()},
        )

    def _reranked(self, chosen: RerankedRetriever) -> Retriever:
        return Reranked(
            retriever=self.retriever(chosen.retriever, chosen.retriever.type),
            reranker=self._reranker(chosen.reranker),
            depth=chosen.depth,
            timeout=chosen.timeout_ms / 1000,
        )

    def _reranker(self, chosen: RerankerSettings) -> Reranker:
        if isinstance(chosen, LlmReranker):
            return LanguageModel(chat(chosen, self._settings, self._elsewhere), chosen.concurrency)
        if self._elsewhere.reranker is None:
            return reranker(chosen)
        hosted_reranker(self._settings)
        return PairReranker(self._elsewhere.reranker)

    def _signals(self, chosen: SignalsRetriever) -> Retriever:
        recent = chosen.recency
        return Signals(
            retriever=self.retriever(chosen.retriever, chosen.retriever.type),
            depth=chosen.depth,
            recency=Recency(half_life=recent.half_life_days, weight=recent.weight) if recent else None,
            weights=chosen.weights,
        )


def fusion(chosen: FusionSettings, legs: Sequence[str]) -> Fusion:
    match chosen:
        case DistributionFusion():
            return partial(distribution, weights=chosen.weights)
        case WeightedFusion():
            return partial(weighted, weights=_weights(chosen, legs))
        case RrfFusion():
            return partial(rrf, k=chosen.k)
        case LtrFusion():
            return partial(ltr, intercept=chosen.intercept, score_weights=chosen.scores, rank_weights=chosen.ranks)
        case _:
            assert_never(chosen)


def _weights(chosen: WeightedFusion, legs: Sequence[str]) -> Mapping[str, float]:
    if chosen.alpha is None:
        return chosen.weights
    return dict(zip(legs, (chosen.alpha, 1 - chosen.alpha), strict=True))
