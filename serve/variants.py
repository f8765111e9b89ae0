"""Variants of a served profile: pipelines with other legs, another fusion or another depth for one request.

A variant uses the same models and connections. Options that the profile does not support are rejected by name.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, TypeAlias, TypeVar

from rag_core.answering.pipeline import QueryPipeline
from rag_core.answering.split import ExposedAnswerer
from rag_core.config import (
    Combinator,
    DistributionFusion,
    FusionSettings,
    HybridRetriever,
    LegSettings,
    LtrFusion,
    OuterRetriever,
    PerDocumentRetriever,
    RerankedRetriever,
    RetrievalSettings,
    RrfFusion,
    Settings,
    WeightedFusion,
    find_reranked_retriever,
)
from rag_core.errors import UsageError
from rag_core.protocols import Answerer, Retriever
from rag_core.retrieval.variants import with_variants
from rag_core.storage.exposures import Exposure
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.pipeline import build_packer
from rag_core.wiring.retrieval import build_retriever
from serve.components import describe_components
from serve.replies import RecordedAnswerer, ReplyLog
from serve.services import Services

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FusionMethod: TypeAlias = Literal["rrf", "weighted", "distribution", "ltr"]
GuardMode: TypeAlias = Literal["off", "flag", "block", "regenerate"]

MAX_CACHED_VARIANTS = 64
"""Cached variants of each kind. Clients repeat their options, and building a variant takes less than a millisecond."""

MAX_DEPTH = 1000
"""The depth of a ranking whose settings have no `depth`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """A request's changes to the profile. Empty, 0 and None mean: use the profile's value."""

    strategies: tuple[str, ...] = ()
    fusion_method: FusionMethod | None = None
    weights: tuple[tuple[str, float], ...] = ()
    candidates: int = 0
    rerank: bool | None = None
    max_chunks_per_document: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """A request's changes to the profile. `top_k` counts passages. 0 and None mean: use the profile's value."""

    top_k: int = 0
    guard: GuardMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchVariant:
    """`limits` holds the timeouts of the stages, in seconds, by name. Rankings of up to `depth` hits are consistent:
    a shorter one is the beginning of a longer one. `skipped` has the reasons why stages are disabled, by stage."""

    retriever: Retriever
    limits: Mapping[str, float]
    depth: int
    pipeline_version: str
    components: str
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerVariant:
    answerer: Answerer
    settings: Settings
    pipeline_version: str
    components: str
    replies: ReplyLog

    def recorded_answerer(self, id: str, exposure: Exposure | None = None) -> Answerer:
        """The answerer, which stores the reply under `id` unless the settings forbid it, and the exposure if any."""
        if not self.settings.telemetry.replies:
            return self.answerer
        recorded = RecordedAnswerer(
            answerer=self.answerer,
            log=self.replies,
            id=id,
            settings=self.settings,
            pipeline_version=self.pipeline_version,
        )
        if exposure is None:
            return recorded
        return ExposedAnswerer(answerer=recorded, exposure=exposure, record=partial(self.replies.add_exposure, id))


@dataclass(kw_only=True)
class Variants:
    """A profile's services, and a cache of its recently used variants."""

    services: Services
    searches: dict[SearchOptions, SearchVariant] = field(default_factory=dict)
    answers: dict[AnswerOptions, AnswerVariant] = field(default_factory=dict)

    @cached_property
    def pipeline_version(self) -> str:
        return self.services.settings.pipeline_version

    @cached_property
    def components(self) -> str:
        return describe_components(self.services.settings)

    def search_variant(self, options: SearchOptions) -> SearchVariant:
        """Raises UsageError if the profile does not support the options."""
        return _get_or_build(self.searches, options, self._build_search)

    def answer_variant(self, options: AnswerOptions) -> AnswerVariant:
        """Raises UsageError if the profile does not support the options."""
        return _get_or_build(self.answers, options, self._build_answer)

    def _build_search(self, options: SearchOptions) -> SearchVariant:
        services = self.services
        if options == SearchOptions():
            return SearchVariant(
                retriever=services.retriever,
                limits=services.limits,
                depth=ranking_depth(services.settings.retrieval),
                pipeline_version=self.pipeline_version,
                components=self.components,
                skipped=services.settings.skipped.questions,
            )
        retrieval = apply_search_options(services.settings.retrieval, options)
        settings = services.settings.model_copy(update={"retrieval": retrieval})
        retriever = build_retriever(settings, services.corpus, services.remote_models)
        return SearchVariant(
            retriever=with_variants(retriever, services.corpus),
            limits=stage_limits(settings.answering.budget, retrieval),
            depth=ranking_depth(retrieval),
            pipeline_version=settings.pipeline_version,
            components=describe_components(settings),
            skipped=settings.skipped.questions,
        )

    def _build_answer(self, options: AnswerOptions) -> AnswerVariant:
        settings, answerer = self.services.settings, self.services.answerer
        if options == AnswerOptions():
            return AnswerVariant(
                answerer=answerer,
                settings=settings,
                pipeline_version=self.pipeline_version,
                components=self.components,
                replies=self.services.replies,
            )
        if not isinstance(answerer, QueryPipeline):
            raise UsageError("top_k and guard must be omitted: this pipeline does not support them")
        settings = apply_answer_options(settings, options)
        guard = replace(answerer.guard, mode=settings.guard.mode, on_judge_error=settings.guard.on_judge_error)
        pack = build_packer(settings) if options.top_k else answerer.pack
        return AnswerVariant(
            answerer=replace(answerer, guard=guard, pack=pack),
            settings=settings,
            pipeline_version=settings.pipeline_version,
            components=self.components,
            replies=self.services.replies,
        )


def apply_search_options(retrieval: RetrievalSettings, options: SearchOptions) -> RetrievalSettings:
    """Raises UsageError if the retriever does not support the options."""
    if options.rerank and find_reranked_retriever(retrieval) is None:
        raise UsageError("rerank must be false: the profile has no reranker")
    varied = _vary(retrieval, options)
    if options.max_chunks_per_document:
        varied = PerDocumentRetriever(
            type="per_document",
            retriever=varied.retriever if isinstance(varied, PerDocumentRetriever) else varied,
            max_chunks_per_document=options.max_chunks_per_document,
            depth=options.candidates or ranking_depth(varied),
        )
    if options.candidates and isinstance(varied, LegSettings):
        raise UsageError("candidates must be omitted: the profile has a single leg, so all its hits are shown")
    return varied


def ranking_depth(retrieval: RetrievalSettings) -> int:
    return retrieval.depth if isinstance(retrieval, Combinator) else MAX_DEPTH


def apply_answer_options(settings: Settings, options: AnswerOptions) -> Settings:
    """Raises UsageError if the profile's other guard settings do not allow the mode."""
    guard = {**settings.guard.model_dump(exclude_unset=True), "mode": options.guard or settings.guard.mode}
    if (guard["mode"], settings.guard.stream) == ("regenerate", "sentence"):
        raise UsageError("guard must not be regenerate: the profile streams its answers sentence by sentence")
    packing = settings.packing.model_copy(update={"passages": options.top_k or settings.packing.passages})
    return settings.model_copy(update={"guard": type(settings.guard).model_validate(guard), "packing": packing})


def _vary(retrieval: RetrievalSettings, options: SearchOptions) -> RetrievalSettings:
    match retrieval:
        case HybridRetriever():
            return _vary_hybrid(retrieval, options)
        case RerankedRetriever() if options.rerank is False:
            return _vary(retrieval.retriever, options)
        case OuterRetriever():
            inner = _vary(retrieval.retriever, options)
            return retrieval.model_copy(update={"retriever": inner, "depth": options.candidates or retrieval.depth})
        case _:  # a single leg
            if options.strategies and set(options.strategies) != {retrieval.type}:
                names = ", ".join(options.strategies)
                raise UsageError(f"strategies must be {retrieval.type}, the profile's only leg, got {names}")
            if options.fusion_method or options.weights:
                raise UsageError("fusion_method and weights must be omitted: the profile has a single leg")
            return retrieval


def _vary_hybrid(hybrid: HybridRetriever, options: SearchOptions) -> HybridRetriever:
    legs = hybrid.retrievers
    if unknown := [name for name in options.strategies if name not in legs]:
        raise UsageError(f"strategies must be legs of the profile ({', '.join(legs)}), got {', '.join(unknown)}")
    selected = {name: leg for name, leg in legs.items() if not options.strategies or name in options.strategies}
    return hybrid.model_copy(
        update={
            "retrievers": selected,
            "fusion": _vary_fusion(hybrid.fusion, list(legs), list(selected), options),
            "depth": options.candidates or hybrid.depth,
            "timeouts_ms": _restrict_to(hybrid.timeouts_ms, selected),
        }
    )


def _vary_fusion(
    fusion: FusionSettings, legs: list[str], selected: list[str], options: SearchOptions
) -> FusionSettings:
    """The requested fusion. The profile's own fusion keeps its weights of the selected legs."""
    method, weights = options.fusion_method or fusion.type, dict(options.weights)
    if weights and method not in ("weighted", "distribution"):
        raise UsageError(f"weights require fusion_method weighted or distribution, got {method}")
    if unknown := [name for name in weights if name not in selected]:
        raise UsageError(f"weights must name searched legs ({', '.join(selected)}), got {', '.join(unknown)}")
    if not weights and method == fusion.type:
        weights = _restrict_to(_profile_weights(fusion, legs), selected)
    match method:
        case "rrf":
            return fusion if isinstance(fusion, RrfFusion) else RrfFusion(type="rrf")
        case "weighted":
            return WeightedFusion(type="weighted", weights=weights, alpha=None)
        case "distribution":
            return DistributionFusion(type="distribution", weights=weights)
        case "ltr":
            if not isinstance(fusion, LtrFusion):
                raise UsageError(
                    "fusion_method must not be ltr: the profile has no learned weights; `rag train-fusion` learns them"
                )
            scores, ranks = _restrict_to(fusion.scores, selected), _restrict_to(fusion.ranks, selected)
            return fusion.model_copy(update={"scores": scores, "ranks": ranks})


def _profile_weights(fusion: FusionSettings, legs: list[str]) -> Mapping[str, float]:
    match fusion:
        case WeightedFusion(alpha=float(alpha)):
            return dict(zip(legs, (alpha, 1 - alpha), strict=True))
        case WeightedFusion() | DistributionFusion():
            return fusion.weights
        case _:
            return {}


def _restrict_to(numbers: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    return {name: number for name, number in numbers.items() if name in names}


def _get_or_build(cache: dict[K, V], key: K, build: Callable[[K], V]) -> V:
    """The cached value, or a new one. The cache is ordered by last use, and drops its first entry when it is full."""
    value = cache.pop(key, None) or build(key)
    if len(cache) >= MAX_CACHED_VARIANTS:
        del cache[next(iter(cache))]
    cache[key] = value
    return value
