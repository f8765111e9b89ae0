"""What the gateway tells of a request, and what goes with its calls to other deployments.

Another deployment begins with `observe(role, settings.telemetry)`. A caller hands it `carried()`, and it does its part
in `with carrying(values, name)`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers
from starlette.types import Scope

from jobs.telemetry import job_operation, keep_telling_depths, observe
from rag_core.telemetry.metrics import record_breaker_state
from rag_core.telemetry.operation import Operation, Status, operating
from rag_core.telemetry.propagation import TRACE, continuing_operation, outgoing_values
from rag_core.telemetry.reporting import report_operation
from rag_core.telemetry.traces import span_of

__all__ = [
    "continuing_operation",
    "job_operation",
    "keep_telling_depths",
    "observe",
    "outgoing_values",
    "record_breaker_state",
    "request_ended",
    "request_operation",
]

OPERATIONS = frozenset(
    {
        "answer",
        "chat",
        "collections",
        "documents",
        "healthz",
        "ingest",
        "jobs",
        "models",
        "profiles",
        "query",
        "readyz",
        "retrieve",
        "sources",
        "vector_stores",
    }
)
"""What metrics call requests, by the first word of their path. A stranger's path is `other`: labels have few values."""
PROBES = frozenset({"healthz", "readyz"})
"""Not worth a line, except when they fail."""


@contextmanager
def request_operation(scope: Scope, correlation_id: str, profile: str) -> Iterator[Operation]:
    """What the request is, in the block; below the span of the client that its headers name."""
    operation = Operation(name=_name(scope["path"]), correlation_id=correlation_id, profile=profile)
    headers = Headers(scope=scope)
    parent = {key: headers[key] for key in TRACE if key in headers}
    with operating(operation), span_of(operation, operation.name, parent, SpanKind.SERVER):
        yield operation


def request_ended(operation: Operation, status: int) -> None:
    """`status` is HTTP's, or 499 if the client did not wait for the end."""
    level = logging.DEBUG if operation.name in PROBES else logging.INFO
    report_operation(operation, "request", _status(operation, status), level)


def _name(path: str) -> str:
    name = path.removeprefix("/v1").strip("/").partition("/")[0]
    return name if name in OPERATIONS else "other"


def _status(operation: Operation, status: int) -> Status:
    match status:
        case 499:
            return "cancelled"
        case 504:
            return "timeout"
        case _ if status >= 500:
            return "error"
        case _ if status >= 400:
            return "refused"
        case _:
            return operation.status
