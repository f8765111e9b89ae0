"""Where processes of Ray tell of their work: lines into Ray's session, metrics to its port, traces to a collector."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from rag_core.config import TelemetrySettings
from rag_core.errors import StoreError
from rag_core.storage.gauges import queue_depths
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import configure_logs, scrub_record
from rag_core.telemetry.metrics import METRICS, Labels, Metric, install_sink, record_queue_depths
from rag_core.telemetry.operation import Operation
from rag_core.telemetry.reporting import reporting_operation
from rag_core.telemetry.traces import install_tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

GAUGES_AGAIN = 5.0
"""Seconds."""
COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

Record: TypeAlias = Callable[[float, dict[str, str]], None]


def observe(role: str, settings: TelemetrySettings) -> None:
    """Once in every process of Ray that we have something in, before it works. `role` is what it is there for."""
    configure_logs(role, settings.log_queries)
    logging.getLogger("ray.serve").addFilter(scrub_record)  # it logs what our code raises
    install_sink(_ray_sink(), settings.metric_tenants)
    install_tracer(_exporting_tracer(role))


@contextmanager
def job_operation(correlation_id: str, traceparent: str, tenant: str, profile: str) -> Iterator[Operation]:
    """The block is a job's work, and told of when it ends; the values are those of its row. Its `counts` are for the
    documents of the report."""
    operation = Operation(name="ingest", correlation_id=correlation_id, tenant=tenant, profile=profile)
    with reporting_operation(operation, "job", {"traceparent": traceparent} if traceparent else {}):
        yield operation


def keep_telling_depths(postgres: Postgres, ended: Event, pause: float = 5.0) -> None:
    """The queue's, until it has ended, with so many seconds between. While the store is away they stay as they were."""
    before: Mapping[tuple[str, str], int] = {}
    while not ended.is_set():
        with suppress(StoreError):
            depths = queue_depths(postgres)
            record_queue_depths(depths, before)
            before = depths
        ended.wait(pause)


class RaySink:
    """Prometheus finds the metrics at Ray's port of the node, `ray_` before their names."""

    def __init__(self) -> None:
        self._record: Mapping[str, Record] = {metric.name: _record(metric) for metric in METRICS}
        self._gauges: dict[tuple[str, tuple[str, ...]], tuple[Labels, float]] = {}

    def __call__(self, metric: Metric, value: float, labels: Labels) -> None:
        if metric.kind == "gauge":
            self._gauges[metric.name, tuple(labels.values())] = labels, value
        self._record[metric.name](value, dict(labels))

    def say_gauges_again(self) -> None:
        """Ray forgets a gauge that was not set for two of its intervals, of 10 seconds."""
        for (name, _), (labels, value) in list(self._gauges.items()):
            self._record[name](value, dict(labels))


@lru_cache(maxsize=1)
def _ray_sink() -> RaySink:
    """One a process: Ray does not know a metric twice."""
    sink = RaySink()
    Thread(target=_keep_gauges, args=(sink,), daemon=True, name="gauges").start()
    return sink


def _keep_gauges(sink: RaySink) -> None:
    while True:
        time.sleep(GAUGES_AGAIN)
        sink.say_gauges_again()


def _record(metric: Metric) -> Record:
    from ray.util.metrics import Counter, Gauge, Histogram

    record: Any
    match metric.kind:
        case "counter":
            record = Counter(metric.name, metric.help, metric.labels).inc
        case "gauge":
            record = Gauge(metric.name, metric.help, metric.labels).set
        case "histogram":
            record = Histogram(metric.name, metric.help, list(metric.buckets), metric.labels).observe
    return record  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _exporting_tracer(role: str) -> "Tracer | None":
    """None where OpenTelemetry's variables name no collector. Of a provider of its own: other libraries' spans, which
    go to the global one, stay out of our traces."""
    named = any(os.environ.get(name) for name in COLLECTORS)
    if not named or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or f"rag-{role}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("rag-on-ray")
