"""Every metric that the program has, and where its values go: nowhere, until a process installs a sink.

Prometheus' conventions: names in base units, seconds in histograms. A label has few values: tenants that are not
allowed as labels are `other`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.telemetry.operation import CANCELLED, FAILED, Operation, Status
from rag_core.types import DEFAULT_TENANT, StageReport

Labels: TypeAlias = Mapping[str, str]
State: TypeAlias = Literal["closed", "half_open", "open"]

STATES: Mapping[State, int] = {"closed": 0, "half_open": 1, "open": 2}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
WHOLE = "all"
"""As a stage: the operation from its beginning to its end."""
OTHER = "other"
WORK = ("operation", "pipeline_stage", "tenant_id", "profile")
"""Labels of what has been worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`buckets` are a histogram's upper bounds; above the last there is one more."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


OPERATIONS = Metric(
    name="orchestration_operations_total",
    kind="counter",
    labels=(*WORK, "status"),
    help="Requests and jobs that have ended.",
)
END_TO_END = Metric(
    name="orchestration_end_to_end_duration_seconds",
    kind="histogram",
    labels=(*WORK, "status"),
    help="From the beginning of a request or job to its end.",
    buckets=SECONDS,
)
STAGE = Metric(
    name="orchestration_stage_duration_seconds",
    kind="histogram",
    labels=(*WORK, "status"),
    help="What a stage of a request took, or a batch in a stage of a job; status timeout is its own.",
    buckets=SECONDS,
)
ERRORS = Metric(
    name="orchestration_errors_total",
    kind="counter",
    labels=(*WORK, "error_type"),
    help="Stages that went wrong, whether the request could do without them or not.",
)
QUEUE_DEPTH = Metric(
    name="orchestration_job_queue_depth",
    kind="gauge",
    labels=("operation", "pipeline_stage", "tenant_id"),
    help="Jobs that wait (stage queued) and that are worked on (running). Every runner tells all: take the maximum.",
)
CIRCUIT_BREAKER = Metric(
    name="orchestration_circuit_breaker_state",
    kind="gauge",
    labels=("service",),
    help="Of one process' breaker before a deployment: 0 closed, 1 half-open, 2 open.",
)
METRICS = (OPERATIONS, END_TO_END, STAGE, ERRORS, QUEUE_DEPTH, CIRCUIT_BREAKER)

Sink: TypeAlias = Callable[[Metric, float, Labels], None]
"""Gets every label of the metric. A counter's value is what is added, a gauge's what it is set to."""


def discard(metric: Metric, value: float, labels: Labels) -> None:
    pass


_sink: Sink = discard
_tenants: frozenset[str] = frozenset({DEFAULT_TENANT})


def install_sink(sink: Sink, tenants: Collection[str] = (DEFAULT_TENANT,)) -> None:
    """From now on, of the whole process. `tenants` are those that stand in labels under their own names."""
    global _sink, _tenants
    _sink, _tenants = sink, frozenset(tenants)


def record_operation(operation: Operation, status: Status, seconds: float) -> None:
    """When it has ended: itself and all its stages."""
    if _sink is discard:
        return
    labels = {**_labels(operation, WHOLE), "status": status}
    _sink(OPERATIONS, 1, labels)
    _sink(END_TO_END, seconds, labels)
    for report in operation.stages:
        if not report.skipped:
            _record_stage(operation, report, refused=status == "refused")
    if status in ("error", "timeout") and not operation.degraded:
        _sink(ERRORS, 1, {**_labels(operation, WHOLE), "error_type": operation.failure or status})


def record_batch(operation: Operation, stage: str, seconds: float, failure: str) -> None:
    """One batch in a stage of a job; `failure` is the type of what it raised."""
    report = StageReport(stage=stage, seconds=seconds, error=failure, error_type=failure)
    _record_stage(operation, report, refused=False)


def record_queue_depths(depths: Mapping[tuple[str, str], int], before: Collection[tuple[str, str]] = ()) -> None:
    """Jobs by tenant and status. What was told `before` and is not there any more is none."""
    counts = Counter[tuple[str, str]]()
    for tenant, status in (*before, *depths):
        counts[_tenant_label(tenant), status] += 0
    for (tenant, status), count in depths.items():
        counts[_tenant_label(tenant), status] += count
    for (tenant, status), count in counts.items():
        _sink(QUEUE_DEPTH, count, {"operation": "ingest", "pipeline_stage": status, "tenant_id": tenant})


def record_breaker_state(service: str, state: State) -> None:
    _sink(CIRCUIT_BREAKER, STATES[state], {"service": service})


def _record_stage(operation: Operation, report: StageReport, refused: bool) -> None:
    """Of what was asked wrongly no stage is to blame."""
    labels = _labels(operation, report.stage)
    _sink(STAGE, report.seconds, {**labels, "status": _status(report)})
    if report.error and report.error_type != CANCELLED and not refused:
        _sink(ERRORS, 1, {**labels, "error_type": report.error_type})


def _status(report: StageReport) -> Status:
    return FAILED.get(report.error_type, "error") if report.error else "ok"


def _labels(operation: Operation, stage: str) -> dict[str, str]:
    return {
        "operation": operation.name,
        "pipeline_stage": stage,
        "tenant_id": _tenant_label(operation.tenant),
        "profile": operation.profile,
    }


def _tenant_label(tenant: str) -> str:
    return tenant if tenant in _tenants else OTHER
