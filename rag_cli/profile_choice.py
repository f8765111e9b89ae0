"""The profile of `rag ingest`: the named one, else the one detected for all sources, else the default.

Detection never stops a command that names no profile: without a GPU a detected profile is replaced by its CPU variant,
and a collection keeps its embedding model. `rag search` detects no profile, so it must be named there.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.options import GlobalOptions
from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE, Detection, choose_profile
from rag_core.errors import ConfigError
from rag_core.settings import describe_cpu_variant, read_detection
from rag_core.types import Metadata

if TYPE_CHECKING:
    from rag_core.wiring.profile_choice import LoadProfile

_log = logging.getLogger(__name__)


def choose_settings(options: GlobalOptions, locations: Sequence[str], collection: str) -> Settings:
    """The settings of the profile that suits the sources, with the profiles that can suit single documents.

    Detection uses a source's uri and the metadata of all documents, and prints its choice.
    """
    if explicit := options.profile or os.environ.get("RAG_PROFILE", ""):
        choose_profile(explicit, [], {})  # logs it
        announce_variant(options.settings, options)
        return options.settings
    from rag_core.wiring.profile_choice import add_document_profiles

    detection, load = read_detection(options.config), cache(partial(_load, options))
    detected = choose_profile("", _describe_sources(options.settings, locations), detection.patterns)
    profile = detected if detected == DEFAULT_PROFILE else _adapt(detected, detection, load, options, collection)
    return add_document_profiles(load(profile), detection, load)


def announce_variant(settings: Settings, options: GlobalOptions) -> None:
    """Prints and logs how a CPU variant differs from the profile that it replaces."""
    if notice := describe_cpu_variant(settings, options.config):
        _announce(notice, options)


def _load(options: GlobalOptions, profile: str) -> Settings:
    return replace(options, profile=profile).settings


def _describe_sources(settings: Settings, locations: Sequence[str]) -> list[Metadata]:
    from rag_core.wiring.ingestion import source_uri

    return [{**settings.metadata.set, "uri": source_uri(settings, location)} for location in locations]


def _adapt(detected: str, detection: Detection, load: "LoadProfile", options: GlobalOptions, collection: str) -> str:
    """The detected profile, or the one to use instead of it on this machine and for this collection."""
    from rag_core.wiring.embedding import embedding_space

    profile, obstacle = _find_usable(detected, detection, load)
    reason = f" instead of {detected}, which was detected from the sources: {obstacle}"
    if profile == detected:
        reason = ", detected from the sources"
    space, stored_profile = _find_pipeline(options, collection)
    if space and space != embedding_space(load(profile).embedding).fingerprint:
        profile = _find_loadable(stored_profile, load)
        reason = f", that of collection {collection}; {detected}, detected from the sources, needs another model"
    _announce(f"using profile {profile}{reason}; pass --profile {DEFAULT_PROFILE} to turn this off", options)
    announce_variant(load(profile), options)
    return profile


def _find_usable(detected: str, detection: Detection, load: "LoadProfile") -> tuple[str, str]:
    """The detected profile or a replacement that this machine can use, and what hinders the detected one.

    A user's own profile is only replaced as its `without_gpu` says.
    """
    from rag_core.wiring.profile_choice import find_obstacle

    # on a cluster, other machines embed
    obstacle = "" if "RAY_ADDRESS" in os.environ else find_obstacle(detected, load)
    replacements = [detection.cpu_variants.get(detected, ""), DEFAULT_PROFILE if detection.is_shipped else ""]
    usable = (profile for profile in replacements if profile and not find_obstacle(profile, load))
    return (next(usable, detected) if obstacle else detected), obstacle


def _find_pipeline(options: GlobalOptions, collection: str) -> tuple[str, str]:
    from rag_core.storage.catalog import Catalog

    with open_store(options).connect() as connection:
        return Catalog(connection, options.settings.tenant).find_pipeline(collection)


def _find_loadable(profile: str, load: "LoadProfile") -> str:
    """The profile, or the default one if the present configuration does not have it."""
    try:
        return load(profile).profile
    except ConfigError:
        return DEFAULT_PROFILE


def _announce(notice: str, options: GlobalOptions) -> None:
    _log.info("%s", notice)
    if not options.quiet:
        typer.echo(notice, err=True)
