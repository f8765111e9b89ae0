"""What goes with a call to another process, so that what is told there belongs to the operation here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rag_core.telemetry.operation import Operation, current_operation, operating
from rag_core.telemetry.traces import span_of, trace_headers

TRACE = ("traceparent", "tracestate")


def outgoing_values() -> dict[str, str]:
    """Small, without any text of a question; empty where nothing is under way. For `carrying` on the other side."""
    operation = current_operation()
    return propagation_values(operation) if operation else {}


def propagation_values(operation: Operation) -> dict[str, str]:
    """What another process is to know of it, below the current span."""
    return {
        "operation": operation.name,
        "correlation_id": operation.correlation_id,
        "tenant": operation.tenant,
        "profile": operation.profile,
        **trace_headers(),
    }


@contextmanager
def continuing_operation(values: Mapping[str, str], name: str) -> Iterator[Operation | None]:
    """What is told of in the block belongs to the caller's operation, and is below a span of that name.

    None, and nothing changes, for a caller without one.
    """
    if not values:
        yield None
        return
    operation = Operation(
        name=values.get("operation", ""),
        correlation_id=values.get("correlation_id", ""),
        tenant=values.get("tenant", ""),
        profile=values.get("profile", ""),
    )
    parent = {key: values[key] for key in TRACE if key in values}
    with operating(operation), span_of(operation, name, parent):
        yield operation
