"""The time that a client has to send its request and to read the response."""

import asyncio
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_BYTES_PER_SECOND = 65_536
"""The slowest body: it gets one second more for each of these."""


@dataclass(frozen=True, slots=True)
class TransferDeadline:
    """Refuses a body that is late with 408, and closes the connection of a client that does not read for `seconds`."""

    app: ASGIApp
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        deadline, is_limited = asyncio.get_running_loop().time() + self.seconds, True

        async def receive_part() -> Message:
            nonlocal deadline, is_limited
            try:
                async with asyncio.timeout_at(deadline if is_limited else None):
                    message = await receive()
            except TimeoutError as late:
                raise HTTPException(
                    408,
                    f"the request body must arrive within {self.seconds:g} s, "
                    f"plus 1 s for each {MIN_BYTES_PER_SECOND} bytes",
                    {"Connection": "close"},
                ) from late
            deadline += len(message.get("body", b"")) / MIN_BYTES_PER_SECOND
            is_limited = is_limited and message.get("more_body", False)
            return message

        async def send_part(message: Message) -> None:
            nonlocal is_limited
            is_limited = False  # after the start of the response 408 can no longer be sent
            try:
                async with asyncio.timeout(self.seconds):
                    await send(message)
            except TimeoutError as late:
                raise ClientDisconnect from late

        await self.app(scope, receive_part, send_part)
