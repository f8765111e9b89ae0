"""The limit of request bodies."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Refuses a body that is too large with 413, by its length if the client sends one. Bodies are not buffered.

    `limits` has the largest body in bytes, by path prefix. The longest matching prefix applies.
    """

    app: ASGIApp
    limits: Mapping[str, int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limits[max(filter(scope["path"].startswith, self.limits), key=len, default="/")]
        too_large = HTTPException(413, f"the request body is too large: the limit for this path is {limit} bytes")
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise too_large
        bytes_left, is_responding = limit, False

        async def receive_part() -> Message:
            nonlocal bytes_left
            message = await receive()
            # after the start of the response 413 can no longer be sent
            if message["type"] == "http.request" and not is_responding:
                bytes_left -= len(message.get("body", b""))
                if bytes_left < 0:
                    raise too_large
            return message

        async def send_part(message: Message) -> None:
            nonlocal is_responding
            is_responding = True
            await send(message)

        await self.app(scope, receive_part, send_part)
