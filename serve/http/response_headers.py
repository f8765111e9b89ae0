"""The headers of every response."""

import time
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.correlation_ids import read_correlation_id
from serve.http.request_ids import read_request_id
from serve.profiles import ServedProfiles

API_VERSION = "1.0"
VENDOR = "application/vnd.medkg.orchestration."  # of the shared API: existing clients send it
VENDOR_JSON = f"{VENDOR}v1+json"


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """Names the request, the versions and the duration in each response, and the request in `request.state`."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, requested = time.perf_counter(), Headers(scope=scope)
        correlation_id = read_correlation_id(requested.get("x-correlation-id", ""))
        scope["state"] = {**scope.get("state", {}), "correlation_id": correlation_id}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers["X-Correlation-ID"] = correlation_id
                headers["X-Request-ID"] = read_request_id(requested.get("x-request-id", "")) or correlation_id
                headers["X-API-Version"] = API_VERSION
                headers["X-Pipeline-Version"] = _components(scope)
                headers.update(scope["state"].get("rate_limit_headers", {}))
                headers.append("Server-Timing", f"total;dur={1000 * (time.perf_counter() - started):.1f}")
                if headers.get("content-type") == "application/json" and VENDOR_JSON in requested.get("accept", ""):
                    headers["Content-Type"] = VENDOR_JSON
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _components(scope: Scope) -> str:
    """Those of the request's variant, else of the gateway's own profile."""
    profiles: ServedProfiles = scope["app"].state.profiles
    return scope["state"].get("components") or profiles.own.components
