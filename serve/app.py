"""The gateway as a deployment of Ray Serve, and the application that it and the models around it make."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rag_core.config import Settings
from rag_core.errors import ConfigError, RagError
from serve.gateway import build_app
from serve.graph import Graph, ground
from serve.ingest_runner import runner_app
from serve.models.distributed import VLLM, Engine, Handle, model_deployment, reached
from serve.readiness import Dependency
from serve.shape.arguments import GATEWAY, Arguments, Parts, check_parts, settings_of
from serve.shape.garbage_collection import settle
from serve.shape.reload import changed_while_serving, user_config
from serve.telemetry import observe

ONGOING = 64
"""Requests that a replica works on at once: most of their time they wait for the store or a model."""

QUEUED = 512
"""Requests that wait for a replica with each proxy; the others are refused."""

_log = logging.getLogger(__name__)


@serve.deployment(
    name=GATEWAY,
    max_ongoing_requests=ONGOING,
    max_queued_requests=QUEUED,
    backpressure_config={"status_code": 503, "retry_after_s": 1},
    ray_actor_options={"num_cpus": 1},
    health_check_period_s=10,
)
@serve.ingress()
class Gateway:
    """All that is no model's deployment. The application is built by the replica: one that is handed over would be
    frozen by pickling."""

    def __init__(self, settings: str, handles: Mapping[str, Handle], engine: Engine) -> None:
        self._settings, self._serving, self._refused = Settings.model_validate_json(settings), False, ""
        observe("gateway", self._settings.telemetry)
        there = reached(self._settings, handles, engine)
        own = {"settings": Dependency(self._ask_settings, required=False)}
        self._ground = ground(self._settings, there.elsewhere, {**there.dependencies, **own})
        self._application = build_app(self._ground.graph(self._settings))

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return self._application

    async def check_health(self) -> None:
        """Asked for the first time when the replica has started."""
        self._serving = True

    async def reconfigure(self, given: Mapping[str, Any]) -> None:
        """Requests from now on go by the changed settings, those under way by the ones that they began with.

        ConfigError while the replica starts. Later a change that is refused is logged and told by /readyz, and the
        settings stay: for an error Serve would stop the replica.
        """
        try:
            self._application.state.graph = await asyncio.to_thread(self._changed, given)
            self._refused = ""
            if self._serving:
                settle()
        except RagError as error:
            if not self._serving:
                raise
            self._refused = str(error)
            _log.error("the change is refused: %s", error)

    def _changed(self, given: Mapping[str, Any]) -> Graph:
        return self._ground.graph(changed_while_serving(self._settings, user_config(given).set))

    async def _ask_settings(self) -> None:
        if self._refused:
            raise ConfigError(self._refused)


def build(arguments: Arguments) -> Application:
    """What a Serve config names as `import_path: serve.app:build`. ConfigError if settings and parts do not fit."""
    return application(settings_of(arguments), arguments)


def local_app(settings: Settings) -> Application:
    """The local shape: all models in the gateway's process, which fits two CPUs."""
    return application(settings, Parts())


def application(settings: Settings, parts: Parts, engine: Engine = VLLM) -> Application:
    check_parts(settings, parts)
    handles: dict[str, Application] = {role: model_deployment(settings, role) for role in sorted(parts.deployments)}
    if parts.generator:
        handles["generator"] = engine.deployment(parts.generator)
    if parts.ingest:
        handles["ingest"] = runner_app(settings)
    bound: Application = Gateway.bind(settings.model_dump_json(), handles, engine)  # type: ignore[attr-defined]
    return bound
