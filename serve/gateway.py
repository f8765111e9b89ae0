"""The HTTP API. The same application runs under Ray Serve, under uvicorn, and in tests."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from urllib.parse import quote
from uuid import UUID, uuid4

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.bodies.openapi import COMMON_PROBLEMS, fix_problem_media_types
from serve.http.problems import add_problem_handlers, error_response
from serve.routes import (
    answers,
    chat,
    collections,
    documents,
    health,
    ingest,
    job_events,
    jobs,
    profiles,
    retrieval,
    sources,
    vector_stores,
)
from serve.services import Services
from serve.telemetry import report_request, request_operation
from serve.variants import current_variants

API_VERSION = "1.0"
VENDOR = "application/vnd.medkg.orchestration."  # of the shared API: existing clients send it
VENDOR_JSON = f"{VENDOR}v1+json"
BODY_LIMITS: Mapping[str, int] = {"/": 1 << 20, "/v1/ingest": ingest.MAX_UPLOAD_BYTES}
"""The largest request body in bytes, by path prefix. The longest matching prefix applies."""
CLIENT_CLOSED_REQUEST = 499
"""The status that is logged when a client disconnects before the response ends. It is never sent."""
MAX_REQUEST_ID_CHARS = 200
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
TRUSTED_FETCH_SITES = ("same-origin", "none")
"""The values of `Sec-Fetch-Site` that are accepted.

`same-origin` is for the gateway's own pages, `none` for an address that the user entered. `same-site` (another port or
subdomain) is refused.
"""
ROUTE_MODULES = (
    retrieval,
    vector_stores,
    answers,
    chat,
    documents,
    sources,
    collections,
    profiles,
    ingest,
    jobs,
    job_events,
    health,
)


def build_fastapi(services: Services) -> FastAPI:
    """The HTTP application. It closes the first services when it shuts down; later ones share their connections."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await services.close()

    app = FastAPI(title="rag-on-ray", version=version_of("rag-on-ray"), lifespan=lifespan)
    app.state.services = services
    add_problem_handlers(app)
    app.add_middleware(GatewayMiddleware)
    for module in ROUTE_MODULES:
        app.include_router(module.router, responses=COMMON_PROBLEMS)
    return fix_problem_media_types(app)


@dataclass(frozen=True, slots=True)
class GatewayMiddleware:
    """The checks of every request, and the common headers of every response. Bodies are not buffered."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        id = _correlation_id(headers.get("x-correlation-id", ""))
        scope["state"] = {**scope.get("state", {}), "correlation_id": id}
        exchange = _Exchange(scope, receive, send, headers, id, bytes_left=_body_limit(scope["path"]))
        with request_operation(scope, id, scope["app"].state.services.settings.profile) as operation:
            try:
                exchange.check_request()
                await self.app(scope, exchange.receive, exchange.send)
            except Exception as error:
                if exchange.status:  # too late to send a problem: the server closes the connection
                    exchange.failed_midway = not isinstance(error, ClientDisconnect)
                    raise
                await error_response(error, scope["path"], id)(scope, receive, exchange.send)
            finally:
                report_request(operation, exchange.final_status)


@dataclass(slots=True)
class _Exchange:
    """A request and its response in progress.

    `bytes_left` is the number of bytes that can still follow in the request's body. `status` is 0 until the response
    starts. `disconnected`: the client disconnected before the response started. `failed_midway`: the response failed
    after it had started. `complete`: the whole response was sent.
    """

    scope: Scope
    server_receive: Receive
    server_send: Send
    headers: Headers
    correlation_id: str
    bytes_left: int
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    complete: bool = False
    disconnected: bool = False
    failed_midway: bool = False

    @property
    def final_status(self) -> int:
        """The status to log.

        500 for a response that failed midway, 499 for one that the client did not receive.
        """
        if self.failed_midway:
            return 500
        return self.status if self.complete and not self.disconnected else CLIENT_CLOSED_REQUEST

    def check_request(self) -> None:
        """Raises HTTPException if size, path, query string, `Accept` or origin are not allowed on any route."""
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.bytes_left:
            raise _too_large(self.bytes_left)
        if "\0" in self.scope["path"] or b"%00" in self.scope["query_string"]:
            raise HTTPException(422, "the path and the query string must not contain NUL")
        _check_version(self.headers.get("accept", ""))
        if self.scope["method"] not in SAFE_METHODS:
            _check_origin(self.headers)

    async def receive(self) -> Message:
        message = await self.server_receive()
        self.disconnected = self.disconnected or (message["type"] == "http.disconnect" and not self.status)
        # after the start of the response 413 can no longer be sent
        if message["type"] == "http.request" and not self.status:
            self.bytes_left -= len(message.get("body", b""))
            if self.bytes_left < 0:
                raise _too_large(_body_limit(self.scope["path"]))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(MutableHeaders(raw=message["headers"]))
        await self.server_send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    def _add_headers(self, headers: MutableHeaders) -> None:
        # the request's variant, else the profile
        variant_version = self.scope["state"].get("pipeline_version")
        pipeline_version = variant_version or current_variants(self.scope["app"]).pipeline_version
        headers["X-Correlation-ID"] = self.correlation_id
        request_id = self.headers.get("x-request-id", "")
        is_valid = len(request_id) <= MAX_REQUEST_ID_CHARS and request_id.isascii() and request_id.isprintable()
        headers["X-Request-ID"] = (request_id if is_valid else "") or self.correlation_id
        headers["X-API-Version"] = API_VERSION
        headers["X-Pipeline-Version"] = quote(pipeline_version, safe=":+")  # a YAML file can give a profile any name
        headers.append("Server-Timing", f"total;dur={1000 * (time.perf_counter() - self.started):.1f}")
        if headers.get("content-type") == "application/json" and VENDOR_JSON in self.headers.get("accept", ""):
            headers["Content-Type"] = VENDOR_JSON


def _body_limit(path: str) -> int:
    return BODY_LIMITS[max((prefix for prefix in BODY_LIMITS if path.startswith(prefix)), key=len, default="/")]


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the request body is too large: the limit for this path is {limit} bytes")


def _check_version(accept: str) -> None:
    """Raises HTTPException if the client accepts only other versions of the vendor media type."""
    media_types = [media_type.partition(";")[0].strip() for media_type in accept.split(",")]
    if all(media_type.startswith(VENDOR) and media_type != VENDOR_JSON for media_type in media_types):
        raise HTTPException(406, f"Accept must allow {VENDOR_JSON} or application/json, got {accept}")


def _check_origin(headers: Headers) -> None:
    """Raises HTTPException for a browser's request from another origin.

    Otherwise any web page could send forms and uploads, even to a gateway that listens on the user's loopback only.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site:
        is_trusted = site in TRUSTED_FETCH_SITES
    else:  # older browsers send only `Origin`, which can be `null`; clients that are not browsers send neither header
        is_trusted = not origin or origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not is_trusted:
        raise HTTPException(403, f"cross-origin requests are not allowed, got one from {origin or site}")


def _correlation_id(header: str) -> str:
    """The client's id if it is a UUID of version 4, else a new one."""
    try:
        id = UUID(header)
    except ValueError:
        return str(uuid4())
    return str(id) if id.version == 4 else str(uuid4())
