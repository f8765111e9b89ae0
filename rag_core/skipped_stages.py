"""Disabled stages: they are taken out of the settings when these are loaded, and recorded with the reason.

Everything after the loader, such as a builder or a job, therefore sees only stages that run.
"""

import logging
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, TypeVar

from rag_core.config import (
    DistributionFusion,
    FusionSettings,
    HybridRetriever,
    LegRetriever,
    LexicalJudge,
    LtrFusion,
    MetadataSettings,
    OuterSettings,
    PythonObject,
    RerankedRetriever,
    RetrievalSettings,
    RrfFusion,
    ScanSettings,
    Settings,
    SkippedStages,
    SpladeModel,
    Stage,
    WeightedFusion,
)
from rag_core.errors import ConfigError

T = TypeVar("T")

_REQUIRED = ("chunking", "embedding", "generation")
_STAGE_NAMES = {"reranked": "rerank"}
"""The stage of an outer retriever, if it has another name than the type."""
_log = logging.getLogger(__name__)


def skip_disabled_stages(settings: Settings) -> Settings:
    """The settings without disabled stages, which `skipped` then names.

    Raises ConfigError if a stage is disabled that nothing works without.
    """
    for name in _REQUIRED:
        section = getattr(settings, name)
        if isinstance(section, PythonObject) and not section.enabled:
            raise ConfigError(f"{name}.enabled must be true, because nothing works without this stage, got false")
    ingestion = _find_disabled_sections(settings)
    pruning = _RetrieverPruning(ingestion)
    retrieval = pruning.prune(settings.retrieval, settings.retrieval.type, "retrieval")
    if retrieval is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in pruning.skipped.items())
        raise ConfigError(f"retrieval must have a retriever that is not skipped, got none ({reasons})")
    for name, reason in (ingestion | pruning.skipped | _find_disabled_judge(settings)).items():
        _log_skipped(name, reason)
    changes = {"retrieval": retrieval, **_replace_sections(settings, ingestion)}
    if ingestion or pruning.skipped:
        earlier = settings.skipped
        changes["skipped"] = SkippedStages(
            questions=earlier.questions | pruning.skipped, ingestion=earlier.ingestion | ingestion
        )
    return settings.model_copy(update=changes)


def _find_disabled_sections(settings: Settings) -> dict[str, str]:
    """The reasons to skip stages of a sync, by stage."""
    stages = {
        "metadata": ("metadata", settings.metadata),
        "scan": ("scan", settings.scan),
        "ocr": ("parsing.ocr", settings.parsing.ocr),
        "graph": ("graph", settings.graph),
        "splade": ("splade", settings.splade),
    }
    reasons = {name: _find_reason(section, path) for name, (path, section) in stages.items() if section}
    return {name: reason for name, reason in reasons.items() if reason}


def _find_disabled_judge(settings: Settings) -> dict[str, str]:
    """The reason why no answer is judged, if a stage is disabled. The guard reports the stage itself."""
    guard = settings.guard
    reason = _find_reason(guard, "guard") or _find_reason(guard.judge, "guard.judge")
    return {"judge": reason} if reason else {}


def _find_reason(stage: Stage, setting: str) -> str:
    """The reason to skip the stage of this setting; empty if it runs."""
    if not stage.enabled:
        return f"{setting}.enabled is false"
    if isinstance(stage, SpladeModel) and stage.if_installed and not _is_installed(stage.if_installed):
        return f"{setting}.if_installed: the package {stage.if_installed} is not installed"
    return ""


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _replace_sections(settings: Settings, disabled: Collection[str]) -> dict[str, Any]:
    """The sections that change, by name. A job keeps the decision about a package, so `if_installed` is removed."""
    sections: dict[str, Any] = {name: None for name in ("graph", "splade") if name in disabled}
    if isinstance(settings.splade, SpladeModel) and settings.splade.if_installed and "splade" not in disabled:
        sections["splade"] = settings.splade.model_copy(update={"if_installed": ""})
    if "metadata" in disabled:
        access, default = settings.metadata.access, settings.metadata.access_default
        sections["metadata"] = MetadataSettings(access=access, access_default=default)
    if "scan" in disabled:
        sections["scan"] = ScanSettings(mode="off")
    if "ocr" in disabled:
        sections["parsing"] = settings.parsing.model_copy(update={"ocr": None})
    guard = settings.guard
    if not guard.judge.enabled:  # the judge that needs no model replaces it, and judges nothing
        guard = guard.model_copy(update={"judge": LexicalJudge(type="lexical"), "enabled": False})
    if not guard.enabled:
        sections["guard"] = guard.model_copy(update={"mode": "off", "enabled": True})
    return sections


class _RetrieverPruning:
    """Takes the disabled parts out of a tree of retrievers. `skipped` then has the reasons, by stage."""

    def __init__(self, section_reasons: Mapping[str, str]) -> None:
        """`section_reasons` are the reasons to skip a section that retrievers of its type require, by type."""
        self._section_reasons = section_reasons
        self.skipped: dict[str, str] = {}

    def prune(self, retrieval: RetrievalSettings, name: str, setting: str) -> RetrievalSettings | None:
        """None if the whole retriever is skipped. `name` is the stage of a leg."""
        if isinstance(retrieval, OuterSettings):
            return self._prune_outer(retrieval, setting)
        if reason := _find_reason(retrieval, setting) or self._section_reasons.get(retrieval.type, ""):
            self.skipped[name] = reason
            return None
        return self._prune_hybrid(retrieval, setting) if isinstance(retrieval, HybridRetriever) else retrieval

    def _prune_outer(self, outer: OuterSettings, setting: str) -> RetrievalSettings | None:
        inner = self.prune(outer.retriever, outer.retriever.type, f"{setting}.retriever")
        reason = _find_reason(outer, setting)
        if isinstance(outer, RerankedRetriever):
            reason = reason or _find_reason(outer.reranker, f"{setting}.reranker")
        if reason:
            self.skipped[_STAGE_NAMES.get(outer.type, outer.type)] = reason
        if reason or inner is None:
            return inner
        if inner is outer.retriever:
            return outer
        return outer.model_copy(update={"retriever": inner})

    def _prune_hybrid(self, hybrid: HybridRetriever, setting: str) -> HybridRetriever | None:
        pruned = {
            name: self.prune(leg, name, f"{setting}.retrievers.{name}") for name, leg in hybrid.retrievers.items()
        }
        remaining = {name: leg for name, leg in pruned.items() if leg is not None}
        legs: dict[str, RetrievalSettings] = {}
        for name, leg in remaining.items():
            if not isinstance(leg, LegRetriever):
                legs[name] = leg
            elif leg.instead_of not in remaining:
                legs[name] = leg.model_copy(update={"instead_of": ""})
            else:
                self.skipped[name] = f"{leg.instead_of} is used instead"
        if not legs:
            return None
        if legs == hybrid.retrievers:
            return hybrid
        return hybrid.model_copy(
            update={
                "retrievers": legs,
                "fusion": _restrict_fusion(hybrid.fusion, legs),
                "timeouts_ms": _restrict(hybrid.timeouts_ms, legs),
            }
        )


def _restrict_fusion(fusion: FusionSettings, legs: Collection[str]) -> FusionSettings:
    """The fusion without the values of other legs."""
    match fusion:
        case WeightedFusion(alpha=float()) if len(legs) < 2:
            return WeightedFusion(type="weighted")
        case DistributionFusion() | WeightedFusion():
            return fusion.model_copy(update={"weights": _restrict(fusion.weights, legs)})
        case LtrFusion():
            scores, ranks = _restrict(fusion.scores, legs), _restrict(fusion.ranks, legs)
            return fusion.model_copy(update={"scores": scores, "ranks": ranks})
        case RrfFusion():
            return fusion


def _restrict(values: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: value for name, value in values.items() if name in names}


@cache
def _log_skipped(name: str, reason: str) -> None:
    """Logs the decision once per process, because many commands load the same settings."""
    _log.info("stage %s is skipped: %s", name, reason)
