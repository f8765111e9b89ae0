"""The gateway as a deployment of Ray Serve, and the application of gateway, models and ingest runner."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rag_core.errors import ConfigError
from serve.gateway import build_fastapi
from serve.gateway_settings import (
    NO_SOURCE,
    GatewaySettings,
    SettingsSource,
    load_gateway_settings,
)
from serve.http.access_log import open_access_log
from serve.http.draining import start_draining
from serve.ingest_runner import runner_app
from serve.models.model_connections import VLLM, Engine, Handle, connect_models, model_deployment
from serve.profiles import build_profiles
from serve.readiness import Dependency
from serve.services import open_shared_resources
from serve.shape.arguments import GATEWAY_NAME, Arguments, Parts, check_parts, source_from_arguments
from serve.shape.exposure import check_running_serve
from serve.shape.logs_folder import serve_logs_folder
from serve.shape.profile_reload import ProfileReload
from serve.shape.reload import parse_user_config
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
        settings = GatewaySettings.model_validate_json(settings_json)
        source = SettingsSource.model_validate_json(source_json)
        configure_telemetry("gateway", settings.own.telemetry)
        open_access_log(serve_logs_folder())
        use_lent_listener(settings.own.serving.transfer_timeout_s)
        connected = connect_models(settings.own, handles, engine)
        reload_check = Dependency(self._check_reload, required=False)
        dependencies = {**connected.dependencies, "settings": reload_check}
        resources = open_shared_resources(settings.own, connected.remote_models, dependencies)
        build = partial(build_profiles, resources=resources, deployed=frozenset(handles))
        profiles = build(settings)
        for name, reason in profiles.unserved.items():
            _log.info("profile %s is not served: %s", name, reason)
        profiles.load(settings.own.serving.preload)
        self._app = build_fastapi(profiles)
        self._reload = ProfileReload(self._app, settings, source, build)
        self._is_serving = False

    async def __serve_build_asgi_app__(self) -> FastAPI:
        self._watching = asyncio.create_task(self._reload.watch_file())
        return self._app

    async def check_health(self) -> None:
        """Reports no failure. Serve's first call shows that the replica has started.

        From then on `reconfigure` reports errors instead of raising them.
        """
        self._is_serving = True

    async def drain(self) -> None:
        """Makes load balancers send no more requests: `rag serve` is about to stop."""
        start_draining(self._app)

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Applies changed settings to new requests; running requests keep the settings that they started with.

        While the replica starts, an invalid change raises its error (ConfigError or ModelError). Later it is only
        logged and reported by `/readyz`, because Serve would stop a replica that raises. The settings then stay as they
        are.
        """
        with self._reload.report_errors() if self._is_serving else nullcontext():
            await self._reload.apply(overrides=parse_user_config(config).set)

    async def _check_reload(self) -> None:
        if self._reload.error:
            raise ConfigError(self._reload.error)


def build(arguments: Arguments) -> Application:
    """The builder that a Serve config names as `import_path: serve.app:build`.

    Raises ConfigError if the settings are invalid or do not match the deployments, or if Serve listens on more than
    loopback and callers are not authenticated.
    """
    source = source_from_arguments(arguments)
    settings = load_gateway_settings(source)
    check_running_serve(settings.own.auth)
    return build_application(settings, arguments, source=source)


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
