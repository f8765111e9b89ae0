"""The log lines, metrics and traces of a gateway, a model's deployment and an ingest job on one Ray."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from collector import Collector, ReceivedSpan, run_collector
from trees import write

from benchmarks.free_port import find_free_port
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, Queue

pytestmark = [pytest.mark.postgres, pytest.mark.ray, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "observed.py"
QUESTION = "who lets ann.lee@example.org use sk-live-abcdefghijklmnop1234?"
SECRETS = ("ann.lee@example.org", "sk-live-abcdefghijklmnop1234", "hunter2")
PARENT = "00f067aa0ba902b7"
REQUEST, CORRELATION = "4bf92f3577b34da6a3ce929d0e0e4736", "6fa459ea-ee8a-4ca4-894e-db77e160355e"
JOB, JOB_CORRELATION = "0af7651916cd43dd8448eb211c80319c", str(uuid4())
SOON = 20.0


class Observed:
    """A deployment that has answered one request and completed one job."""

    def __init__(self, session: Path, metrics_port: int, collector: Collector) -> None:
        self._session, self._metrics_port, self._collector = session, metrics_port, collector

    def lines(self, correlation_id: str) -> list[dict[str, Any]]:
        """The log lines of all processes that have the correlation id."""
        files = self._session.glob("session_2*/logs/**/*.err")
        lines = (line for file in files for line in file.read_text(errors="replace").splitlines())
        entries = (json.loads(line) for line in lines if line.startswith('{"timestamp"'))
        return [line for line in entries if line.get("correlation_id") == correlation_id]

    def read_logs(self) -> str:
        """Everything that any process has logged."""
        files = (file for file in self._session.glob("session_2*/logs/**/*") if file.is_file())
        return "\n".join(file.read_text(errors="replace") for file in files)

    def values(self, name: str, labels: dict[str, str]) -> list[float]:
        return [value for sample_labels, value in self._samples(name) if labels.items() <= sample_labels.items()]

    def _samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        page = httpx2.get(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10).text
        rows = re.findall(rf"^ray_{name}{{(.*)}} (\S+)$", page, re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in rows]

    def trace(self, trace: str) -> list[ReceivedSpan]:
        return self._collector.trace_spans(trace)


@pytest.fixture(scope="module")
def observation(
    module_store: Postgres, short_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    with module_store.connect() as connection:
        for _ in range(2):
            Queue(connection, "default-tenant").enqueue(
                IngestRequest(collection="default", profile="default", settings={})
            )
    documents = write(tmp_path_factory.mktemp("documents"), {"keys.md": "# Keys\n\nKept in the red box.", "b.txt": "b"})
    port, metrics_port, session = find_free_port(), find_free_port(), short_folder / "observed"
    arguments = {
        "port": port,
        "metrics_port": metrics_port,
        "session": str(session),
        "dsn": module_store.dsn,
        "documents": str(documents),
        "correlation_id": JOB_CORRELATION,
        "traceparent": f"00-{JOB}-{PARENT}-01",
    }
    with run_collector() as collector:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RAY_metrics_report_interval_ms": "500",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        command = [sys.executable, str(PROGRAM), json.dumps(arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:  # type: ignore[call-overload]
            line = process.stdout.readline()
            assert line, process.stderr.read()
            assert json.loads(line) == {"documents": 2}
            headers = {"X-Correlation-ID": CORRELATION, "traceparent": f"00-{REQUEST}-{PARENT}-01"}
            url = f"http://127.0.0.1:{port}/v1/retrieve"
            response = httpx2.post(url, json={"query": QUESTION}, headers=headers, timeout=60)
            assert response.json()["degraded"] == ["dense"]
            assert response.headers["x-correlation-id"] == CORRELATION
            yield Observed(session, metrics_port, collector)
            process.communicate(timeout=60)


def eventually(read: Callable[[], list[Any]], count: int) -> list[Any]:
    """Waits until there are so many rows, or some seconds, and returns the rows."""
    until = time.monotonic() + SOON
    while len(rows := read()) < count and time.monotonic() < until:
        time.sleep(0.2)
    return rows


def test_the_lines_of_a_request_bear_its_id_in_every_process(observation: Observed) -> None:
    lines = eventually(lambda: observation.lines(CORRELATION), 3)
    by_event = {line["event"].split(" ")[0]: line for line in lines}
    assert {line["role"] for line in lines} == {"gateway", "reader"}
    request = by_event["request"]
    assert (request["status"], request["degraded"], request["tenant"]) == ("degraded", ["dense"], "default-tenant")
    assert set(request["stages"]) == {"rerank", "dense"}
    assert by_event["stage"]["error_type"] == "RetrievalError"
    assert {line["trace_id"] for line in lines} == {REQUEST}


def test_the_lines_of_a_job_bear_its_id_in_every_process(observation: Observed) -> None:
    lines = eventually(lambda: observation.lines(JOB_CORRELATION), 4)
    assert {(line["role"], line["event"], line.get("stage")) for line in lines} == {
        ("ingest", "job", None),
        ("ingest-worker", "batch", "prepare"),
        ("ingest-worker", "batch", "embed"),
        ("ingest-worker", "batch", "publish"),
    }
    assert {line["trace_id"] for line in lines} == {JOB}
    assert next(line["counts"]["added"] for line in lines if line["event"] == "job") == 2


def test_no_file_of_the_session_has_an_address_a_key_or_a_password(observation: Observed) -> None:
    assert eventually(lambda: observation.lines(CORRELATION), 3)
    written = observation.read_logs()
    assert "the reader broke" in written
    assert "ValueError: password=[secret] is wrong for who lets [e-mail] use [key]" in written
    assert [secret for secret in SECRETS if secret in written] == []


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "orchestration_operations_total",
            {
                "operation": "retrieve",
                "pipeline_stage": "all",
                "tenant_id": "default-tenant",
                "profile": "default",
                "status": "degraded",
            },
        ),
        ("orchestration_end_to_end_duration_seconds_count", {"operation": "ingest", "status": "ok"}),
        (
            "orchestration_stage_duration_seconds_count",
            {"operation": "retrieve", "pipeline_stage": "rerank", "status": "ok"},
        ),
        ("orchestration_stage_duration_seconds_count", {"operation": "ingest", "pipeline_stage": "embed"}),
        ("orchestration_errors_total", {"pipeline_stage": "dense", "error_type": "RetrievalError"}),
    ],
)
def test_prometheus_finds_what_every_process_counted(observation: Observed, name: str, labels: dict[str, str]) -> None:
    assert eventually(lambda: observation.values(name, labels), 1)[0] >= 1


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("orchestration_circuit_breaker_state", {"service": "reader"}, 1),
        ("orchestration_job_queue_depth", {"pipeline_stage": "queued", "tenant_id": "default-tenant"}, 2),
    ],
)
def test_gauges_last_for_as_long_as_their_process(
    observation: Observed, name: str, labels: dict[str, str], value: float
) -> None:
    """The gauges were set when the process began, and Ray keeps a value for two seconds in this test."""
    assert eventually(lambda: observation.values(name, labels), 1) == [value]


def test_one_trace_leads_from_the_client_through_the_stages_to_the_model(observation: Observed) -> None:
    spans = eventually(lambda: observation.trace(REQUEST), 4)
    names = {span.id: span.name for span in spans}
    assert {(span.service, span.name, names.get(span.parent, span.parent)) for span in spans} == {
        ("rag-gateway", "retrieve", PARENT),
        ("rag-gateway", "rerank", "retrieve"),
        ("rag-gateway", "dense", "retrieve"),
        ("rag-reader", "Reader", "rerank"),
    }
    assert not any(secret in str(span) for span in spans for secret in (*SECRETS, "who lets"))


def test_one_trace_leads_from_who_asked_for_a_job_to_its_batches(observation: Observed) -> None:
    spans = eventually(lambda: observation.trace(JOB), 4)
    names = {span.id: span.name for span in spans}
    assert {(span.service, span.name, names.get(span.parent, span.parent)) for span in spans} == {
        ("rag-ingest", "ingest", PARENT),
        ("rag-ingest-worker", "prepare", "ingest"),
        ("rag-ingest-worker", "embed", "ingest"),
        ("rag-ingest-worker", "publish", "ingest"),
    }
