"""The HTTP API. The same application runs under Ray Serve, under uvicorn, and in tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from rag_core import __version__
from serve.bodies.openapi import COMMON_PROBLEMS, complete_schema
from serve.http.admission import build_gates
from serve.http.aliases import Aliases
from serve.http.body_limit import BodyLimit
from serve.http.changes import check_changes
from serve.http.cors import add_cors
from serve.http.draining import CloseWhileDraining
from serve.http.problems import add_problem_handlers
from serve.http.request_checks import RequestChecks
from serve.http.request_telemetry import RequestTelemetry
from serve.http.response_headers import ResponseHeaders
from serve.http.transfer_deadline import TransferDeadline
from serve.profiles import ServedProfiles
from serve.routes import (
    answers,
    chat,
    collections,
    conversations,
    documents,
    evaluations,
    experiments,
    feedback,
    health,
    ingest,
    job_events,
    jobs,
    profiles,
    protected_resource,
    retrieval,
    sources,
    vector_stores,
)

BODY_LIMITS: Mapping[str, int] = {"/": 1 << 20, "/v1/ingest": ingest.MAX_UPLOAD_BYTES}
"""The largest request body in bytes, by path prefix. The longest matching prefix applies."""
ROUTE_MODULES = (
    retrieval,
    vector_stores,
    answers,
    chat,
    feedback,
    conversations,
    documents,
    sources,
    collections,
    profiles,
    ingest,
    jobs,
    job_events,
    evaluations,
    experiments,
    health,
    protected_resource,
)


def build_fastapi(profiles: ServedProfiles) -> FastAPI:
    """The HTTP application. It closes the first services when it shuts down; later ones share their connections."""
    services = profiles.own.services

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await services.close()

    app = FastAPIOffline(  # /docs and its scripts, without a network
        title="rag-on-ray",
        version=__version__,
        lifespan=lifespan,
        static_url="/docs/static",
        redoc_url=None,
    )
    app.state.profiles = profiles
    app.state.gates = build_gates(services.settings)
    app.state.is_draining = False
    add_problem_handlers(app)
    app.add_middleware(RequestChecks)  # the last one that is added is called first
    app.add_middleware(BodyLimit, limits=BODY_LIMITS)
    app.add_middleware(TransferDeadline, seconds=services.settings.serving.transfer_timeout_s)
    app.add_middleware(RequestTelemetry)
    add_cors(app, services.settings.api.cors_origins)
    app.add_middleware(ResponseHeaders)
    app.add_middleware(CloseWhileDraining)
    app.add_middleware(Aliases)
    for module in ROUTE_MODULES:
        app.include_router(module.router, responses=COMMON_PROBLEMS, dependencies=[Depends(check_changes)])
    return complete_schema(app, services.authenticator.requires_credentials)
