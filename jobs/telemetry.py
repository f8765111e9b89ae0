"""Telemetry of processes on Ray: logs in Ray's session folder, metrics at its port, traces to a collector."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from math import isnan
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from rag_core.config import TelemetrySettings
from rag_core.errors import ConfigError, StoreError
from rag_core.storage.gauges import open_jobs, store_state
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import configure_logs, scrub_record
from rag_core.telemetry.metrics import (
    EMPTY_QUEUE,
    EMPTY_STATE,
    METRICS,
    Labels,
    Metric,
    install_sink,
    record_documents,
    record_open_jobs,
    record_store_availability,
    record_store_state,
)
from rag_core.telemetry.operation import Operation, enter_operation
from rag_core.telemetry.reporting import reporting_operation
from rag_core.telemetry.traces import install_tracer, operation_span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

GAUGE_REFRESH_SECONDS = 5.0
COLLECTOR_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

RecordValue: TypeAlias = Callable[[float, dict[str, str]], None]


def configure_telemetry(role: str, settings: TelemetrySettings) -> None:
    """Sets up logs, metrics and traces. `role` names the task of this process.

    Each of our processes on Ray calls it once, before anything else.
    """
    configure_logs(role, settings.log_queries)
    logging.getLogger("ray.serve").addFilter(scrub_record)  # it logs the errors that our code raises
    install_sink(_start_ray_sink(), settings.metric_tenants)
    start_tracing(role)


def start_tracing(role: str) -> bool:
    """Exports the spans of this process. Returns False if OpenTelemetry's variables name no collector."""
    provider = _build_provider(role)
    install_tracer(provider.get_tracer(f"rag-{role}") if provider else None)
    return provider is not None


def flush_spans(role: str) -> None:
    """Exports the spans that wait. A process that can be killed calls it when its work has ended."""
    if provider := _build_provider(role):
        provider.force_flush()


@contextmanager
def trace_evaluation(tenant: str, profile: str) -> Iterator[None]:
    """Runs the block as one trace, whose correlation id is random. Changes nothing without a collector."""
    if not start_tracing("evaluate"):
        yield
        return
    operation = Operation(name="evaluate", correlation_id=str(uuid4()), tenant=tenant, profile=profile)
    with enter_operation(operation), operation_span(operation, operation.name):
        yield


@contextmanager
def job_operation(correlation_id: str, traceparent: str, tenant: str, profile: str) -> Iterator[Operation]:
    """Runs the block as the operation of a job, and reports it when the block ends.

    The arguments are columns of the job's row. The block sets the operation's `counts` to the report's documents.
    """
    operation = Operation(name="ingest", correlation_id=correlation_id, tenant=tenant, user="worker", profile=profile)
    with reporting_operation(operation, "job", {"traceparent": traceparent} if traceparent else {}):
        yield operation
        record_documents(operation)


def poll_store(postgres: Postgres, ended: Event, interval: float = 5.0) -> None:
    """Records the queue and the state of the store every `interval` seconds until `ended` is set.

    While the store is unavailable, `orchestration_store_up` is 0, and the other metrics keep their last values.
    """
    jobs, state = EMPTY_QUEUE, EMPTY_STATE
    while not ended.is_set():
        try:
            previous_jobs, jobs = jobs, open_jobs(postgres)
            record_open_jobs(jobs, previous_jobs)
            previous_state, state = state, store_state(postgres)
            record_store_state(state, previous_state)
            record_store_availability(True)
        except (ConfigError, StoreError):  # a reference to the DSN is read for each poll, and can be wrong for a moment
            record_store_availability(False)
        ended.wait(interval)


class RaySink:
    """A sink that sends metrics to Ray. Prometheus reads them from Ray's port on the node, with the prefix `ray_`."""

    def __init__(self) -> None:
        self._record: Mapping[str, RecordValue] = {metric.name: _register_metric(metric) for metric in METRICS}
        self._gauges: dict[tuple[str, tuple[str, ...]], tuple[Labels, float]] = {}

    def __call__(self, metric: Metric, value: float, labels: Labels) -> None:
        if metric.kind == "gauge":
            key = metric.name, tuple(labels.values())
            if isnan(value):
                self._gauges.pop(key, None)
                return
            self._gauges[key] = labels, value
        self._record[metric.name](value, dict(labels))

    def refresh_gauges(self) -> None:
        """Sets all gauges again, forever: Ray drops a gauge that was not set for two of its 10-second intervals."""
        while True:
            time.sleep(GAUGE_REFRESH_SECONDS)
            self.set_again()

    def set_again(self) -> None:
        for (name, _), (labels, value) in list(self._gauges.items()):
            self._record[name](value, dict(labels))


@lru_cache(maxsize=1)
def _start_ray_sink() -> RaySink:
    """The sink of this process. There can be only one, because Ray rejects a metric that is registered twice."""
    sink = RaySink()
    Thread(target=sink.refresh_gauges, daemon=True, name="gauges").start()
    return sink


def _register_metric(metric: Metric) -> RecordValue:
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
def _build_provider(role: str) -> "TracerProvider | None":
    """A provider of tracers that export spans, or None if OpenTelemetry's variables name no collector.

    Other libraries send their spans to the global provider, so our traces do not contain them.
    """
    has_collector = any(os.environ.get(name) for name in COLLECTOR_VARIABLES)
    if not has_collector or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or f"rag-{role}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
