"""The gateway as a deployment of Ray Serve."""

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rag_core.config import Settings
from serve.gateway import build_app
from serve.graph import local_graph

ONGOING = 64
"""Requests that a replica works on at once: most of their time they wait for the store or a model."""


@serve.deployment(max_ongoing_requests=ONGOING, ray_actor_options={"num_cpus": 1}, health_check_period_s=10)
@serve.ingress()
class Gateway:
    """All models in its own process. The application is built by the replica: one that is handed over would be frozen
    by pickling."""

    def __init__(self, settings: str) -> None:
        self._graph = local_graph(Settings.model_validate_json(settings))

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._graph)


def local_app(settings: Settings) -> Application:
    """The local shape: fits two CPUs."""
    app: Application = Gateway.bind(settings.model_dump_json())  # type: ignore[attr-defined]
    return app
