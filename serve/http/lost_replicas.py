"""The response to a request whose gateway was lost while it worked on it, as with its node.

Serve's proxy then ends without a response, and its server sends status 500 without a cause. Nothing says that the
request can be sent again.
"""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_core.errors import ClusterError
from serve.http.correlation_ids import read_correlation_id


@dataclass(frozen=True, slots=True)
class LostReplicas:
    """Sends a problem with status 503 if Serve's proxy ends without a response."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_and_notice(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        await self.app(scope, receive, send_and_notice)
        if scope["type"] == "http" and not has_started:
            from serve.http.problems import error_response  # only a proxy that loses a gateway needs it

            id = read_correlation_id(Headers(scope=scope).get("x-correlation-id", ""))
            error = ClusterError("the gateway was lost while it worked on the request")
            await error_response(error, scope["path"], id)(scope, receive, send)
