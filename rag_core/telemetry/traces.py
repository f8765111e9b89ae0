"""OpenTelemetry spans. A process without a tracer creates none, at no cost.

Spans contain names, counts and error types, never the text of a question or a document.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass

from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rag_core.telemetry.operation import Operation
from rag_core.types import StageReport

NO_PARENT: Mapping[str, str] = {}
_propagator = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that is the current one until `end`, which must be called in the same context."""

    span: Span
    token: Token[Context]

    def end(self, error_type: str = "") -> None:
        context.detach(self.token)
        if error_type:
            self.span.set_attribute("error.type", error_type)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


def install_tracer(tracer: Tracer | None) -> None:
    """Sets the tracer of the whole process; None stops tracing."""
    global _tracer
    _tracer = tracer


def start_span(name: str, parent: Context | None = None, kind: SpanKind = SpanKind.INTERNAL) -> OpenSpan | None:
    """Starts a span and makes it the current one. Returns None if the process has no tracer."""
    if _tracer is None:
        return None
    span = _tracer.start_span(name, context=parent, kind=kind)
    return OpenSpan(span, context.attach(set_span_in_context(span, parent)))


def end_stage(open_span: OpenSpan | None, report: StageReport) -> None:
    if open_span is None:
        return
    open_span.span.set_attribute("rag.stage", report.stage)
    open_span.span.set_attribute("rag.count", len(report.ranking))
    for name, figure in report.figures.items():
        open_span.span.set_attribute(f"rag.{name}", figure)
    open_span.end(report.error_type)


@contextmanager
def operation_span(
    operation: Operation, name: str, parent: Mapping[str, str] = NO_PARENT, kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[None]:
    """Runs the block in a span that gets the operation's attributes when it ends.

    `parent` holds the headers `traceparent` and `tracestate`; headers that break the W3C format are ignored. Without
    headers, the current span is the parent.
    """
    open_span = start_span(name, _propagator.extract(parent) if parent else None, kind)
    if open_span is None:
        yield
        return
    error_type = ""
    try:
        yield
    except BaseException as error:
        error_type = type(error).__name__
        raise
    finally:
        open_span.span.set_attributes(
            {
                "rag.operation": operation.name,
                "rag.correlation_id": operation.correlation_id,
                "rag.tenant": operation.tenant,
                "rag.profile": operation.profile,
            }
        )
        open_span.end(error_type or operation.failure)


def trace_headers() -> dict[str, str]:
    """The headers of the current span: `traceparent`, and `tracestate` if it has one. Empty without a span."""
    headers: dict[str, str] = {}
    if _tracer is not None:
        _propagator.inject(headers)
    return headers


def trace_ids() -> dict[str, str]:
    """The ids of the current span, for log lines. Empty without a span."""
    if _tracer is None:
        return {}
    span = get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}
