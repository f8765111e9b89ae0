"""Requests to the gateway's application without a server."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import httpx2

from rag_core.config import Settings
from serve.gateway import build_fastapi
from serve.http.caller import Caller, identify_caller
from serve.profiles import NO_PROFILES, ServedProfiles
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
) -> T:
    """Runs `work` with a client of a gateway with one profile. `others`: profiles that only jobs can use."""
    return run_with_profiles(ServedProfiles(graph, others, unserved=dict.fromkeys(others, "only for jobs")), work, who)


def run_with_profiles(
    profiles: ServedProfiles,
    work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]],
    who: Caller | None = None,
) -> T:
    """Runs `work` with a client of the gateway and returns its result.

    Closes the services afterwards, because their connections belong to an event loop that ends here.
    """

    async def run() -> T:
        app = build_fastapi(profiles)
        if who is not None:
            app.dependency_overrides[identify_caller] = lambda: who
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            try:
                return await work(client)
            finally:
                await profiles.own.services.close()

    return asyncio.run(run())
