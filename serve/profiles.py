"""The profiles that a gateway serves, by name. Requests that name no profile use the gateway's own one."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from rag_core.answering.split import Experiment
from rag_core.config import Settings
from rag_core.detection import Detection
from rag_core.errors import ConfigError, UnavailableError, UsageError
from rag_core.storage.exposures import Exposure
from rag_core.telemetry.operation import record_profile
from rag_core.types import Query
from rag_core.wiring.profile_choice import add_document_profiles
from serve.gateway_settings import NO_DETECTION, GatewaySettings, find_unserved
from serve.public_errors import public_message
from serve.services import Services, SharedResources
from serve.variants import Variants

ServicesBuilder: TypeAlias = Callable[[Settings], Services]
"""A function that loads the models of a profile which are not yet in memory, and connects them. It can take seconds."""

NO_PROFILES: Mapping[str, Settings] = MappingProxyType({})
NO_REASONS: Mapping[str, str] = MappingProxyType({})

_log = logging.getLogger(__name__)


def _refuse_to_build(settings: Settings) -> Services:
    raise UsageError(f"profile {settings.profile} is not served here")


class ServedProfiles:
    """The gateway's own profile, and others that are built when a request first names them.

    `others` has their settings by name. `unserved` has, by name, the reason for which a profile cannot answer here.
    Its documents can be ingested nevertheless if it has settings: jobs can run on other machines. `detection` finds
    profiles for single documents of requests that name none.
    """

    def __init__(
        self,
        own: Services,
        others: Mapping[str, Settings] = NO_PROFILES,
        build: ServicesBuilder = _refuse_to_build,
        unserved: Mapping[str, str] = NO_REASONS,
        detection: Detection = NO_DETECTION,
    ) -> None:
        self.own = Variants(services=own)
        self._settings = {own.settings.profile: own.settings, **others}
        self._build, self._unserved, self._detection = build, unserved, detection
        self._built = {own.settings.profile: self.own}
        self._building: dict[str, asyncio.Task[Variants]] = {}

    @property
    def own_settings(self) -> Settings:
        return self.own.services.settings

    @property
    def names(self) -> list[str]:
        """The profiles that requests can name, sorted."""
        return sorted(self._settings.keys() - self._unserved.keys())

    @property
    def built_names(self) -> Sequence[str]:
        """The profiles whose models are in memory."""
        return list(self._built)

    @property
    def unserved(self) -> Mapping[str, str]:
        return self._unserved

    def version(self, name: str) -> str:
        """The version of the profile; empty if it has none, or no valid settings."""
        return self._settings[name].version if name in self._settings else ""

    async def find(self, name: str) -> Variants:
        """The variants of a profile; an empty name is the gateway's own profile. Builds the profile at its first use.

        Concurrent requests wait for one build. A build that fails is tried again by the next request. Raises UsageError
        for a profile that is not served, ModelError if its models cannot be loaded, and ConfigError if its settings do
        not fit together.
        """
        name = name or self.own_settings.profile
        self._check_served(name)
        record_profile(name)  # a label of metrics, so it must not be any text that a client sends
        if name in self._built:
            return self._built[name]
        task = self._building.get(name)
        if task is None:
            task = self._building[name] = asyncio.create_task(self._build_in_thread(name))
            task.add_done_callback(lambda _: self._building.pop(name, None))
        return await asyncio.shield(task)  # a client that disconnects does not stop the build for others

    async def assign(self, name: str, query: Query) -> tuple[Variants, Exposure | None]:
        """The variants that answer the query, and its exposure if they were chosen by the gateway's experiment.

        A request that names a profile takes no part in the experiment. Raises the errors of `find`.
        """
        running = self.own_settings.experiment
        if name or running is None:
            return await self.find(name), None
        exposure = Experiment(name=running.name, share=running.share).assign(query)
        return await self.find(running.treatment if exposure.variant == "treatment" else ""), exposure

    def load(self, names: Iterable[str]) -> None:
        """Builds these profiles now. Raises the errors of `find`."""
        for name in names:
            if name not in self._built:
                self._check_served(name)
                self._built[name] = self._build_variants(name)

    def knows(self, name: str) -> bool:
        """True for a profile that is served, or that has a reason why it is not."""
        return name in self._settings or name in self._unserved

    def settings_for_ingestion(self, name: str) -> Settings | None:
        """The settings of a profile, including of one that is not served; None if there is no such profile.

        An empty name is the gateway's own profile, with the profiles that can be detected for single documents.
        """
        return self._settings.get(name) if name else self._detecting_settings

    @cached_property
    def _detecting_settings(self) -> Settings:
        return add_document_profiles(self.own_settings, self._detection, self._load_settings)

    def _load_settings(self, name: str) -> Settings:
        """Raises ConfigError if the profile is invalid."""
        if name not in self._settings:
            raise ConfigError(self._unserved.get(name, f"there is no profile {name}"))
        return self._settings[name]

    @property
    def names_for_ingestion(self) -> list[str]:
        return sorted(self._settings)

    def reuse(self, earlier: "ServedProfiles") -> None:
        """Takes over the profiles of an earlier object that have equal settings, and builds its other loaded ones.

        A profile that can no longer be built is left to its next request, which then gets the reason.
        """
        for name in earlier.built_names:
            if name in self._built or name not in self.names:
                continue
            if earlier._settings[name] == self._settings[name]:
                self._built[name] = earlier._built[name]
                continue
            try:
                self.load([name])
            except (ConfigError, UnavailableError) as error:
                _log.error("cannot load profile %s with its changed settings: %s", name, error)

    def _check_served(self, name: str) -> None:
        reason = self._unserved.get(name)
        if reason is not None:
            public_reason = public_message(reason)
            raise UsageError(f"profile {name} is not served here: {public_reason}; served: {', '.join(self.names)}")
        if name not in self._settings:
            raise UsageError(f"profile must be one of {', '.join(self.names)}, got {name!r}")

    async def _build_in_thread(self, name: str) -> Variants:
        self._built[name] = variants = await asyncio.to_thread(self._build_variants, name)
        return variants

    def _build_variants(self, name: str) -> Variants:
        started = time.perf_counter()
        variants = Variants(services=self._build(self._settings[name]))
        _log.info("profile %s loaded in %.2f s", name, time.perf_counter() - started)
        return variants


def build_profiles(
    settings: GatewaySettings, resources: SharedResources, deployed: frozenset[str] = frozenset()
) -> ServedProfiles:
    """Builds the gateway's own profile, and leaves the others to their first use.

    `deployed` are the roles whose models run elsewhere for the own profile. The treatment of an experiment is built,
    too. Raises ModelError if a model of these profiles cannot be loaded, and ConfigError if there is no such treatment.
    """
    own, unserved = resources.build_services(settings.own), find_unserved(settings, deployed)
    profiles = ServedProfiles(own, settings.others, resources.build_services, unserved, settings.detection)
    if experiment := settings.own.experiment:
        _load_treatment(profiles, experiment.treatment)
        if not settings.others[experiment.treatment].telemetry.replies:
            raise ConfigError(f"experiment requires telemetry.replies, got false in profile {experiment.treatment}")
    return profiles


def _load_treatment(profiles: ServedProfiles, name: str) -> None:
    """Loads the profile that an experiment compares with the gateway's own. Raises ConfigError if there is none."""
    if name == profiles.own_settings.profile:
        raise ConfigError(f"experiment.treatment must be another profile than the gateway's own, got {name}")
    try:
        profiles.load([name])
    except UsageError as error:
        raise ConfigError(f"experiment.treatment: {error}") from error
