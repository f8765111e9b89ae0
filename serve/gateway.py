"""The HTTP API. The same application runs under Ray Serve, under uvicorn, and in tests."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version as version_of
from urllib.parse import quote
from uuid import UUID, uuid4

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.bodies.openapi import EVERYWHERE, documented
from serve.graph import Graph
from serve.http.problems import handle_problems, response_to
from serve.routes import (
    answers,
    chat,
    collections,
    documents,
    health,
    ingest,
    jobs,
    profiles,
    retrieval,
    sources,
    vector_stores,
)
from serve.telemetry import request_ended, request_operation
from serve.variants import pipeline_version

API_VERSION = "1.0"
VENDOR = "application/vnd.medkg.orchestration."
VENDOR_JSON = f"{VENDOR}v1+json"
LIMITS: Mapping[str, int] = {"/": 1 << 20, "/v1/ingest": ingest.LARGEST_UPLOAD}
"""Bytes that a body may have, by the beginning of its path; the longest that fits counts."""
CLIENT_GONE = 499
"""Never sent: what the log has for a request whose client did not wait for the end."""
LONGEST_REQUEST_ID = 200
SAFE = ("GET", "HEAD", "OPTIONS")
OWN_SITE = ("same-origin", "none")
"""What `Sec-Fetch-Site` says of a gateway's own pages, and of what the reader entered."""
PARTS = (
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
    health,
)


def build_app(graph: Graph) -> FastAPI:
    """Closes the graph when it ends."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await graph.close()

    app = FastAPI(title="rag-on-ray", version=version_of("rag-on-ray"), lifespan=lifespan)
    app.state.graph = graph
    handle_problems(app)
    app.add_middleware(Envelope)
    for part in PARTS:
        app.include_router(part.router, responses=EVERYWHERE)
    return documented(app)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every request is held to and every response has, whichever its route. Of a stream it keeps nothing."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        id = _correlation_id(headers.get("x-correlation-id", ""))
        scope["state"] = {**scope.get("state", {}), "correlation_id": id}
        exchange = _Exchange(scope, receive, send, headers, id, left=_limit(scope["path"]))
        with request_operation(scope, id, scope["app"].state.graph.settings.profile) as operation:
            try:
                exchange.check()
                await self.app(scope, exchange.receive, exchange.send)
            except Exception as error:
                if exchange.status:  # it is too late for a problem: the connection breaks off
                    exchange.broken = not isinstance(error, ClientDisconnect)
                    raise
                await response_to(error, scope["path"], id)(scope, receive, exchange.send)
            finally:
                request_ended(operation, exchange.outcome)


@dataclass(slots=True)
class _Exchange:
    """A request and its response on their way. `left` is how many bytes of the body may still come; `status` is 0 until
    the response begins, `gone` whether the client went before, and `broken` whether the response failed after it."""

    scope: Scope
    incoming: Receive
    outgoing: Send
    headers: Headers
    correlation_id: str
    left: int
    began: float = 0.0
    status: int = 0
    whole: bool = False
    gone: bool = False
    broken: bool = False

    def __post_init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def outcome(self) -> int:
        if self.broken:
            return 500
        return self.status if self.whole and not self.gone else CLIENT_GONE

    def check(self) -> None:
        """HTTPException for what no route would take."""
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.left:
            raise _too_large(self.left)
        if "\0" in self.scope["path"] or b"%00" in self.scope["query_string"]:
            raise HTTPException(422, "a path and its parameters must not hold NUL")
        _check_version(self.headers.get("accept", ""))
        if self.scope["method"] not in SAFE:
            _check_origin(self.headers)

    async def receive(self) -> Message:
        message = await self.incoming()
        self.gone = self.gone or (message["type"] == "http.disconnect" and not self.status)
        if message["type"] == "http.request" and not self.status:
            self.left -= len(message.get("body", b""))
            if self.left < 0:
                raise _too_large(_limit(self.scope["path"]))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._label(MutableHeaders(raw=message["headers"]))
        await self.outgoing(message)
        self.whole = message["type"] == "http.response.body" and not message.get("more_body", False)

    def _label(self, headers: MutableHeaders) -> None:
        state = self.scope["state"]
        headers["X-Correlation-ID"] = self.correlation_id
        headers["X-Request-ID"] = self._request_id()
        headers["X-API-Version"] = API_VERSION
        version = state.get("pipeline_version") or pipeline_version(self.scope["app"])
        headers["X-Pipeline-Version"] = quote(version, safe=":+")  # a profile has whatever name its file gives it
        headers.append("Server-Timing", f"total;dur={1000 * (time.perf_counter() - self.began):.1f}")
        if headers.get("content-type") == "application/json" and VENDOR_JSON in self.headers.get("accept", ""):
            headers["Content-Type"] = VENDOR_JSON

    def _request_id(self) -> str:
        given = self.headers.get("x-request-id", "")
        proper = len(given) <= LONGEST_REQUEST_ID and given.isascii() and given.isprintable()
        return (given if proper else "") or self.correlation_id


def _limit(path: str) -> int:
    fitting = max((beginning for beginning in LIMITS if path.startswith(beginning)), key=len, default="/")
    return LIMITS[fitting]


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"a body must be at most {limit} bytes long here")


def _check_version(accept: str) -> None:
    """Whatever else a client accepts, it gets what there is; only one that knows another version alone does not."""
    kinds = [kind.partition(";")[0].strip() for kind in accept.split(",")]
    if all(kind.startswith(VENDOR) and kind != VENDOR_JSON for kind in kinds):
        raise HTTPException(406, f"of {VENDOR}* there is {VENDOR_JSON} only, got {accept}")


def _check_origin(headers: Headers) -> None:
    """A browser sends forms and uploads from any page to a gateway that only it can reach, without asking first."""
    if not _of_own_site(headers):
        told = headers.get("origin") or headers["sec-fetch-site"]
        raise HTTPException(403, f"a page of another site must not send anything here, got one of {told}")


def _of_own_site(headers: Headers) -> bool:
    """An older browser tells the origin alone, which may be `null`; what is no browser has neither header."""
    if site := headers.get("sec-fetch-site"):
        return site in OWN_SITE
    origin = headers.get("origin")
    return not origin or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _correlation_id(given: str) -> str:
    """As it was sent, if it is a UUID of version 4; else a new one."""
    try:
        sent = UUID(given)
    except ValueError:
        return str(uuid4())
    return str(sent) if sent.version == 4 else str(uuid4())
