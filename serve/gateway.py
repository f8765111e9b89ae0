"""The HTTP API. The same application runs under Ray Serve, under uvicorn, and in tests."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from uuid import UUID, uuid4

from fastapi import FastAPI, Request, Response
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from serve import (
    answers,
    chat,
    collections,
    documents,
    health,
    jobs,
    profiles,
    retrieval,
    sources,
    vector_stores,
)
from serve.graph import Graph
from serve.problems import handle_problems

API_VERSION = "1.0"
LARGEST_BODY = 1 << 20
PARTS = (
    retrieval,
    vector_stores,
    answers,
    chat,
    documents,
    sources,
    collections,
    profiles,
    jobs,
    health,
)


def build_app(graph: Graph) -> FastAPI:
    """Closes the graph when it ends."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await graph.close()

    app = FastAPI(title="rag-on-ray", version=version("rag-on-ray"), lifespan=lifespan)
    app.state.graph = graph
    handle_problems(app)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=LARGEST_BODY)
    app.middleware("http")(_identified)
    for part in PARTS:
        app.include_router(part.router)
    return app


async def _identified(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every response names its request, so that a log can be found by it."""
    request.state.correlation_id = _correlation_id(request.headers.get("x-correlation-id", ""))
    began = time.perf_counter()
    response = await answer(request)
    response.headers["X-Correlation-ID"] = request.state.correlation_id
    response.headers["X-Request-ID"] = request.headers.get("x-request-id") or request.state.correlation_id
    response.headers["X-API-Version"] = API_VERSION
    response.headers["X-Pipeline-Version"] = request.app.state.graph.settings.pipeline_version
    response.headers.append("Server-Timing", f"total;dur={1000 * (time.perf_counter() - began):.1f}")
    return response


def _correlation_id(given: str) -> str:
    """As it was sent, if it is a UUID of version 4; else a new one."""
    try:
        sent = UUID(given)
    except ValueError:
        return str(uuid4())
    return str(sent) if sent.version == 4 else str(uuid4())
