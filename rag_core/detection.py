"""Which profile suits a source, by what is known about it."""

import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from rag_core.types import Metadata, Value

Signs: TypeAlias = Mapping[str, Sequence[str]]
"""Metadata keys, and the patterns (`*`, `?`, `[...]`, in any case) of which one value has to match one."""

DEFAULT_PROFILE = "default"
_log = logging.getLogger(__name__)


def detected_profile(metadata: Metadata, profiles: Mapping[str, Signs]) -> str:
    """The first profile that has a sign which matches; empty if none has."""
    return next((name for name, signs in profiles.items() if _any_matches(metadata, signs)), "")


def chosen_profile(explicit: str, sources: Sequence[Metadata], profiles: Mapping[str, Signs]) -> str:
    """The explicit one, else the one that every source is detected as, else the default. The decision is logged."""
    if explicit:
        _log.info("profile %s: explicit", explicit)
        return explicit
    found = {detected_profile(metadata, profiles) for metadata in sources}
    if len(found) == 1 and (name := found.pop()):
        _log.info("profile %s: detected", name)
        return name
    reason = f"the sources are of different profiles: {', '.join(sorted(found))}" if len(found) > 1 else "none detected"
    _log.info("profile %s: %s", DEFAULT_PROFILE, reason)
    return DEFAULT_PROFILE


def _any_matches(metadata: Metadata, signs: Signs) -> bool:
    return any(
        fnmatchcase(value.lower(), pattern.lower())
        for key, patterns in signs.items()
        for value in _strings(metadata.get(key, ()))
        for pattern in patterns
    )


def _strings(value: Value) -> list[str]:
    return [str(value)] if isinstance(value, str | int | float) else list(value)
