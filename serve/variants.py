"""The profile as one request wants it: other legs, another fusion, another depth. Models and connections are the same.

What a profile does not have cannot be asked for: it is refused by its name.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from fastapi import FastAPI

from rag_core.answering.pipeline import QueryPipeline
from rag_core.config import (
    Bm25Retriever,
    DenseRetriever,
    DistributionFusion,
    FusionSettings,
    GraphRetriever,
    HybridRetriever,
    LtrFusion,
    PerDocumentRetriever,
    RerankedRetriever,
    RetrievalSettings,
    RrfFusion,
    Settings,
    SignalsRetriever,
    SpladeRetriever,
    WeightedFusion,
    outer_reranked,
)
from rag_core.errors import UsageError
from rag_core.protocols import Answerer, Retriever
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.pipeline import packing
from rag_core.wiring.retrieval import retriever
from serve.graph import Graph

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FusionMethod: TypeAlias = Literal["rrf", "weighted", "distribution", "ltr"]
GuardMode: TypeAlias = Literal["off", "flag", "block", "regenerate"]

KEPT = 64
"""Variants of each kind: what clients ask for repeats, and one is made in less than a millisecond."""

MOST_DEPTH = 1000
"""Hits that a ranking without a depth of its own is asked for at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What is empty, 0 or None is as in the profile."""

    strategies: tuple[str, ...] = ()
    fusion_method: FusionMethod | None = None
    weights: tuple[tuple[str, float], ...] = ()
    candidates: int = 0
    rerank: bool | None = None
    max_chunks_per_document: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What is 0 or None is as in the profile. `top_k` counts passages."""

    top_k: int = 0
    guard: GuardMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchVariant:
    """`limits` are those of the stages, in seconds, by name; `depth` is how far its ranking is one ranking, whatever
    part of it is asked for."""

    retriever: Retriever
    limits: Mapping[str, float]
    depth: int
    pipeline_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerVariant:
    answerer: Answerer
    settings: Settings
    pipeline_version: str


@dataclass(kw_only=True)
class Variants:
    """Of one graph, those that were asked for last."""

    graph: Graph
    searches: dict[SearchOptions, SearchVariant] = field(default_factory=dict)
    answers: dict[AnswerOptions, AnswerVariant] = field(default_factory=dict)

    @cached_property
    def pipeline_version(self) -> str:
        return self.graph.settings.pipeline_version

    def search(self, options: SearchOptions) -> SearchVariant:
        """UsageError for what the profile cannot do."""
        return _kept(self.searches, options, self._search)

    def answer(self, options: AnswerOptions) -> AnswerVariant:
        """UsageError for what the profile cannot do."""
        return _kept(self.answers, options, self._answer)

    def _search(self, options: SearchOptions) -> SearchVariant:
        graph = self.graph
        if options == SearchOptions():
            found, limits, retrieval, name = graph.retriever, graph.limits, graph.settings.retrieval, ""
        else:
            retrieval = varied(graph.settings.retrieval, options)
            settings = graph.settings.model_copy(update={"retrieval": retrieval})
            found, name = retriever(settings, graph.corpus, graph.elsewhere), settings.pipeline_version
            limits = stage_limits(settings.answering.budget, retrieval)
        version = name or self.pipeline_version
        return SearchVariant(retriever=found, limits=limits, depth=depth_of(retrieval), pipeline_version=version)

    def _answer(self, options: AnswerOptions) -> AnswerVariant:
        settings, answerer = self.graph.settings, self.graph.answerer
        if options == AnswerOptions():
            return AnswerVariant(answerer=answerer, settings=settings, pipeline_version=self.pipeline_version)
        if not isinstance(answerer, QueryPipeline):
            raise UsageError("top_k and guard must be left out: this pipeline does not let them be chosen")
        settings = answered(settings, options)
        guard = replace(answerer.guard, mode=settings.guard.mode)
        varied = replace(answerer, guard=guard, pack=packing(settings) if options.top_k else answerer.pack)
        return AnswerVariant(answerer=varied, settings=settings, pipeline_version=settings.pipeline_version)


def variants(app: FastAPI) -> Variants:
    """Of the graph that the application has now."""
    held: Variants | None = getattr(app.state, "variants", None)
    if held is None or held.graph is not app.state.graph:
        held = app.state.variants = Variants(graph=app.state.graph)
    return held


def pipeline_version(app: FastAPI) -> str:
    return variants(app).pipeline_version


def check_profile(wanted: str, settings: Settings) -> None:
    """UsageError for another profile than the one that is served. Empty is any."""
    if wanted and wanted != settings.profile:
        raise UsageError(f"profile must be {settings.profile}, which is served here, got {wanted!r}")


def varied(retrieval: RetrievalSettings, options: SearchOptions) -> RetrievalSettings:
    """UsageError for what this retriever cannot do."""
    if options.rerank and outer_reranked(retrieval) is None:
        raise UsageError("rerank must be false: the profile has no reranker")
    chosen = _within(retrieval, options)
    if options.max_chunks_per_document:
        chosen = _per_document(chosen, options.max_chunks_per_document, options.candidates or depth_of(chosen))
    if options.candidates and isinstance(chosen, Bm25Retriever | DenseRetriever | SpladeRetriever | GraphRetriever):
        raise UsageError("candidates must be left out: the profile does not choose from more than it shows")
    return chosen


def depth_of(retrieval: RetrievalSettings) -> int:
    match retrieval:
        case HybridRetriever() | RerankedRetriever() | PerDocumentRetriever() | SignalsRetriever():
            return retrieval.depth
        case _:
            return MOST_DEPTH


def answered(settings: Settings, options: AnswerOptions) -> Settings:
    """UsageError where the rest of the guard's settings do not go with the mode."""
    guard = {**settings.guard.model_dump(), "mode": options.guard or settings.guard.mode}
    packed = settings.packing.model_copy(update={"passages": options.top_k or settings.packing.passages})
    if (guard["mode"], guard["stream"]) == ("regenerate", "sentence"):
        raise UsageError("guard must not be regenerate: the profile shows its answers sentence by sentence")
    chosen = type(settings.guard).model_validate(guard)
    return settings.model_copy(update={"guard": chosen, "packing": packed})


def _within(chosen: RetrievalSettings, options: SearchOptions) -> RetrievalSettings:
    match chosen:
        case HybridRetriever():
            return _hybrid(chosen, options)
        case RerankedRetriever() if options.rerank is False:
            return _within(chosen.retriever, options)
        case RerankedRetriever() | SignalsRetriever() | PerDocumentRetriever():
            inner = {"retriever": _within(chosen.retriever, options)}
            return chosen.model_copy(update={**inner, "depth": options.candidates or chosen.depth})
        case _:
            return _alone(chosen, options)


def _alone(chosen: RetrievalSettings, options: SearchOptions) -> RetrievalSettings:
    """A retriever that fuses nothing."""
    if options.strategies and set(options.strategies) != {chosen.type}:
        raise UsageError(f"strategies must be {chosen.type}, all that the profile has, got {_list(options.strategies)}")
    if options.fusion_method or options.weights:
        raise UsageError("fusion_method and weights must be left out: the profile fuses nothing")
    return chosen


def _hybrid(chosen: HybridRetriever, options: SearchOptions) -> HybridRetriever:
    legs = chosen.retrievers
    if unknown := [name for name in options.strategies if name not in legs]:
        raise UsageError(f"strategies must be among {_list(legs)} of the profile, got {_list(unknown)}")
    kept = {name: leg for name, leg in legs.items() if not options.strategies or name in options.strategies}
    return chosen.model_copy(
        update={
            "retrievers": kept,
            "fusion": _fusion(chosen.fusion, list(legs), list(kept), options),
            "depth": options.candidates or chosen.depth,
            "timeouts_ms": _only(chosen.timeouts_ms, kept),
        }
    )


def _fusion(own: FusionSettings, legs: list[str], kept: list[str], options: SearchOptions) -> FusionSettings:
    """The profile's own with its own numbers, as far as they are of legs that are kept."""
    method, weights = options.fusion_method or own.type, dict(options.weights)
    if weights and method not in ("weighted", "distribution"):
        raise UsageError(f"weights must go with fusion_method weighted or distribution, got {method}")
    if unknown := [name for name in weights if name not in kept]:
        raise UsageError(f"weights must be of {_list(kept)}, got {_list(unknown)}")
    weights = weights or (_only(_weights(own, legs), kept) if method == own.type else {})
    match method:
        case "rrf":
            return own if isinstance(own, RrfFusion) else RrfFusion(type="rrf")
        case "weighted":
            return WeightedFusion(type="weighted", weights=weights, alpha=None)
        case "distribution":
            return DistributionFusion(type="distribution", weights=weights)
        case "ltr":
            return _ltr(own, kept)


def _ltr(own: FusionSettings, kept: list[str]) -> FusionSettings:
    if not isinstance(own, LtrFusion):
        raise UsageError("fusion_method must not be ltr: the profile has no weights that were learned")
    return own.model_copy(update={"scores": _only(own.scores, kept), "ranks": _only(own.ranks, kept)})


def _weights(own: FusionSettings, legs: list[str]) -> Mapping[str, float]:
    match own:
        case WeightedFusion(alpha=float(alpha)):
            return dict(zip(legs, (alpha, 1 - alpha), strict=True))
        case WeightedFusion() | DistributionFusion():
            return own.weights
        case _:
            return {}


def _per_document(chosen: RetrievalSettings, most: int, depth: int) -> PerDocumentRetriever:
    inner = chosen.retriever if isinstance(chosen, PerDocumentRetriever) else chosen
    return PerDocumentRetriever(type="per_document", retriever=inner, max_chunks_per_document=most, depth=depth)


def _only(numbers: Mapping[str, float], kept: Mapping[str, object] | list[str]) -> dict[str, float]:
    return {name: number for name, number in numbers.items() if name in kept}


def _list(names: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    return ", ".join(names)


def _kept(held: dict[K, V], key: K, make: Callable[[K], V]) -> V:
    """The one that was used last stands last."""
    made = held.pop(key, None) or make(key)
    if len(held) >= KEPT:
        del held[next(iter(held))]
    held[key] = made
    return made
