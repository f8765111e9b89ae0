"""Telemetry of requests, and of calls between deployments.

Each deployment first calls `configure_telemetry(role, settings.telemetry)`. A caller passes `outgoing_values()` to the
deployment that it calls, which does the work in `with continuing_operation(values, name)`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers
from starlette.types import Scope

from jobs.telemetry import configure_telemetry, job_operation, poll_store
from rag_core.telemetry.metrics import record_breaker_state, record_store_availability
from rag_core.telemetry.operation import Operation, Status, enter_operation
from rag_core.telemetry.propagation import TRACE_HEADERS, continuing_operation, outgoing_values
from rag_core.telemetry.reporting import report_operation
from rag_core.telemetry.traces import operation_span

__all__ = [
    "configure_telemetry",
    "continuing_operation",
    "job_operation",
    "outgoing_values",
    "poll_store",
    "record_breaker_state",
    "record_store_availability",
    "report_request",
    "request_operation",
    "request_status",
]

OPERATIONS = frozenset(
    {
        ".well-known",
        "answer",
        "chat",
        "collections",
        "conversations",
        "documents",
        "evaluations",
        "experiments",
        "feedback",
        "healthz",
        "ingest",
        "jobs",
        "models",
        "profiles",
        "readyz",
        "retrieve",
        "sources",
        "vector_stores",
    }
)
"""The names of requests in metrics: the first segment of their paths. All other paths are `other`, because a metric
label should have few values."""
PROBES = frozenset({"healthz", "readyz"})
"""Requests that are logged at level INFO only if they fail."""


@contextmanager
def request_operation(scope: Scope, correlation_id: str, profile: str) -> Iterator[Operation]:
    """Makes the request the current operation in the block, as a child of the client's span if the headers name one."""
    name = scope["path"].removeprefix("/v1").strip("/").partition("/")[0]
    if name not in OPERATIONS:
        name = "other"
    operation = Operation(name=name, correlation_id=correlation_id, profile=profile)
    headers = Headers(scope=scope)
    parent = {key: headers[key] for key in TRACE_HEADERS if key in headers}
    with enter_operation(operation), operation_span(operation, operation.name, parent, SpanKind.SERVER):
        yield operation


def request_status(operation: Operation, status: int) -> Status:
    """The status of a finished request. `status` is the HTTP status, or 499 if the client disconnected early."""
    if status == 499:
        return "cancelled"
    if status == 504:
        return "timeout"
    if status >= 500:
        return "error"
    return "refused" if status >= 400 else operation.status


def report_request(operation: Operation, status: int) -> None:
    """Logs and measures a finished request. `status` is that of `request_status`."""
    level = logging.DEBUG if operation.name in PROBES else logging.INFO
    report_operation(operation, "request", request_status(operation, status), level)
