"""Features: names that switch a part of the pipeline as a whole, and the phases of a rollout.

The section `features` of a configuration maps features to true or false. When the settings are loaded, each becomes
the settings that it stands for. Nothing after the loader sees features.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rag_core.errors import ConfigError, suggest_name

Tree: TypeAlias = Mapping[str, Any]
Switch: TypeAlias = Callable[[Tree, bool], Mapping[str, Any]]
"""A function of the merged settings and the value of a feature. It returns values by `section.key`."""

PHASES = (1, 2, 3, 4)
PHASE_PREFIX = "conversational_search_phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A part of the pipeline. `phase` is that of its rollout; 0 is none.

    `requires` names what the profile must have, if the feature can only switch what is there.
    """

    phase: int
    description: str
    switch: Switch
    requires: str = ""


def _set(setting: str, on: Any = True, off: Any = False) -> Switch:
    return lambda _tree, is_on: {setting: on if is_on else off}


def _set_off(values: Mapping[str, Any]) -> Switch:
    """Sets the values if the feature is off; otherwise the profile's own apply."""
    return lambda _tree, is_on: {} if is_on else values


def _switch_legs(tree: Tree, is_on: bool) -> Mapping[str, bool]:
    legs = [
        leg
        for path, retriever in _walk(tree.get("retrieval"), "retrieval")
        if retriever.get("type") == "hybrid"
        for leg in _list_legs(retriever, path)
    ]
    return {f"{path}.enabled": is_on for path, leg in legs if leg.get("type") != "dense"}


def _switch_rerankers(tree: Tree, is_on: bool) -> Mapping[str, bool]:
    paths = [path for path, node in _walk(tree.get("retrieval"), "retrieval") if node.get("type") == "reranked"]
    outer = {f"{path}.enabled": is_on for path in paths}
    return outer | {f"{path}.reranker.enabled": True for path in paths if is_on}


def _walk(retriever: Any, path: str) -> Iterator[tuple[str, Tree]]:
    """Yields the retriever and all retrievers within it, with their paths."""
    if not isinstance(retriever, Mapping):
        return
    yield path, retriever
    yield from _walk(retriever.get("retriever"), f"{path}.retriever")
    for leg_path, leg in _list_legs(retriever, path):
        yield from _walk(leg, leg_path)


def _list_legs(retriever: Tree, path: str) -> Iterator[tuple[str, Tree]]:
    """Yields the legs with their paths. Leaves out whatever is no mapping, which the validation refuses later."""
    legs = retriever.get("retrievers")
    for name, leg in legs.items() if isinstance(legs, Mapping) else ():
        if isinstance(leg, Mapping):
            yield f"{path}.retrievers.{name}", leg


_HISTORY_WEIGHTS = ("carried", "previous", "answer", "first", "rewrite")
FEATURES: Mapping[str, Feature] = {
    "hybrid_search": Feature(
        phase=1,
        description="Search by words and other legs, next to vectors.",
        switch=_switch_legs,
        requires="a hybrid retriever",
    ),
    "conversation": Feature(
        phase=2,
        description="Read the earlier messages of a conversation.",
        switch=_set_off({"answering.history": 0}),
    ),
    "query_rewriting": Feature(
        phase=2,
        description="Search a question with what it refers to in its conversation.",
        switch=_set_off({f"conversation.weights.{name}": 0.0 for name in _HISTORY_WEIGHTS}),
    ),
    "topic_shift": Feature(
        phase=2,
        description="Detect questions that change the subject.",
        switch=_set("conversation.topic_shift.type", on="score", off="none"),
    ),
    "clarification": Feature(
        phase=2,
        description="Ask back if a question is ambiguous.",
        switch=_set("conversation.clarification.enabled"),
    ),
    "reranking": Feature(
        phase=3,
        description="Rerank the best hits.",
        switch=_switch_rerankers,
        requires="a reranked retriever",
    ),
    "guard": Feature(phase=3, description="Check answers against their sources.", switch=_set("guard.enabled")),
    "repetition_check": Feature(
        phase=3,
        description="Check that an answer does not only repeat earlier ones.",
        switch=_set("conversation.repetition.enabled"),
    ),
    "feedback": Feature(
        phase=4,
        description="Store answers with their facts, for feedback and exports.",
        switch=_set("telemetry.replies"),
    ),
    "read_audit": Feature(
        phase=4,
        description="Record in the audit also what callers only read.",
        switch=_set("audit.reads", on="authenticated", off="never"),
    ),
    "scan": Feature(phase=0, description="Scan documents for programs and hidden text.", switch=_set("scan.enabled")),
    "ocr": Feature(
        phase=0,
        description="Read scanned pages and images by Tesseract.",
        switch=lambda _tree, is_on: {"parsing.ocr.type": "tesseract"} if is_on else {"parsing.ocr": None},
    ),
    "rate_limits": Feature(
        phase=0, description="Limit what tenants and users can request.", switch=_set("rate_limits.enabled")
    ),
}
PHASE_FLAGS = {f"{PHASE_PREFIX}{phase}": phase for phase in PHASES}
FLAGS = (*FEATURES, *PHASE_FLAGS)


def list_feature_settings(tree: Tree, flags: object) -> Mapping[str, Any]:
    """The values by `section.key` that the flags stand for. `tree` has the merged settings.

    Raises ConfigError if a flag is unknown or no boolean, or if the profile lacks what a feature requires.
    """
    checked = _check_flags(flags)
    values: dict[str, Any] = {}
    for name, is_on in {**_list_later_features(checked), **checked}.items():
        if name in PHASE_FLAGS:
            continue
        feature = FEATURES[name]
        switched = feature.switch(tree, is_on)
        if not switched and is_on and feature.requires:
            raise ConfigError(f"features.{name} requires {feature.requires}, which the profile does not have, got true")
        values |= switched
    return values


def _check_flags(flags: object) -> Mapping[str, bool]:
    if not isinstance(flags, Mapping):
        raise ConfigError(f"features must be a mapping of names to true or false, got {flags!r:.60}")
    for name, value in flags.items():
        if name not in FLAGS:
            hint = suggest_name(str(name), FLAGS, "features.") or f"; the features are {', '.join(FLAGS)}"
            raise ConfigError(f"features.{name}: unknown feature{hint}")
        if not isinstance(value, bool):
            raise ConfigError(f"features.{name} must be true or false, got {value!r:.60}")
    return flags


def _list_later_features(flags: Mapping[str, bool]) -> dict[str, bool]:
    """The features of phases that the rollout has not reached, which are off.

    A phase that is true includes the earlier ones. One that is false excludes the later ones.
    """
    reached = [phase for name, phase in PHASE_FLAGS.items() if flags.get(name) is True]
    excluded = [phase for name, phase in PHASE_FLAGS.items() if flags.get(name) is False]
    last = min([max(reached, default=PHASES[-1]), *(phase - 1 for phase in excluded)])
    if reached and last < max(reached):
        raise ConfigError(
            f"features.{PHASE_PREFIX}{max(reached)} includes phase {min(excluded)}, which is false; set one of them"
        )
    return {name: False for name, feature in FEATURES.items() if feature.phase > last}
