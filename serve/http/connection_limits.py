"""The limits of a connection before its request reaches the application: the time and the size of the headers."""

import asyncio
from typing import Any, ClassVar
from uuid import uuid4

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from serve.http.problems import error_response

MAX_HEADER_BYTES = 65_536
"""The largest headers of a request, in bytes. Those that arrive at once are accepted up to the size of a read."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits forever for the headers of a request, and reads any number of them.

    Late headers get a problem with status 408, too many of them 431. A new connection that sends nothing is closed
    after the same time. Between two requests uvicorn's keep-alive timeout applies.
    """

    header_seconds: ClassVar[float] = 10.0
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer and not self.transport.is_closing():  # the headers are not complete
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(431, f"the headers are too large: the limit is {MAX_HEADER_BYTES} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self._header_bytes = 0
        self._timer = self.loop.call_later(self.header_seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self._header_bytes:
            self._refuse(408, f"the headers must arrive within {self.header_seconds:g} s")
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Sends a problem and closes the connection; only closes it if an earlier response is in progress."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            response = error_response(HTTPException(status, detail), "/", str(uuid4()))
            headers = [*response.raw_headers, (b"connection", b"close")]
            lines = [STATUS_LINE[status], *(name + b": " + value + b"\r\n" for name, value in headers), b"\r\n"]
            self.transport.write(b"".join([*lines, bytes(response.body)]))
        self.transport.close()
