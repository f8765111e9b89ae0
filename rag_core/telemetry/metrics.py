"""All metrics of the program. Their values are discarded until a process installs a sink.

Names follow Prometheus' conventions: base units, seconds in histograms. Labels have few values: tenants that are not
allowed as labels are `other`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import nan
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
JOB_AGE = Metric(
    name="orchestration_job_oldest_age_seconds",
    kind="gauge",
    labels=("operation", "pipeline_stage", "tenant_id"),
    help="Age of the oldest job that waits (stage queued), or that a runner has (stage running). Take the maximum.",
)
FAILED_JOBS = Metric(
    name="orchestration_failed_jobs",
    kind="gauge",
    labels=("tenant_id",),
    help="Jobs that failed for good in the last 24 hours, dead letters of the queue included.",
)
LISTING_AGE = Metric(
    name="orchestration_last_listing_age_seconds",
    kind="gauge",
    labels=("tenant_id",),
    help="Time since a source of the tenant was last listed completely.",
)
DOCUMENTS = Metric(
    name="orchestration_documents_total",
    kind="counter",
    labels=("operation", "tenant_id", "profile", "outcome"),
    help="Documents of jobs that have ended, by outcome: completed, failed, skipped, quarantined, deleted, same.",
)
BATCH_DOCUMENTS = Metric(
    name="orchestration_batch_documents_total",
    kind="counter",
    labels=WORK_LABELS,
    help="Documents that passed a stage of a running job. A part of a large document counts as one.",
)
STORE_UP = Metric(
    name="orchestration_store_up",
    kind="gauge",
    labels=(),
    help="1 if the last poll of the store succeeded, else 0. The other gauges of the store then keep their values.",
)
STORE_BYTES = Metric(
    name="orchestration_store_bytes",
    kind="gauge",
    labels=(),
    help="Size of the store's database on disk.",
)
STORE_CONNECTIONS = Metric(
    name="orchestration_store_connections",
    kind="gauge",
    labels=(),
    help="Connections to all databases of the store's server.",
)
STORE_CONNECTION_LIMIT = Metric(
    name="orchestration_store_connection_limit",
    kind="gauge",
    labels=(),
    help="The server's max_connections.",
)
TABLE_ROWS = Metric(
    name="orchestration_store_table_rows",
    kind="gauge",
    labels=("table",),
    help="Rows of a table, as Postgres' statistics count them.",
)
TABLE_DEAD_ROWS = Metric(
    name="orchestration_store_table_dead_rows",
    kind="gauge",
    labels=("table",),
    help="Deleted and outdated rows of a table that vacuum has not removed yet.",
)
TABLE_BYTES = Metric(
    name="orchestration_store_table_bytes",
    kind="gauge",
    labels=("table",),
    help="Size of a table on disk, with its indexes. It keeps its value while the table is locked exclusively.",
)
AUDIT_DROPPED = Metric(
    name="orchestration_audit_rows_dropped_total",
    kind="counter",
    labels=("tenant_id",),
    help="Rows of read requests that could not be written to the audit.",
)
METRICS = (
    *(OPERATIONS, END_TO_END, STAGE, ERRORS, QUEUE_DEPTH, CIRCUIT_BREAKER, AUDIT_DROPPED),
    *(JOB_AGE, FAILED_JOBS, LISTING_AGE, DOCUMENTS, BATCH_DOCUMENTS),
    *(STORE_UP, STORE_BYTES, STORE_CONNECTIONS, STORE_CONNECTION_LIMIT),
    *(TABLE_ROWS, TABLE_DEAD_ROWS, TABLE_BYTES),
)
OUTCOMES = ("completed", "failed", "skipped", "quarantined", "deleted", "same")
"""The outcomes of documents: each has one. The other counts of a job, such as `added`, are of the same documents."""

QueueKey: TypeAlias = tuple[str, str]
"""A tenant, and the status of its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJobs:
    """Jobs of one tenant in one status. `oldest` is the age of the oldest in seconds."""

    count: int
    oldest: float


NO_JOBS = OpenJobs(count=0, oldest=0.0)
EMPTY_QUEUE: Mapping[QueueKey, OpenJobs] = {
    (DEFAULT_TENANT, "queued"): NO_JOBS,
    (DEFAULT_TENANT, "running"): NO_JOBS,
}
"""What is recorded before the first job, so that alerts and dashboards read 0 instead of nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """`rows` and `dead_rows` are Postgres' estimates; `bytes` includes the indexes."""

    rows: int
    dead_rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """Figures of a store. The first two mappings are by tenant, `tables` by name; ages are in seconds."""

    failed_jobs: Mapping[str, int]
    listing_ages: Mapping[str, float]
    tables: Mapping[str, TableSize]
    bytes: int
    connections: int
    connection_limit: int


EMPTY_STATE = StoreState(
    failed_jobs={DEFAULT_TENANT: 0}, listing_ages={}, tables={}, bytes=0, connections=0, connection_limit=0
)

Sink: TypeAlias = Callable[[Metric, float, Labels], None]
"""Receives a value and all labels of the metric. A counter is increased by the value, a gauge is set to it.

A gauge that is set to NaN ends.
"""


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


def record_documents(operation: Operation) -> None:
    """Records the outcomes of a job's documents, which are the operation's `counts`."""
    if _sink is discard:
        return
    labels = _operation_labels(operation, ALL_STAGES)
    del labels["pipeline_stage"]
    for outcome in OUTCOMES:
        if count := operation.counts.get(outcome, 0):
            _sink(DOCUMENTS, count, {**labels, "outcome": outcome})


def record_batch(operation: Operation, stage: str, seconds: float, documents: int, failure: str) -> None:
    """Records one batch in a stage of a job. `failure` is the type of its error, empty if it succeeded."""
    report = StageReport(stage=stage, seconds=seconds, error=failure, error_type=failure)
    _record_stage(operation, report, refused=False)
    if documents and not failure:
        _sink(BATCH_DOCUMENTS, documents, _operation_labels(operation, stage))


def record_open_jobs(jobs: Mapping[QueueKey, OpenJobs], previous: Collection[QueueKey] = ()) -> None:
    """Records the jobs that wait or run. Keys of `previous` that are now missing are set to 0."""
    groups: dict[QueueKey, list[OpenJobs]] = {}
    for tenant, status in dict.fromkeys((*previous, *jobs)):
        groups.setdefault((_tenant_label(tenant), status), []).append(jobs.get((tenant, status), NO_JOBS))
    for (tenant, status), group in groups.items():
        labels = {"operation": "ingest", "pipeline_stage": status, "tenant_id": tenant}
        _sink(QUEUE_DEPTH, sum(open_jobs.count for open_jobs in group), labels)
        _sink(JOB_AGE, max(open_jobs.oldest for open_jobs in group), labels)


def record_store_state(state: StoreState, previous: StoreState = EMPTY_STATE) -> None:
    """Records the state. Tenants of `previous` that are now missing have no failed job, and no age of a listing."""
    failed_jobs = {**dict.fromkeys(previous.failed_jobs, 0), **state.failed_jobs}
    for tenant, values in _group_by_tenant_label(failed_jobs).items():
        _sink(FAILED_JOBS, sum(values), {"tenant_id": tenant})
    ages = _group_by_tenant_label(state.listing_ages)
    for tenant in {**_group_by_tenant_label(previous.listing_ages), **ages}:
        _sink(LISTING_AGE, max(ages.get(tenant, [nan])), {"tenant_id": tenant})
    for table, size in state.tables.items():
        _sink(TABLE_ROWS, size.rows, {"table": table})
        _sink(TABLE_DEAD_ROWS, size.dead_rows, {"table": table})
        _sink(TABLE_BYTES, size.bytes, {"table": table})
    _sink(STORE_BYTES, state.bytes, {})
    _sink(STORE_CONNECTIONS, state.connections, {})
    _sink(STORE_CONNECTION_LIMIT, state.connection_limit, {})


def record_store_availability(is_available: bool) -> None:
    _sink(STORE_UP, float(is_available), {})


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


def _group_by_tenant_label(values: Mapping[str, float]) -> Mapping[str, Sequence[float]]:
    groups: dict[str, list[float]] = {}
    for tenant, value in values.items():
        groups.setdefault(_tenant_label(tenant), []).append(value)
    return groups


def _tenant_label(tenant: str) -> str:
    return tenant if tenant in _tenants else OTHER_TENANT
