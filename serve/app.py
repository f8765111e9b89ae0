"""The gateway as a deployment of Ray Serve, and the application of gateway, models and ingest runner."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rag_core.errors import ConfigError, RagError
from serve.file_watch import POLL_SECONDS, FileWatch
from serve.gateway import build_fastapi
from serve.gateway_settings import (
    NO_SOURCE,
    GatewaySettings,
    SettingsSource,
    load_gateway_settings,
)
from serve.http.access_log import open_access_log
from serve.ingest_runner import runner_app
from serve.models.model_connections import VLLM, Engine, Handle, connect_models, model_deployment
from serve.profiles import ServedProfiles, build_profiles
from serve.readiness import Dependency
from serve.services import open_shared_resources
from serve.shape.arguments import GATEWAY_NAME, Arguments, Parts, check_parts, source_from_arguments
from serve.shape.garbage_collection import freeze_loaded_objects
from serve.shape.logs_folder import serve_logs_folder
from serve.shape.reload import parse_user_config, reload_gateway_settings, reload_settings
from serve.shape.replica_server import use_lent_listener
from serve.telemetry import configure_telemetry

MAX_ONGOING_REQUESTS = 4096
"""Requests that Serve lets a replica process at the same time. The replica's own limits (`serving`) are far below.

Serve counts a request before its body has arrived, so a low limit here would let slow clients stop health checks.
"""

MAX_QUEUED_REQUESTS = 512
"""Requests that each proxy queues for all replicas together. Further requests are rejected."""

_log = logging.getLogger(__name__)


@serve.deployment(
    name=GATEWAY_NAME,
    max_ongoing_requests=MAX_ONGOING_REQUESTS,
    max_queued_requests=MAX_QUEUED_REQUESTS,
    backpressure_config={"status_code": 503, "retry_after_s": 1},
    ray_actor_options={"num_cpus": 1},
    health_check_period_s=1,
)
@serve.ingress()
class Gateway:
    """The HTTP API. Each replica builds its own FastAPI application.

    It is not passed to `serve.ingress`, which would pickle it.
    """

    def __init__(self, settings_json: str, source_json: str, handles: Mapping[str, Handle], engine: Engine) -> None:
        self._started_with = self._settings = GatewaySettings.model_validate_json(settings_json)
        self._source = SettingsSource.model_validate_json(source_json)
        self._overrides: tuple[str, ...] = ()
        self._deployed = frozenset(handles)
        self._is_serving = False
        self._reload_error = ""
        self._reloading = asyncio.Lock()
        own = self._settings.own
        configure_telemetry("gateway", own.telemetry)
        open_access_log(serve_logs_folder())
        use_lent_listener(own.serving.transfer_timeout_s)
        connected = connect_models(own, handles, engine)
        reload_check = Dependency(self._check_reload, required=False)
        dependencies = {**connected.dependencies, "settings": reload_check}
        self._resources = open_shared_resources(own, connected.remote_models, dependencies)
        self._app = build_fastapi(build_profiles(self._settings, self._resources, self._deployed))
        for name, reason in self._profiles.unserved.items():
            _log.info("profile %s is not served: %s", name, reason)
        self._profiles.load(own.serving.preload)

    async def __serve_build_asgi_app__(self) -> FastAPI:
        if self._source.file:
            self._watching = asyncio.create_task(self._watch_file())
        return self._app

    async def check_health(self) -> None:
        """Reports no failure. Serve's first call shows that the replica has started.

        From then on `reconfigure` reports errors instead of raising them.
        """
        self._is_serving = True

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Applies changed settings to new requests; running requests keep the settings that they started with.

        While the replica starts, an invalid change raises its error (ConfigError or ModelError). Later it is only
        logged and reported by `/readyz`, because Serve would stop a replica that raises. The settings then stay as they
        are.
        """
        try:
            await self._apply(overrides=parse_user_config(config).set)
        except RagError as error:
            if not self._is_serving:
                raise
            self._report_reload_error(error)

    async def _watch_file(self) -> None:
        """Applies the settings file whenever it changes. An invalid one is logged and reported by `/readyz`."""
        watch = FileWatch(Path(self._source.file), self._source.digest)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not await asyncio.to_thread(watch.has_changed):
                continue
            try:
                await self._apply(await asyncio.to_thread(reload_gateway_settings, self._started_with, self._source))
                _log.info("applied the changed settings of %s", self._source.file)
            except RagError as error:
                self._report_reload_error(error)

    async def _apply(self, settings: GatewaySettings | None = None, overrides: Sequence[str] | None = None) -> None:
        """Serves the profiles of these settings, with overrides for the gateway's own one. None keeps the current ones.

        Raises ConfigError or ModelError, and then changes nothing.
        """
        async with self._reloading:
            settings = self._settings if settings is None else settings
            overrides = self._overrides if overrides is None else tuple(overrides)
            changed = settings.model_copy(update={"own": reload_settings(settings.own, overrides)})
            self._app.state.profiles = await asyncio.to_thread(self._replace_profiles, changed)
            self._settings, self._overrides, self._reload_error = settings, overrides, ""
            if self._is_serving:
                freeze_loaded_objects()

    def _replace_profiles(self, settings: GatewaySettings) -> ServedProfiles:
        """The profiles of the changed settings. Those that are loaded now are loaded again before they are served."""
        profiles = build_profiles(settings, self._resources, self._deployed)
        profiles.reuse(self._profiles)
        return profiles

    @property
    def _profiles(self) -> ServedProfiles:
        profiles: ServedProfiles = self._app.state.profiles
        return profiles

    def _report_reload_error(self, error: RagError) -> None:
        self._reload_error = str(error)
        _log.error("cannot apply the changed settings: %s", error)

    async def _check_reload(self) -> None:
        if self._reload_error:
            raise ConfigError(self._reload_error)


def build(arguments: Arguments) -> Application:
    """The builder that a Serve config names as `import_path: serve.app:build`.

    Raises ConfigError if the settings are invalid, or do not match the deployments.
    """
    source = source_from_arguments(arguments)
    return build_application(load_gateway_settings(source), arguments, source=source)


def build_local_application(settings: GatewaySettings, source: SettingsSource = NO_SOURCE) -> Application:
    """The application with all models in the gateway's process. Two CPUs are enough."""
    return build_application(settings, Parts(), source=source)


def build_application(
    profiles: GatewaySettings, parts: Parts, engine: Engine = VLLM, source: SettingsSource = NO_SOURCE
) -> Application:
    """The gateway, bound to the deployments in `parts`, which run the models of its own profile.

    `engine` deploys and calls the language model. The gateway reloads the settings when the file of `source` changes.
    Raises ConfigError if the settings do not match the deployments.
    """
    settings = profiles.own
    check_parts(settings, parts)
    # Serve passes a handle in place of each
    children: dict[str, Application] = {role: model_deployment(settings, role) for role in sorted(parts.deployments)}
    if parts.generator:
        children["generator"] = engine.deployment(parts.generator)
    if parts.ingest:
        children["ingest"] = runner_app(settings)
    values = profiles.model_dump_json(exclude_unset=True), source.model_dump_json()
    app: Application = Gateway.bind(*values, children, engine)  # type: ignore[attr-defined]
    return app
