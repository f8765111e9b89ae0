"""The settings of all profiles of a gateway, and where they were loaded from."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from rag_core.config import ExtractiveGenerator, LocalModel, Section, Settings, walk
from rag_core.detection import Detection
from rag_core.errors import ConfigError, ModelError
from rag_core.models.loading import check_gpu
from rag_core.settings import list_shipped_profiles, load_settings, read_detection, read_profiles
from rag_core.wiring.models import list_rerankers, shared_roles
from serve.file_watch import hash_file

SHARED_SECTIONS = ("tenant", "store", "auth", "encryption")
"""The settings that all profiles of a gateway have in common, because they share its connections."""


def read_environment() -> dict[str, str]:
    """The environment variables that can be settings, without others such as RAG_API_KEY."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAG_") and ("__" in name or name in ("RAG_PROFILE", "RAG_TENANT"))
    }


class SettingsSource(Section):
    """The layers of a gateway's settings, which are loaded again when the file changes.

    `digest` is that of the file when the settings were loaded first. `environment` holds the variables of the process
    that loaded them, because a replica can have others.
    """

    file: str = ""
    digest: str = Field(default_factory=lambda values: hash_file(Path(values["file"])) if values["file"] else "")
    profile: str = ""
    set: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=read_environment)

    @property
    def path(self) -> Path | None:
        return Path(self.file) if self.file else None


NO_DETECTION = Detection(patterns={}, cpu_variants={})

NO_SOURCE = SettingsSource(environment={})
"""The source of settings that a program made itself. They are never loaded again."""


class GatewaySettings(Section):
    """`own` are the settings for requests that name no profile. `invalid` has the errors of invalid other profiles.

    `detection` finds profiles for single documents; it finds none if the own profile was named.
    """

    own: Settings
    others: dict[str, Settings] = Field(default_factory=dict)
    invalid: dict[str, str] = Field(default_factory=dict)
    detection: Detection = NO_DETECTION


def load_own_settings(source: SettingsSource) -> Settings:
    """Loads the selected profile. Raises ConfigError if it is invalid."""
    return load_settings(source.path, source.profile or None, source.set, source.environment)


def load_gateway_settings(source: SettingsSource) -> GatewaySettings:
    """Loads the selected profile, the other profiles of the file, and the shipped ones.

    The overrides of the command line and the environment apply to all of them. Raises ConfigError if the selected
    profile is invalid; another one is then only not served.
    """
    file, own = source.path, load_own_settings(source)
    others: dict[str, Settings] = {}
    invalid: dict[str, str] = {}
    for name in sorted({*list_shipped_profiles(), *read_profiles(file)} - {own.profile}):
        try:
            settings = load_settings(file, name, source.set, source.environment)
            check_shared_sections(settings, own)
            others[name] = settings
        except ConfigError as error:
            invalid[name] = str(error)
    is_named = source.profile or source.environment.get("RAG_PROFILE")
    detection = NO_DETECTION if is_named else read_detection(file)
    return GatewaySettings(own=own, others=others, invalid=invalid, detection=detection)


def check_shared_sections(settings: Settings, own: Settings) -> None:
    """Raises ConfigError if a profile has another tenant or store than the gateway's own profile."""
    for section in SHARED_SECTIONS:
        if getattr(settings, section) != getattr(own, section):
            raise ConfigError(f"{section} must be that of profile {own.profile}: all profiles of a gateway share it")


def find_unserved(settings: GatewaySettings, deployed: frozenset[str]) -> Mapping[str, str]:
    """The reasons for which profiles cannot answer in this process, by name: invalid settings, or a missing GPU.

    `deployed` are the roles whose models run elsewhere for the gateway's own profile.
    """
    reasons = dict(settings.invalid)
    for name, other in settings.others.items():
        try:
            for section, model in _local_models(other, deployed & shared_roles(settings.own, other)).items():
                check_gpu(section, model.device)
        except ModelError as error:
            reasons[name] = str(error)
    return reasons


def _local_models(settings: Settings, deployed: frozenset[str] | set[str]) -> dict[str, LocalModel]:
    """The models that this process would load for the profile, by section."""
    sections: dict[str, object] = {"splade": settings.splade if _searches_splade(settings) else None}
    if "embedder" not in deployed:
        sections["embedding"] = settings.embedding
    if "judge" not in deployed and not isinstance(settings.generation, ExtractiveGenerator):
        sections["guard.judge"] = settings.guard.judge
    if "reranker" not in deployed:
        sections |= {f"reranker {index}": model for index, model in enumerate(list_rerankers(settings.retrieval))}
    return {name: section for name, section in sections.items() if isinstance(section, LocalModel)}


def _searches_splade(settings: Settings) -> bool:
    return any(section.type == "splade" for section in walk(settings.retrieval))
