"""Responses of a gateway that is about to stop: each closes its connection, so that the next request goes elsewhere."""

from dataclasses import dataclass

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def start_draining(app: FastAPI) -> None:
    """Makes `/readyz` respond with 503 from now on. All other requests are served as before."""
    app.state.is_draining = True


def is_draining(app: FastAPI) -> bool:
    return bool(app.state.is_draining)


@dataclass(frozen=True, slots=True)
class CloseWhileDraining:
    """Adds `Connection: close` to every response of a gateway that drains."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and is_draining(scope["app"]):
                MutableHeaders(raw=message["headers"])["Connection"] = "close"
            await send(message)

        await self.app(scope, receive, send_and_close if scope["type"] == "http" else send)
