"""All metrics of the program. Their values are discarded until a process installs a sink.

Names follow Prometheus' conventions: base units, seconds in histograms. Labels have few values: tenants that are not
allowed as labels are `other`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.telemetry.operation import CANCELLED, STATUS_BY_ERROR, Operation, Status
from rag_core.types import DEFAULT_TENANT, StageReport

Labels: TypeAlias = Mapping[str, str]
BreakerState: TypeAlias = Literal["closed", "half_open", "open"]

BREAKER_STATES: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}
DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
ALL_STAGES = "all"
"""The label of the operation as a whole, in place of a stage."""
OTHER_TENANT = "other"
WORK_LABELS = ("operation", "pipeline_stage", "tenant_id", "profile")
"""The labels of operations and their stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `buckets` holds a histogram's upper bounds; one more bucket follows above the last."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


OPERATIONS = Metric(
    name="orchestration_operations_total",
    kind="counter",
    labels=(*WORK_LABELS, "status"),
    help="Requests and jobs that have ended.",
)
END_TO_END = Metric(
    name="orchestration_end_to_end_duration_seconds",
    kind="histogram",
    labels=(*WORK_LABELS, "status"),
    help="Duration of a request or job, from its beginning to its end.",
    buckets=DURATION_BUCKETS,
)
STAGE = Metric(
    name="orchestration_stage_duration_seconds",
    kind="histogram",
    labels=(*WORK_LABELS, "status"),
    help="Duration of a stage of a request, or of a batch in a stage of a job; status timeout is the stage's own.",
    buckets=DURATION_BUCKETS,
)
ERRORS = Metric(
    name="orchestration_errors_total",
    kind="counter",
    labels=(*WORK_LABELS, "error_type"),
    help="Stages that failed, even if the request could continue without them.",
)
QUEUE_DEPTH = Metric(
    name="orchestration_job_queue_depth",
    kind="gauge",
    labels=("operation", "pipeline_stage", "tenant_id"),
    help="Jobs that wait (stage queued) or run (stage running). Every runner reports all jobs: take the maximum.",
)
CIRCUIT_BREAKER = Metric(
    name="orchestration_circuit_breaker_state",
    kind="gauge",
    labels=("service",),
    help="State of one process's circuit breaker for a service: 0 closed, 1 half-open, 2 open.",
)
AUDIT_DROPPED = Metric(
    name="orchestration_audit_rows_dropped_total",
    kind="counter",
    labels=("tenant_id",),
    help="Rows of read requests that could not be written to the audit.",
)
METRICS = (OPERATIONS, END_TO_END, STAGE, ERRORS, QUEUE_DEPTH, CIRCUIT_BREAKER, AUDIT_DROPPED)

Sink: TypeAlias = Callable[[Metric, float, Labels], None]
"""Receives a value and all labels of the metric. A counter is increased by the value, a gauge is set to it."""


def discard(metric: Metric, value: float, labels: Labels) -> None:
    pass


_sink: Sink = discard
_tenants: frozenset[str] = frozenset({DEFAULT_TENANT})


def install_sink(sink: Sink, tenants: Collection[str] = (DEFAULT_TENANT,)) -> None:
    """Sets the sink of the whole process. `tenants` are those that appear in labels under their own names."""
    global _sink, _tenants
    _sink, _tenants = sink, frozenset(tenants)


def record_operation(operation: Operation, status: Status, seconds: float) -> None:
    """Records an operation that has ended, and all its stages."""
    if _sink is discard:
        return
    labels = {**_operation_labels(operation, ALL_STAGES), "status": status}
    _sink(OPERATIONS, 1, labels)
    _sink(END_TO_END, seconds, labels)
    for report in operation.stages:
        if not report.skipped:
            _record_stage(operation, report, refused=status == "refused")
    if status in ("error", "timeout") and not operation.degraded:
        _sink(ERRORS, 1, {**_operation_labels(operation, ALL_STAGES), "error_type": operation.failure or status})


def record_batch(operation: Operation, stage: str, seconds: float, failure: str) -> None:
    """Records one batch in a stage of a job. `failure` is the type of its error, empty if it succeeded."""
    report = StageReport(stage=stage, seconds=seconds, error=failure, error_type=failure)
    _record_stage(operation, report, refused=False)


def record_queue_depths(depths: Mapping[tuple[str, str], int], previous: Collection[tuple[str, str]] = ()) -> None:
    """Records the number of jobs by tenant and status. Keys of `previous` that are now missing are set to 0."""
    counts = Counter[tuple[str, str]]()
    for tenant, status in (*previous, *depths):
        counts[_tenant_label(tenant), status] += 0
    for (tenant, status), count in depths.items():
        counts[_tenant_label(tenant), status] += count
    for (tenant, status), count in counts.items():
        _sink(QUEUE_DEPTH, count, {"operation": "ingest", "pipeline_stage": status, "tenant_id": tenant})


def record_breaker_state(service: str, state: BreakerState) -> None:
    _sink(CIRCUIT_BREAKER, BREAKER_STATES[state], {"service": service})


def record_dropped_audit_rows(tenant: str, count: int) -> None:
    _sink(AUDIT_DROPPED, count, {"tenant_id": _tenant_label(tenant)})


def _record_stage(operation: Operation, report: StageReport, refused: bool) -> None:
    """Records one stage. In a refused operation the caller made the error, so no stage counts as failed."""
    labels = _operation_labels(operation, report.stage)
    status = STATUS_BY_ERROR.get(report.error_type, "error") if report.error else "ok"
    _sink(STAGE, report.seconds, {**labels, "status": status})
    if report.error and report.error_type != CANCELLED and not refused:
        _sink(ERRORS, 1, {**labels, "error_type": report.error_type})


def _operation_labels(operation: Operation, stage: str) -> dict[str, str]:
    return {
        "operation": operation.name,
        "pipeline_stage": stage,
        "tenant_id": _tenant_label(operation.tenant),
        "profile": operation.profile,
    }


def _tenant_label(tenant: str) -> str:
    return tenant if tenant in _tenants else OTHER_TENANT
