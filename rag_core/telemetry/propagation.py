"""The values that accompany a call to another process, so that its log lines and spans belong to this operation."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rag_core.telemetry.operation import Operation, current_operation, enter_operation
from rag_core.telemetry.traces import operation_span, trace_headers

TRACE_HEADERS = ("traceparent", "tracestate")


def outgoing_values() -> dict[str, str]:
    """The current operation's values, for `continuing_operation` in the other process; empty without an operation.

    They are small and contain no text of a question.
    """
    operation = current_operation()
    return propagation_values(operation) if operation else {}


def propagation_values(operation: Operation) -> dict[str, str]:
    """The operation's values for another process, whose spans will be children of the current span."""
    return {
        "operation": operation.name,
        "correlation_id": operation.correlation_id,
        "tenant": operation.tenant,
        "profile": operation.profile,
        **trace_headers(),
    }


@contextmanager
def continuing_operation(values: Mapping[str, str], name: str) -> Iterator[Operation | None]:
    """Makes the caller's operation the current one during the block, in a span called `name`.

    Yields None, and changes nothing, if the caller had no operation.
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
    parent = {key: values[key] for key in TRACE_HEADERS if key in values}
    with enter_operation(operation), operation_span(operation, name, parent):
        yield operation
