"""The translation of a foreign configuration into settings of this program."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from rag_core.config_import.shapes import Chunking, ForeignConfig, Profile, ProfileQuery, Retriever, Timeouts
from rag_core.config_import.target import Target
from rag_core.detection import DEFAULT_PROFILE
from rag_core.wiring.budget import BUDGETS, Budget

T = TypeVar("T")
SettingsTree: TypeAlias = dict[str, Any]

CHUNKERS = {"semantic_splitter": "semantic", "section_aware": "sections", "clinical_role": "clinical"}
SPLADE = {"type": "bert", "model": "splade-tiny"}


def translate(config: ForeignConfig, target: Target) -> SettingsTree:
    """The content of a settings file. `list_notices` reports what it cannot hold."""
    timeouts = config.query_pipeline.timeouts if config.query_pipeline else None
    default = config.profiles.get(DEFAULT_PROFILE, Profile())
    default_legs = [*target.legs, *(default.query.strategies if default.query else ())]
    tree: SettingsTree = {} if target.profile == DEFAULT_PROFILE else {"extends": target.profile}
    if timeouts:
        tree["answering"] = {"budget": choose_budget(timeouts)}
    if config.retriever:
        tree |= translate_retriever(config.retriever, target, timeouts)
    if config.profiles:
        profiles = config.profiles.items()
        tree["profiles"] = {name: _translate_profile(part, target, timeouts, default_legs) for name, part in profiles}
    return {section: value for section, value in tree.items() if value}


def translate_retriever(retriever: Retriever, target: Target, timeouts: Timeouts | None = None) -> SettingsTree:
    """The sections of a search like the retriever's: `retrieval`, and `splade` if it needs that."""
    tree = _translate_query(retriever.query, target, timeouts, target.legs)
    if bm25 := tree["retrieval"]["retrievers"].get("bm25"):
        bm25 |= retriever.sparse_params.model_dump()
    return tree


def fit_tokens(chunking: Chunking, target: Target) -> int:
    """The target of the chunking, cut to what the embedding model reads."""
    return min(chunking.target_tokens, target.max_tokens)


def choose_budget(timeouts: Timeouts) -> str:
    """The strictest budget that allows all of the timeouts; `none` if there is none."""
    requested = tuple(timeouts.model_dump().values())
    for name in ("realtime", "standard"):
        if all(value <= limit for value, limit in zip(requested, budget_timeouts(name), strict=True)):
            return name
    return "none"


def budget_timeouts(name: str) -> tuple[float, ...]:
    """The limits of a budget in milliseconds, in the order of `Timeouts`."""
    budget: Budget = BUDGETS[name]
    return tuple(round(1000 * limit, 3) for limit in (budget.leg, budget.fusion, budget.rerank_batch, budget.total))


def is_budget(timeouts: Timeouts) -> bool:
    """True if the timeouts are exactly those of a budget."""
    return any(tuple(timeouts.model_dump().values()) == budget_timeouts(name) for name in BUDGETS)


def choose_reranker(query: ProfileQuery, target: Target) -> Mapping[str, Any]:
    """The section of the reranker; empty if the query has none, or if there is no model for it."""
    return {"type": "lexical"} if query.reranking == "lexical" else target.rerankers.get(query.reranking or "", {})


def _translate_profile(
    profile: Profile, target: Target, timeouts: Timeouts | None, default_legs: Iterable[str]
) -> SettingsTree:
    tree: SettingsTree = {}
    if profile.ingestion:
        chunking = profile.ingestion.chunking
        tree["chunking"] = {"type": CHUNKERS[chunking.primary], "tokens": fit_tokens(chunking, target)}
    if profile.query:
        tree |= _translate_query(profile.query, target, timeouts, default_legs)
    return tree


def _translate_query(
    query: ProfileQuery, target: Target, timeouts: Timeouts | None, default_legs: Iterable[str]
) -> SettingsTree:
    explicit = timeouts if timeouts and not is_budget(timeouts) else None
    hybrid: SettingsTree = {
        "type": "hybrid",
        "retrievers": _replace_all(default_legs, {leg: {"type": leg} for leg in query.strategies}),
        "fusion": _translate_fusion(query, default_legs),
        **({"timeout_ms": explicit.retrieval_ms} if explicit else {}),
    }
    splade = {"splade": SPLADE} if "splade" in query.strategies and not target.has_splade else {}
    reranker = choose_reranker(query, target)
    if not reranker:
        return {**splade, "retrieval": hybrid}
    limit = {"timeout_ms": explicit.reranking_ms} if explicit else {}
    return {**splade, "retrieval": {"type": "reranked", "retriever": hybrid, "reranker": dict(reranker), **limit}}


def _translate_fusion(query: ProfileQuery, default_legs: Iterable[str]) -> SettingsTree:
    match query.fusion:
        case "rrf" | "ltr":
            return {"type": "rrf", "k": query.fusion_params.k}
        case "weighted" | "weighted_sum":
            return {"type": "weighted", "weights": _replace_all(default_legs, _choose_weights(query))}
        case "distribution":
            return {"type": "distribution", "weights": _replace_all(default_legs, _choose_weights(query))}


def _choose_weights(query: ProfileQuery) -> dict[str, float]:
    """The weights of the strategies; equal ones if none are given."""
    params, legs = query.fusion_params, query.strategies
    if params.alpha is None:
        return {leg: params.weights.get(leg, 0.0 if params.weights else 1 / len(legs)) for leg in legs}
    sparse = [leg for leg in legs if leg != "dense"]
    return {leg: 1 - params.alpha if leg == "dense" else params.alpha / len(sparse) for leg in legs}


def _replace_all(names: Iterable[str], values: Mapping[str, T]) -> dict[str, T | None]:
    """The values, and null for the other names, which removes theirs."""
    return {**values, **{name: None for name in names if name not in values}}
