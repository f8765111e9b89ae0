"""Requests to the gateway's application without a server."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import httpx2

from rag_core.config import Settings
from rag_core.detection import Detection
from serve.authentication.caller import Caller
from serve.gateway import build_fastapi
from serve.http.caller import identify_caller
from serve.profiles import NO_DETECTION, NO_PROFILES, ServedProfiles
from serve.services import Services, open_shared_resources

T = TypeVar("T")


def build_services(settings: Settings) -> Services:
    """The services of one profile, with its models in this process."""
    return open_shared_resources(settings).build_services(settings)


def run_with_gateway(
    graph: Services,
    work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]],
    who: Caller | None = None,
    others: Mapping[str, Settings] = NO_PROFILES,
    detection: Detection = NO_DETECTION,
) -> T:
    """Runs `work` with a client of the gateway and returns its result. `others`: profiles that only jobs can use.

    Closes the graph afterwards, because its connections belong to an event loop that ends here.
    """

    unserved = dict.fromkeys(others, "only for jobs")

    async def run() -> T:
        app = build_fastapi(ServedProfiles(graph, others, unserved=unserved, detection=detection))
        if who is not None:
            app.dependency_overrides[identify_caller] = lambda: who
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            try:
                return await work(client)
            finally:
                await graph.close()

    return asyncio.run(run())
