"""Changes of settings while a gateway serves. The models, the store and the settings of ingestion cannot change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from rag_core.config import Combinator, RetrievalSettings, Section, Settings
from rag_core.errors import ConfigError, validation_lines
from rag_core.settings import with_overrides
from serve.gateway_settings import GatewaySettings, SettingsSource, load_gateway_settings

RELOADABLE_SECTIONS = {"answering", "packing", "prompt", "version"}
"""Sections whose settings can all change, and the version of the profile."""


class UserConfig(Section):
    """The `user_config` of the gateway's deployment: changes that need no restart."""

    set: tuple[str, ...] = Field((), description="SECTION.KEY=VALUE, applied to the settings that it was started with")


def parse_user_config(config: Mapping[str, Any]) -> UserConfig:
    """Raises ConfigError with every invalid key."""
    try:
        return UserConfig.model_validate(config)
    except ValidationError as failure:
        raise ConfigError("\n".join(validation_lines(failure, "user_config"))) from None


def reload_settings(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Applies overrides. Raises ConfigError with every changed setting that requires a restart."""
    changed = with_overrides(settings, overrides)
    check_reload(settings, changed)
    return changed


def check_reload(before: Settings, after: Settings) -> None:
    """Raises ConfigError with every changed setting that requires a restart."""
    old, new = dict(_flatten(_fixed_settings(before))), dict(_flatten(_fixed_settings(after)))
    if fixed := sorted(key for key in old | new if old.get(key) != new.get(key)):
        raise ConfigError(f"cannot change while the gateway serves: {', '.join(fixed)}; restart it to change them")


def reload_gateway_settings(settings: GatewaySettings, source: SettingsSource) -> GatewaySettings:
    """Loads the source again. The profiles besides the gateway's own one can change in any way.

    Raises ConfigError if the own profile is invalid, or if a setting of it changed that requires a restart.
    """
    changed = load_gateway_settings(source)
    check_reload(settings.own, changed.own)
    return changed


def _fixed_settings(settings: Settings) -> dict[str, Any]:
    """The settings that require a restart."""
    sections = settings.model_dump(mode="json", exclude=RELOADABLE_SECTIONS)
    judge = settings.guard.judge.model_dump(mode="json", exclude={"supported", "partial"})
    return {**sections, "guard": {"judge": judge}, "retrieval": _fixed_retrieval(settings.retrieval)}


def _fixed_retrieval(retrieval: RetrievalSettings) -> dict[str, Any]:
    """The retrievers and the models that they load; weights, depths and timeouts can change."""
    if not isinstance(retrieval, Combinator):
        return retrieval.model_dump(mode="json")
    fixed = retrieval.model_dump(mode="json", include={"type", *retrieval.restart_settings})
    return fixed | {setting: _fixed_retrieval(child) for setting, child in retrieval.children().items()}


def _flatten(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields the leaves with their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, (*path, key))
        else:
            yield ".".join((*path, key)), value
