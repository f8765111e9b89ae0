import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rag_core.errors import ModelError
from rag_core.stage import attempt, record_figures, recording, stage
from rag_core.telemetry.operation import Operation, current_operation, enter_operation
from rag_core.telemetry.propagation import continuing_operation, outgoing_values
from rag_core.telemetry.reporting import reporting_batch, reporting_operation
from rag_core.telemetry.traces import install_tracer, operation_span, trace_headers, trace_ids

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    install_tracer(provider.get_tracer("test"))
    return exporter


def operation() -> Operation:
    return Operation(name="retrieve", correlation_id="c-1", tenant="tenant-one", profile="default", query="a secret")


def tree(exporter: InMemorySpanExporter) -> dict[str, str]:
    """The name of the parent by the name of each span; the parent's id if the parent is not in this process."""
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context}
    return {
        span.name: names.get(span.parent.span_id, f"{span.parent.span_id:016x}") if span.parent else ""
        for span in spans
    }


def span_named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(span for span in exporter.get_finished_spans() if span.name == name)


async def retrieve() -> None:
    async def leg(name: str) -> None:
        async with stage(name) as current:
            current.ranking = ()
            record_figures(rows=3)
            await asyncio.sleep(0.001)

    with recording():
        async with stage("retrieve"):
            await asyncio.gather(leg("dense"), leg("bm25"))
        async with stage("select"):
            pass


def test_stages_are_spans_below_the_requests_which_is_below_the_clients(exporter: InMemorySpanExporter) -> None:
    current = operation()
    with enter_operation(current), operation_span(current, "request", HEADERS):
        asyncio.run(retrieve())
    assert tree(exporter) == {
        "dense": "retrieve",
        "bm25": "retrieve",
        "retrieve": "request",
        "select": "request",
        "request": PARENT,
    }
    assert {span.context.trace_id for span in exporter.get_finished_spans() if span.context} == {int(TRACE, 16)}


def test_spans_have_marks_and_counts_and_no_text(exporter: InMemorySpanExporter) -> None:
    async def fail() -> None:
        raise ModelError("a secret")

    async def work() -> None:
        with recording():
            await attempt("dense", fail(), otherwise=None)

    current = operation()
    with enter_operation(current), operation_span(current, "request"):
        asyncio.run(retrieve())
        asyncio.run(work())
    assert dict(span_named(exporter, "bm25").attributes or {}) == {"rag.stage": "bm25", "rag.count": 0, "rag.rows": 3}
    assert dict(span_named(exporter, "request").attributes or {}) == {
        "rag.operation": "retrieve",
        "rag.correlation_id": "c-1",
        "rag.tenant": "tenant-one",
        "rag.profile": "default",
    }
    failed = [span for span in exporter.get_finished_spans() if not span.status.is_ok and span.status.is_unset is False]
    assert [(span.name, (span.attributes or {})["error.type"]) for span in failed] == [("dense", "ModelError")]
    assert "a secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}", "ff" * 500])
def test_an_invalid_traceparent_begins_a_new_trace(exporter: InMemorySpanExporter, header: str) -> None:
    current = operation()
    with operation_span(current, "request", {"traceparent": header}):
        pass
    assert tree(exporter) == {"request": ""}


def test_a_client_that_does_not_sample_is_not_traced(exporter: InMemorySpanExporter) -> None:
    current = operation()
    with enter_operation(current), operation_span(current, "request", {"traceparent": f"00-{TRACE}-{PARENT}-00"}):
        asyncio.run(retrieve())
        assert outgoing_values()["traceparent"].startswith(f"00-{TRACE}-")
        assert outgoing_values()["traceparent"].endswith("-00")
    assert exporter.get_finished_spans() == ()


def test_another_process_continues_below_the_callers_span(exporter: InMemorySpanExporter) -> None:
    current = operation()
    with enter_operation(current), operation_span(current, "request", {**HEADERS, "tracestate": "vendor=1"}):
        values = outgoing_values()
    assert "a secret" not in str(values)
    assert values["tracestate"] == "vendor=1"
    with continuing_operation(values, "rerank") as continued:
        assert continued is not None
        assert (continued.name, continued.correlation_id, continued.tenant) == ("retrieve", "c-1", "tenant-one")
        assert trace_ids()["trace_id"] == TRACE
        assert current_operation() is continued
    assert current_operation() is None
    assert tree(exporter) == {"request": PARENT, "rerank": "request"}


def test_a_batch_is_one_span_below_the_jobs(exporter: InMemorySpanExporter) -> None:
    job = operation()
    with reporting_operation(job, "job", HEADERS):
        values = outgoing_values()
    with reporting_batch(values, "embed", {"documents": 2}):
        pass
    assert tree(exporter) == {"retrieve": PARENT, "embed": "retrieve"}


def test_a_call_of_nobody_carries_nothing_and_changes_nothing(exporter: InMemorySpanExporter) -> None:
    assert outgoing_values() == {}
    with continuing_operation({}, "rerank") as continued:
        assert (continued, current_operation()) == (None, None)
    assert exporter.get_finished_spans() == ()


def test_a_process_that_does_not_trace_carries_the_marks_alone() -> None:
    current = operation()
    with enter_operation(current), operation_span(current, "request", HEADERS):
        assert (trace_headers(), trace_ids()) == ({}, {})
        assert outgoing_values() == {
            "operation": "retrieve",
            "correlation_id": "c-1",
            "tenant": "tenant-one",
            "profile": "default",
        }


def test_nested_operations_end_where_they_began() -> None:
    outer, inner = operation(), operation()
    with enter_operation(outer):
        with enter_operation(inner):
            assert current_operation() is inner
        assert current_operation() is outer
    assert current_operation() is None
