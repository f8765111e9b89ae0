"""The request header `X-Request-ID` under Ray Serve, which reads it before the application.

Serve decodes the header as UTF-8 without a check, and adds it to each response, even if the application has set it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.lost_replicas import LostReplicas

MAX_REQUEST_ID_CHARS = 200

_NAME = b"x-request-id"
_READ_BY_SERVE = frozenset(
    {
        *(b"serve_multiplexed_model_id", b"serve-multiplexed-model-id", b"x-session-id"),
        *(b"x-request-timeout-seconds", b"x-request-disconnect-disabled", b"traceparent", b"tracestate"),
    }
)
"""Further headers that Serve decodes without a check."""


@dataclass(frozen=True, slots=True)
class RequestIds:
    """Removes headers that Serve cannot decode, and sends one `X-Request-ID` back."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def send_with_one_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                if "x-request-id" in headers:
                    headers["X-Request-ID"] = headers["x-request-id"]  # replaces all
                message = {**message, "headers": headers.raw}
            await send(message)

        await self.app({**scope, "headers": list(readable_headers(scope["headers"]))}, receive, send_with_one_id)


def readable_headers(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """Yields the headers without those that Serve cannot decode, and the first `X-Request-ID` if it is valid."""
    ids = [value for name, value in headers if name == _NAME]
    if ids and (id := read_request_id(ids[0].decode("latin-1"))):
        yield _NAME, id.encode()
    for name, value in headers:
        if name != _NAME and (name not in _READ_BY_SERVE or value.isascii()):
            yield name, value


def read_request_id(header: str) -> str:
    """The client's id, or an empty string if it cannot be sent back."""
    is_valid = len(header) <= MAX_REQUEST_ID_CHARS and header.isascii() and header.isprintable()
    return header if is_valid else ""


def serve_middlewares() -> list[Middleware]:
    """The middlewares that Serve puts around its own: the `SERVE_MIDDLEWARES` of `serve/shape/local.py`."""
    return [Middleware(RequestIds), Middleware(LostReplicas)]
