"""The profile that suits a source or a document, detected from its metadata."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import TypeAlias

from rag_core.types import Document, Metadata

DetectPatterns: TypeAlias = Mapping[str, Sequence[str]]
"""Glob patterns (`*`, `?`, `[...]`) by metadata key; case does not count. One match with one value is enough."""

DEFAULT_PROFILE = "default"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The patterns of each profile that can be detected, and the profile that replaces it without a GPU, by profile.

    `is_shipped`: no user wrote these profiles, so one that does not fit the other settings is no mistake.
    """

    patterns: Mapping[str, DetectPatterns]
    cpu_variants: Mapping[str, str]
    is_shipped: bool = True


def detect_profile(metadata: Metadata, profiles: Mapping[str, DetectPatterns]) -> str:
    """The first profile with a pattern that matches the metadata; empty if no profile has one."""
    return next((name for name, patterns in profiles.items() if _has_match(metadata, patterns)), "")


def detect_document_profile(document: Document, profiles: Mapping[str, DetectPatterns]) -> str:
    """The profile that the document's metadata, media type, uri or url shows; empty if none does."""
    uris = [document.uri, str(document.metadata.get("url", ""))]
    return detect_profile({**document.metadata, "uri": uris, "media_type": document.media_type}, profiles)


def choose_profile(explicit: str, sources: Sequence[Metadata], profiles: Mapping[str, DetectPatterns]) -> str:
    """Returns the explicit profile, else the one detected for every source, else the default. Logs the choice."""
    if explicit:
        _log.info("profile %s: explicit", explicit)
        return explicit
    detected = {detect_profile(metadata, profiles) for metadata in sources}
    if len(detected) == 1 and (name := detected.pop()):
        _log.info("profile %s: detected", name)
        return name
    reason = "none detected"
    if len(detected) > 1:
        reason = f"the sources match different profiles: {', '.join(sorted(detected))}"
    _log.info("profile %s: %s", DEFAULT_PROFILE, reason)
    return DEFAULT_PROFILE


def _has_match(metadata: Metadata, patterns: DetectPatterns) -> bool:
    for key, key_patterns in patterns.items():
        value = metadata.get(key)
        values = [value] if isinstance(value, str | int | float) else value or ()  # clients can send null
        if any(_compile_patterns(tuple(key_patterns)).match(str(item).lower()) for item in values):
            return True
    return False


@lru_cache(maxsize=256)
def _compile_patterns(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all patterns, because a sync matches every listed document."""
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns) or "(?!)")
