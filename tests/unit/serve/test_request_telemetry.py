"""What the gateway logs and records of requests, over scripted parts."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rag_core.errors import GenerationError, NotFoundError, RetrievalError, StageTimeoutError, StoreError
from rag_core.telemetry import metrics
from rag_core.telemetry.logs import configure_logs, query_hash
from rag_core.telemetry.metrics import Metric, install_sink
from rag_core.telemetry.traces import install_tracer
from serve.gateway import build_fastapi
from serve.http import access_log
from serve.http.access_log import open_access_log
from serve.profiles import ServedProfiles
from serve.services import Services
from serve.telemetry import OPERATIONS

HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit]
QUESTION = "How often are the keys replaced?"
CORRELATION = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@dataclass
class RecordedTelemetry:
    stream: io.StringIO = field(default_factory=io.StringIO)
    values: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def keep(self, metric: Metric, _value: float, labels: Mapping[str, str]) -> None:
        self.values.append((metric.name, labels))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "request"]

    @property
    def operations(self) -> list[tuple[str, str]]:
        return [
            (labels["operation"], labels["status"]) for name, labels in self.values if name == metrics.OPERATIONS.name
        ]


@pytest.fixture(autouse=True)
def close_access_log() -> Iterator[None]:
    yield
    logger = logging.getLogger("serve.access")
    for handler in logger.handlers:
        handler.close()
    logger.handlers = [logging.NullHandler()]


@pytest.fixture
def recorder() -> RecordedTelemetry:
    recorder = RecordedTelemetry()
    configure_logs("gateway", stream=recorder.stream)
    install_sink(recorder.keep)
    return recorder


def graph(error: Exception | None = None, generator: ScriptedGenerator | None = None) -> Services:
    scripted = generator or ScriptedGenerator(answers=[["Keys are replaced every 45 days [1]."]] * 9)
    return scripted_graph(ScriptedRetriever(hits=HITS, error=error), scripted)


def send_request(served: Services, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(served)), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, json=body, headers=headers)

    return asyncio.run(send())


def test_a_request_is_recorded_once_with_its_id_its_tenant_and_its_stages(recorder: RecordedTelemetry) -> None:
    response = send_request(graph(), "POST", "/v1/answer", {"question": QUESTION}, **{"X-Correlation-ID": CORRELATION})
    assert response.status_code == 200
    (line,) = recorder.requests
    assert (line["correlation_id"], line["tenant"], line["profile"]) == (CORRELATION, "default-tenant", "default")
    assert (line["operation"], line["status"], line["query"]) == ("answer", "ok", query_hash(QUESTION))
    assert {"retrieve", "select", "generate"} <= set(line["stages"])
    assert line["counts"]["retrieve"] == 1
    assert recorder.operations == [("answer", "ok")]
    assert QUESTION not in recorder.stream.getvalue()


@pytest.mark.parametrize("sent_id", ["", "1", "6fa459ea-ee8a-1ca4-894e-db77e160355e", "x" * 1000, "a b"])
def test_an_id_that_is_not_a_uuid_of_version_4_is_replaced(recorder: RecordedTelemetry, sent_id: str) -> None:
    response = send_request(
        graph(), "POST", "/v1/retrieve", {"query": QUESTION}, **{"X-Correlation-ID": sent_id.replace("\n", "")}
    )
    (line,) = recorder.requests
    assert line["correlation_id"] == response.headers["x-correlation-id"] != sent_id


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("no collection 'x'"), "refused"),
        (StoreError("lost the store"), "error"),
        (RetrievalError("every leg broke"), "error"),
        (StageTimeoutError("retrieve", 1.0), "timeout"),
        (RuntimeError("password=hunter2"), "error"),
    ],
)
def test_the_end_of_a_request_is_recorded(recorder: RecordedTelemetry, error: Exception, status: str) -> None:
    send_request(graph(error), "POST", "/v1/retrieve", {"query": QUESTION})
    assert [line["status"] for line in recorder.requests] == [status]
    assert recorder.operations == [("retrieve", status)]
    assert "hunter2" not in recorder.stream.getvalue()
    counted = [labels for name, labels in recorder.values if name == metrics.ERRORS.name]
    assert bool(counted) is (status != "refused")


def test_a_stream_that_fails_after_it_began_is_an_error(recorder: RecordedTelemetry) -> None:
    broken = ScriptedGenerator(answers=[[]], error=GenerationError("the endpoint is away"))
    response = send_request(graph(generator=broken), "POST", "/v1/answer", {"question": QUESTION, "stream": True})
    assert response.status_code == 200
    assert recorder.operations == [("answer", "error")]
    assert recorder.requests[0]["error_type"] == "GenerationError"


def test_bodies_that_no_route_takes_are_refused_and_strange_paths_are_other(recorder: RecordedTelemetry) -> None:
    send_request(graph(), "POST", "/v1/retrieve", {"query": ""})
    send_request(graph(), "GET", "/v1/../etc/passwd")
    send_request(graph(), "GET", f"/{'x' * 500}")
    assert recorder.operations == [("retrieve", "refused"), ("other", "refused"), ("other", "refused")]


def test_probes_are_counted_but_not_logged(recorder: RecordedTelemetry) -> None:
    send_request(graph(), "GET", "/healthz")
    assert recorder.operations == [("healthz", "ok")]
    assert recorder.lines == []


def test_a_client_that_does_not_wait_has_cancelled_it(recorder: RecordedTelemetry) -> None:
    slow = ScriptedGenerator(answers=[["Keys "] * 50], seconds=0.05)
    body = json.dumps({"question": QUESTION, "stream": True}).encode()

    async def leave_stream() -> None:
        gone, sent = asyncio.Event(), list[Any]()

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append("body")
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if b"text_delta" in message.get("body", b""):
                gone.set()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/answer",
            "raw_path": b"/v1/answer",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("gateway", 80),
        }
        await asyncio.wait_for(build_fastapi(ServedProfiles(graph(generator=slow)))(scope, receive, send), 10)

    asyncio.run(leave_stream())
    assert recorder.operations == [("answer", "cancelled")]


def test_a_request_is_a_span_below_its_clients_and_above_its_stages(recorder: RecordedTelemetry) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    install_tracer(provider.get_tracer("test"))
    send_request(graph(), "POST", "/v1/retrieve", {"query": QUESTION}, traceparent=f"00-{TRACE}-{PARENT}-01")
    send_request(graph(), "POST", "/v1/answer", {"question": QUESTION, "stream": True})
    ids = {
        (span.name, span.parent.span_id if span.parent else 0): span.context for span in exporter.get_finished_spans()
    }
    client, answer = ids["retrieve", int(PARENT, 16)], ids["answer", 0]
    assert client
    assert answer
    assert client.trace_id == int(TRACE, 16)
    assert {"retrieve", "select", "generate"} <= {name for name, parent in ids if parent == answer.span_id}
    assert {line["trace_id"] for line in recorder.requests} == {TRACE, f"{answer.trace_id:032x}"}


def test_every_route_is_an_operation_of_its_own_name() -> None:
    names = {
        path.removeprefix("/v1").split("/")[1] for path in build_fastapi(ServedProfiles(graph())).openapi()["paths"]
    }
    assert {"retrieve", "answer", "chat", "jobs"} <= names <= OPERATIONS


def test_each_request_is_one_line_of_the_access_log_without_its_words(tmp_path: Path) -> None:
    open_access_log(tmp_path)
    served = graph()
    send_request(served, "POST", "/v1/answer?note=hunter2", {"question": QUESTION}, **{"X-Correlation-ID": CORRELATION})
    send_request(served, "GET", "/v1/jobs/hunter2/events")
    send_request(served, "GET", "/hunter2", Authorization="Bearer hunter2")
    send_request(served, "GET", "/healthz")
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", "/v1/answer", 200),
        ("GET", "/v1/jobs/{id}/events", lines[1]["status"]),
        ("GET", "unmatched", 404),
        ("GET", "/healthz", 200),
    ]
    assert (lines[0]["client"], lines[0]["tenant"], lines[0]["correlation_id"]) == (
        *("127.0.0.1", "default-tenant", CORRELATION),
    )
    assert all(line["duration_ms"] >= 0 and line["timestamp"] for line in lines)
    assert "hunter2" not in file.read_text()
    assert QUESTION not in file.read_text()


@pytest.mark.slow
def test_a_full_access_log_is_replaced_and_only_some_old_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "MAX_FILE_BYTES", 300)
    open_access_log(tmp_path)
    for _ in range(20):
        send_request(graph(), "GET", "/healthz")
    files = list(tmp_path.iterdir())
    assert len(files) == access_log.OLD_FILES + 1
    assert all(file.stat().st_size <= 300 for file in files)
