"""The builder of retrievers: it follows the tree of the settings."""

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
    OuterSettings,
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
from rag_core.models.encoders.query_embedder import ThreadedQueryWeigher
from rag_core.protocols import Leg, Reranker, Retriever
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import fuse_distribution, fuse_ltr, fuse_rrf, fuse_weighted
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
from rag_core.wiring.budget import retriever_timeout
from rag_core.wiring.embedding import embedding_space
from rag_core.wiring.models import RemoteModels, find_remote_reranker, select_chat
from rag_core.wiring.python_objects import build_python_object
from rag_core.wiring.question_embedder import build_question_embedder
from rag_core.wiring.reranking import build_reranker
from rag_core.wiring.splade import load_shared_weigher, weigher_fingerprint


def build_retriever(settings: Settings, corpus: CorpusReader, remote: RemoteModels, patient: bool = False) -> Retriever:
    """Loads the models of the legs that are not remote. Raises ConfigError if a reranker is remote that cannot be.

    `patient`: time limits that are not set do not apply.
    """
    return _RetrieverBuilder(settings, corpus, remote, patient).build(settings.retrieval, settings.retrieval.type)


class _RetrieverBuilder:
    """The builder of one tree of retrievers. It builds dense and splade legs once, even if several parts use them."""

    def __init__(self, settings: Settings, corpus: CorpusReader, remote: RemoteModels, patient: bool) -> None:
        self._settings, self._corpus, self._remote, self._patient = settings, corpus, remote, patient

    def build(self, section: RetrievalSettings, name: str) -> Retriever:
        """Builds the retriever; a leg reports its stage under `name`."""
        if isinstance(section, LegSettings):
            return LegRetriever(self._corpus, name, self._build_leg(section))
        if isinstance(section, HybridRetriever):
            return self._build_hybrid(section)
        if isinstance(section, PythonObject):
            retriever: Retriever = build_python_object(section, "retrieval", "retrieve")
            return retriever
        return self._build_outer(section, self.build(section.retriever, section.retriever.type))

    def _build_outer(self, section: OuterSettings, inner: Retriever) -> Retriever:
        match section:
            case RerankedRetriever():
                reranker = self._build_reranker(section.reranker)
                timeout = retriever_timeout(section, self._patient)
                return Reranked(retriever=inner, reranker=reranker, depth=section.depth, timeout=timeout)
            case PerDocumentRetriever():
                return PerDocument(retriever=inner, max_hits=section.max_chunks_per_document, depth=section.depth)
            case SignalsRetriever(recency=recency):
                decay = Recency(half_life=recency.half_life_days, weight=recency.weight) if recency else None
                return Signals(retriever=inner, depth=section.depth, recency=decay, weights=section.weights)
            case _:
                assert_never(section)

    def _build_leg(self, section: LegSettings) -> Leg:
        match section:
            case DenseRetriever():
                return self._dense_leg
            case Bm25Retriever():
                return Bm25Leg(self._corpus, Bm25(section.k1, section.b))
            case SpladeRetriever():
                return self._splade_leg
            case GraphRetriever():
                return GraphLeg(self._corpus)
            case _:
                assert_never(section)

    @cached_property
    def _dense_leg(self) -> Leg:
        embedding = self._settings.embedding
        embedder = build_question_embedder(embedding, self._remote)
        return DenseLeg(self._corpus, embedder, embedding_space(embedding))

    @cached_property
    def _splade_leg(self) -> Leg:
        splade = self._settings.splade
        if splade is None:
            raise ConfigError("a splade retriever requires the section splade, got none")
        return SpladeLeg(self._corpus, ThreadedQueryWeigher(load_shared_weigher(splade)), weigher_fingerprint(splade))

    def _build_hybrid(self, section: HybridRetriever) -> Retriever:
        return Hybrid(
            corpus=self._corpus,
            legs={name: self._build_hybrid_leg(inner, name) for name, inner in section.retrievers.items()},
            fusion=build_fusion(section.fusion, list(section.retrievers)),
            depth=section.depth,
            timeout=retriever_timeout(section, self._patient),
            timeouts={name: timeout / 1000 for name, timeout in section.timeouts_ms.items()},
        )

    def _build_hybrid_leg(self, section: RetrievalSettings, name: str) -> Leg:
        if isinstance(section, LegSettings):
            return self._build_leg(section)
        return RetrieverLeg(self.build(section, name))

    def _build_reranker(self, section: RerankerSettings) -> Reranker:
        if isinstance(section, LlmReranker):
            return LanguageModel(select_chat(section, self._settings, self._remote, "reranker"), section.concurrency)
        if self._remote.reranker is None:
            return build_reranker(section, self._remote.pool)
        find_remote_reranker(self._settings)  # raises ConfigError if this reranker cannot be remote
        return PairReranker(self._remote.reranker)


def build_fusion(section: FusionSettings, legs: Sequence[str]) -> Fusion:
    """The fusion function of a hybrid retriever with these legs, in this order."""
    match section:
        case DistributionFusion():
            return partial(fuse_distribution, weights=section.weights)
        case WeightedFusion():
            weights: Mapping[str, float] = section.weights
            if section.alpha is not None:
                weights = dict(zip(legs, (section.alpha, 1 - section.alpha), strict=True))
            return partial(fuse_weighted, weights=weights)
        case RrfFusion():
            return partial(fuse_rrf, k=section.k)
        case LtrFusion():
            return partial(
                fuse_ltr, intercept=section.intercept, score_weights=section.scores, rank_weights=section.ranks
            )
        case _:
            assert_never(section)
