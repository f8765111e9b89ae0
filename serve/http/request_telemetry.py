"""The log lines, metrics, span and audit of every request, and the problem for an error that no route handles."""

from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.access_log import log_access
from serve.http.audit import audit_request
from serve.http.problems import error_response
from serve.telemetry import report_request, request_operation

CLIENT_CLOSED_REQUEST = 499
"""The status that is logged when a client disconnects before the response ends. It is never sent."""


@dataclass(frozen=True, slots=True)
class RequestTelemetry:
    """Reports each request once, with the status that the client received."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        correlation_id = scope["state"]["correlation_id"]
        exchange = _Exchange(receive, send)
        with request_operation(scope, correlation_id, scope["app"].state.profiles.own_settings.profile) as operation:
            try:
                await self.app(scope, exchange.receive, exchange.send)
            except Exception as error:
                if exchange.status:  # too late to send a problem: the server closes the connection
                    exchange.failed_midway = not isinstance(error, ClientDisconnect)
                    raise
                await error_response(error, scope["path"], correlation_id)(scope, receive, exchange.send)
            finally:
                report_request(operation, exchange.final_status)
                log_access(scope, operation, exchange.final_status)
                audit_request(scope, operation, exchange.final_status)


@dataclass(slots=True)
class _Exchange:
    """A request and its response in progress.

    `status` is 0 until the response starts. `disconnected`: the client disconnected before the response started.
    `failed_midway`: the response failed after it had started. `complete`: the whole response was sent.
    """

    server_receive: Receive
    server_send: Send
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

    async def receive(self) -> Message:
        message = await self.server_receive()
        self.disconnected = self.disconnected or (message["type"] == "http.disconnect" and not self.status)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.server_send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
