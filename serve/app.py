"""The gateway as a deployment of Ray Serve, and the application of gateway, models and ingest runner."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rag_core.config import Settings
from rag_core.errors import ConfigError, RagError
from serve.gateway import build_fastapi
from serve.http.access_log import open_access_log
from serve.ingest_runner import runner_app
from serve.models.model_connections import VLLM, Engine, Handle, connect_models, model_deployment
from serve.readiness import Dependency
from serve.services import open_shared_resources
from serve.shape.arguments import GATEWAY_NAME, Arguments, Parts, check_parts, settings_from_arguments
from serve.shape.garbage_collection import freeze_loaded_objects
from serve.shape.logs_folder import serve_logs_folder
from serve.shape.reload import parse_user_config, reload_settings
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

    def __init__(self, settings_json: str, handles: Mapping[str, Handle], engine: Engine) -> None:
        self._settings = Settings.model_validate_json(settings_json)
        self._is_serving = False
        self._reload_error = ""
        configure_telemetry("gateway", self._settings.telemetry)
        open_access_log(serve_logs_folder())
        use_lent_listener(self._settings.serving.transfer_timeout_s)
        connected = connect_models(self._settings, handles, engine)
        reload_check = Dependency(self._check_reload, required=False)
        dependencies = {**connected.dependencies, "settings": reload_check}
        self._resources = open_shared_resources(self._settings, connected.remote_models, dependencies)
        self._app = build_fastapi(self._resources.build_services(self._settings))

    async def __serve_build_asgi_app__(self) -> FastAPI:
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
            self._app.state.services = await asyncio.to_thread(
                lambda: self._resources.build_services(reload_settings(self._settings, parse_user_config(config).set))
            )
            self._reload_error = ""
            if self._is_serving:
                freeze_loaded_objects()
        except RagError as error:
            if not self._is_serving:
                raise
            self._reload_error = str(error)
            _log.error("cannot apply the changed settings: %s", error)

    async def _check_reload(self) -> None:
        if self._reload_error:
            raise ConfigError(self._reload_error)


def build(arguments: Arguments) -> Application:
    """The builder that a Serve config names as `import_path: serve.app:build`.

    Raises ConfigError if the settings are invalid, or do not match the deployments.
    """
    return build_application(settings_from_arguments(arguments), arguments)


def build_local_application(settings: Settings) -> Application:
    """The application with all models in the gateway's process. Two CPUs are enough."""
    return build_application(settings, Parts())


def build_application(settings: Settings, parts: Parts, engine: Engine = VLLM) -> Application:
    """The gateway, bound to the deployments in `parts`. `engine` deploys and calls the language model.

    Raises ConfigError if the settings do not match the deployments.
    """
    check_parts(settings, parts)
    # Serve passes a handle in place of each
    children: dict[str, Application] = {role: model_deployment(settings, role) for role in sorted(parts.deployments)}
    if parts.generator:
        children["generator"] = engine.deployment(parts.generator)
    if parts.ingest:
        children["ingest"] = runner_app(settings)
    app: Application = Gateway.bind(settings.model_dump_json(exclude_unset=True), children, engine)  # type: ignore[attr-defined]
    return app
