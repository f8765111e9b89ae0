"""What of the settings may change while a gateway serves: never which models there are, nor what was ingested how."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from rag_core.config import (
    HybridRetriever,
    PerDocumentRetriever,
    RerankedRetriever,
    RetrievalSettings,
    Section,
    Settings,
    SignalsRetriever,
)
from rag_core.errors import ConfigError
from rag_core.settings import changed

FREE = {"answering", "packing", "prompt"}
"""Sections of which all may change."""


class UserConfig(Section):
    """Of the gateway's deployment: what may change without a restart."""

    set: tuple[str, ...] = Field((), description="SECTION.KEY=VALUE, over the settings that it was started with")


def user_config(given: Mapping[str, Any]) -> UserConfig:
    try:
        return UserConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError("\n".join(f"user_config.{_told(each)}" for each in error.errors())) from None


def changed_while_serving(settings: Settings, overrides: Sequence[str]) -> Settings:
    """ConfigError names each setting that may not change."""
    new = changed(settings, overrides)
    before, after = dict(_leaves(_fixed(settings))), dict(_leaves(_fixed(new)))
    if touched := sorted(key for key in before | after if before.get(key) != after.get(key)):
        raise ConfigError(f"cannot change while the gateway serves: {', '.join(touched)}; start it anew for that")
    return new


def _fixed(settings: Settings) -> dict[str, Any]:
    whole = settings.model_dump(mode="json", exclude=FREE)
    judge = settings.guard.judge.model_dump(mode="json", exclude={"supported", "partial"})
    return {**whole, "guard": {"judge": judge}, "retrieval": _fixed_retrieval(settings.retrieval)}


def _fixed_retrieval(chosen: RetrievalSettings) -> dict[str, Any]:
    """Which retrievers there are and what they load; how their hits are weighed, cut and awaited is free."""
    match chosen:
        case HybridRetriever():
            legs = {name: _fixed_retrieval(leg) for name, leg in chosen.retrievers.items()}
            return {"type": chosen.type, "retrievers": legs}
        case RerankedRetriever():
            reranker = chosen.reranker.model_dump(mode="json")
            return {"type": chosen.type, "reranker": reranker, "retriever": _fixed_retrieval(chosen.retriever)}
        case PerDocumentRetriever() | SignalsRetriever():
            return {"type": chosen.type, "retriever": _fixed_retrieval(chosen.retriever)}
        case _:
            return chosen.model_dump(mode="json")


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


def _told(error: Any) -> str:
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}, got {error['input']!r:.60}"
