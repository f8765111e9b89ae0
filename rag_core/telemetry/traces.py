"""Spans of OpenTelemetry, if a process traces: else nothing is made and nothing is spent.

Spans have names, counts and kinds of errors, never a text of a question or a document.
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
    """Is the current one until it is ended, in the same context."""

    span: Span
    token: Token[Context]

    def end(self, error_type: str = "") -> None:
        context.detach(self.token)
        if error_type:
            self.span.set_attribute("error.type", error_type)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


def install_tracer(tracer: Tracer | None) -> None:
    """From now on, in the whole process."""
    global _tracer
    _tracer = tracer


def start_span(name: str, parent: Context | None = None, kind: SpanKind = SpanKind.INTERNAL) -> OpenSpan | None:
    """None if this process does not trace."""
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
def span_of(
    operation: Operation, name: str, parent: Mapping[str, str] = NO_PARENT, kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[None]:
    """One that has the operation's marks when it ends. `parent` are the headers `traceparent` and `tracestate`, which
    are not heeded if they are not as the W3C has them; without them it is the current span."""
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
        for key, value in _span_attributes(operation).items():
            open_span.span.set_attribute(key, value)
        open_span.end(error_type or operation.failure)


def trace_headers() -> dict[str, str]:
    """`traceparent`, and `tracestate` if there is one, of the current span; nothing without a span."""
    headers: dict[str, str] = {}
    if _tracer is not None:
        _propagator.inject(headers)
    return headers


def trace_ids() -> dict[str, str]:
    """Of the current span, as log lines have them; nothing without a span."""
    if _tracer is None:
        return {}
    span = get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


def _span_attributes(operation: Operation) -> dict[str, str]:
    return {
        "rag.operation": operation.name,
        "rag.correlation_id": operation.correlation_id,
        "rag.tenant": operation.tenant,
        "rag.profile": operation.profile,
    }
