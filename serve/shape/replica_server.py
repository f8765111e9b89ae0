"""The HTTP server of a replica that accepts connections of the socket of `rag serve`."""

import asyncio
import os
from functools import partial

import uvicorn
from ray.serve._private import replica as serve_replica
from ray.serve._private.http_util import _apply_middlewares
from ray.serve.config import HTTPOptions
from starlette.types import ASGIApp

from serve.http.connection_limits import LimitedProtocol
from serve.shape.listener import BACKLOG, LISTENER_VARIABLE, borrow_listener


def use_lent_listener(header_seconds: float) -> None:
    """Makes this replica's HTTP server accept connections of the lent socket, and limits the time of their headers.

    Call it in the constructor of the deployment: Serve starts the server afterwards. Does nothing in a shape in which
    Serve's proxies listen.
    """
    if path := os.environ.get(LISTENER_VARIABLE):
        # Serve has no option for the socket or for uvicorn's protocol
        serve_replica.start_asgi_http_server = partial(  # type: ignore[attr-defined]
            _start_http_server, path, header_seconds
        )


async def _start_http_server(
    path: str,
    header_seconds: float,
    app: ASGIApp,
    options: HTTPOptions,
    *,
    event_loop: asyncio.AbstractEventLoop,
    enable_so_reuseport: bool,  # noqa: ARG001 - Serve passes it
) -> tuple[asyncio.Task[None], uvicorn.Server]:
    """Replaces Serve's function of the same name. The port in `options` is only a label."""

    class Protocol(LimitedProtocol):
        pass

    Protocol.header_seconds = header_seconds
    config = uvicorn.Config(
        _apply_middlewares(app, options.middlewares),
        http=Protocol,
        ws="none",
        timeout_keep_alive=options.keep_alive_timeout_s,
        backlog=BACKLOG,
        lifespan="off",
        access_log=False,
        log_level="critical",
        log_config=None,
    )
    server = uvicorn.Server(config)
    return event_loop.create_task(server.serve(sockets=[borrow_listener(path)])), server
