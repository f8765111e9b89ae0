import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from math import isnan, nan

import pytest

from jobs.telemetry import RaySink
from rag_core.errors import BusyError, ModelError, SourceError
from rag_core.stage import attempt, recording, stage
from rag_core.telemetry.metrics import (
    DURATION_BUCKETS,
    EMPTY_STATE,
    LISTING_AGE,
    METRICS,
    Metric,
    OpenJobs,
    StoreState,
    TableSize,
    install_sink,
    record_breaker_state,
    record_documents,
    record_open_jobs,
    record_operation,
    record_store_state,
)
from rag_core.telemetry.operation import Operation, enter_operation
from rag_core.telemetry.reporting import report_operation, reporting_batch, reporting_operation
from rag_core.types import StageReport

Records = list[tuple[str, float, Mapping[str, str]]]


@pytest.fixture
def records() -> Records:
    """Every label of the metric must come with each value, or Ray refuses it."""
    values: Records = []

    def keep(metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        assert set(labels) == set(metric.labels)
        values.append((metric.name, value, labels))

    install_sink(keep, ["tenant-one"])
    return values


def operation() -> Operation:
    return Operation(name="retrieve", tenant="tenant-one", profile="default")


def of(records: Records, name: str, *labels: str) -> list[tuple[str, ...]]:
    return [tuple(values[label] for label in labels) for metric, _, values in records if metric == name]


def test_the_required_metrics_have_the_names_and_buckets_that_were_agreed() -> None:
    assert {(metric.name, metric.kind) for metric in METRICS} >= {
        ("orchestration_operations_total", "counter"),
        ("orchestration_end_to_end_duration_seconds", "histogram"),
        ("orchestration_stage_duration_seconds", "histogram"),
        ("orchestration_errors_total", "counter"),
        ("orchestration_job_queue_depth", "gauge"),
        ("orchestration_circuit_breaker_state", "gauge"),
        ("orchestration_audit_rows_dropped_total", "counter"),
    }
    assert list(DURATION_BUCKETS) == sorted({0.1, 0.5, 1, 2, 5, 10, 0.005, 0.01, 0.025, 0.05, 0.075, 0.2, 0.3})
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.help.endswith(".")
        assert re.fullmatch(r"[a-z_]+", metric.name)
        assert bool(metric.buckets) == (metric.kind == "histogram")


def test_a_request_counts_itself_its_stages_and_what_went_wrong(records: Records) -> None:
    async def fail() -> str:
        raise ModelError("no weights")

    async def work() -> None:
        with recording(limits={"sparse": 0.01}):
            async with stage("retrieve"):
                await attempt("dense", fail(), otherwise="")
                await attempt("sparse", asyncio.sleep(60, ""), otherwise="")

    current = operation()
    with enter_operation(current):
        asyncio.run(work())
    assert (current.status, current.degraded) == ("degraded", ["dense", "sparse"])
    report_operation(current, "request", current.status)
    everything = ("operation", "pipeline_stage", "tenant_id", "profile", "status")
    labels = ("retrieve", "all", "tenant-one", "default", "degraded")
    assert of(records, "orchestration_operations_total", *everything) == [labels]
    assert of(records, "orchestration_end_to_end_duration_seconds", *everything) == [labels]
    assert of(records, "orchestration_stage_duration_seconds", "pipeline_stage", "status") == [
        ("dense", "error"),
        ("sparse", "timeout"),
        ("retrieve", "ok"),
    ]
    assert of(records, "orchestration_errors_total", "pipeline_stage", "error_type") == [
        ("dense", "ModelError"),
        ("sparse", "StageTimeoutError"),
    ]


def test_a_request_that_failed_in_no_stage_is_an_error_of_its_whole(records: Records) -> None:
    record_operation(operation(), "error", 0.1)
    assert of(records, "orchestration_errors_total", "pipeline_stage", "error_type") == [("all", "error")]


def test_a_refused_or_cancelled_request_is_not_an_error(records: Records) -> None:
    refused, cancelled = operation(), operation()
    refused.stages += [StageReport(stage="dense", seconds=0.1, error="no operator", error_type="FilterError")]
    cancelled.stages += [StageReport(stage="dense", seconds=0.1, error="cancelled", error_type="CancelledError")]
    record_operation(refused, "refused", 0.1)
    record_operation(cancelled, "cancelled", 0.1)
    assert of(records, "orchestration_errors_total", "error_type") == []
    assert of(records, "orchestration_operations_total", "status") == [("refused",), ("cancelled",)]


def test_a_recording_whose_caller_is_gone_was_cancelled() -> None:
    async def work() -> None:
        with recording():
            async with stage("retrieve"):
                await asyncio.sleep(60)

    async def leave() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    current = operation()
    with enter_operation(current):
        asyncio.run(leave())
    assert (current.status, current.degraded) == ("cancelled", [])


def jobs(count: int, oldest: float = 1.0) -> OpenJobs:
    return OpenJobs(count=count, oldest=oldest)


def test_tenants_without_a_label_of_their_own_are_other(records: Records) -> None:
    record_open_jobs(
        {
            ("tenant-one", "queued"): jobs(3, 5.0),
            ("tenant-two", "queued"): jobs(2, 60.0),
            ("tenant-three", "queued"): jobs(4, 7.0),
        }
    )
    assert [(metric, value, labels["tenant_id"]) for metric, value, labels in records] == [
        ("orchestration_job_queue_depth", 3, "tenant-one"),
        ("orchestration_job_oldest_age_seconds", 5.0, "tenant-one"),
        ("orchestration_job_queue_depth", 6, "other"),
        ("orchestration_job_oldest_age_seconds", 60.0, "other"),
    ]


def test_a_queue_that_has_emptied_is_recorded_as_empty(records: Records) -> None:
    record_open_jobs(
        {("tenant-one", "running"): jobs(1)}, previous=[("tenant-one", "queued"), ("tenant-one", "running")]
    )
    depths = {labels["pipeline_stage"]: value for metric, value, labels in records if metric.endswith("queue_depth")}
    assert depths == {"queued": 0, "running": 1}


def test_the_state_of_a_store_names_only_tenants_with_a_label(records: Records) -> None:
    record_store_state(
        StoreState(
            failed_jobs={"tenant-one": 1, "tenant-two": 2, "tenant-three": 3},
            listing_ages={"tenant-two": 10.0, "tenant-three": 90.0},
            tables={"chunks": TableSize(rows=7, dead_rows=2, bytes=8192)},
            bytes=9000,
            connections=3,
            connection_limit=100,
        )
    )
    assert {(name, *labels.values()): value for name, value, labels in records} == {
        ("orchestration_failed_jobs", "tenant-one"): 1,
        ("orchestration_failed_jobs", "other"): 5,
        ("orchestration_last_listing_age_seconds", "other"): 90.0,
        ("orchestration_store_table_rows", "chunks"): 7,
        ("orchestration_store_table_dead_rows", "chunks"): 2,
        ("orchestration_store_table_bytes", "chunks"): 8192,
        ("orchestration_store_bytes",): 9000,
        ("orchestration_store_connections",): 3,
        ("orchestration_store_connection_limit",): 100,
    }


def test_tenants_that_are_gone_have_no_failed_job_and_no_age(records: Records) -> None:
    previous = replace(EMPTY_STATE, failed_jobs={"tenant-one": 1}, listing_ages={"tenant-one": 9.0, "tenant-two": 9.0})
    record_store_state(replace(EMPTY_STATE, failed_jobs={}, listing_ages={"tenant-three": 7.0}), previous)
    ages = {labels["tenant_id"]: value for name, value, labels in records if "listing_age" in name}
    failed = {labels["tenant_id"]: value for name, value, labels in records if "failed_jobs" in name}
    assert (isnan(ages.pop("tenant-one")), ages, failed) == (True, {"other": 7.0}, {"tenant-one": 0})


def test_a_gauge_ends_when_it_is_set_to_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list[float]()
    monkeypatch.setattr("jobs.telemetry._register_metric", lambda _: lambda value, _: values.append(value))
    sink = RaySink()
    sink(LISTING_AGE, 5.0, {"tenant_id": "tenant-one"})
    sink(LISTING_AGE, nan, {"tenant_id": "tenant-one"})
    sink.set_again()
    assert values == [5.0]


def test_the_documents_of_a_job_are_counted_once_by_outcome(records: Records) -> None:
    ended = operation()
    ended.counts = {"listed": 9, "added": 6, "changed": 1, "completed": 5, "failed": 2, "same": 2, "deleted": 0}
    record_documents(ended)
    counts = {labels["outcome"]: value for _, value, labels in records}
    assert counts == {"completed": 5, "failed": 2, "same": 2}


def test_a_breaker_is_0_closed_1_half_open_2_open(records: Records) -> None:
    for state in ("closed", "half_open", "open"):
        record_breaker_state("reranker", state)  # type: ignore[arg-type]
    assert [value for _, value, _ in records] == [0, 1, 2]


def test_a_job_is_recorded_however_it_ends(records: Records) -> None:
    with reporting_operation(operation(), "job"):
        pass
    with pytest.raises(ModelError), reporting_operation(operation(), "job"):
        raise ModelError("no weights")
    with pytest.raises(SourceError), reporting_operation(operation(), "job"):
        raise SourceError("there is no such folder")
    with pytest.raises(BusyError), reporting_operation(operation(), "job"):
        raise BusyError("another job is at work")
    ended = [("ok",), ("error",), ("refused",), ("cancelled",)]
    assert of(records, "orchestration_operations_total", "status") == ended
    assert of(records, "orchestration_errors_total", "error_type") == [("ModelError",)]


def test_a_batch_is_recorded_in_its_stage_if_its_job_has_marks(records: Records) -> None:
    with reporting_batch({"operation": "ingest", "tenant": "tenant-one"}, "embed", {"documents": 3}):
        pass
    with reporting_batch({}, "embed", {"documents": 3}):
        pass
    assert of(records, "orchestration_stage_duration_seconds", "operation", "pipeline_stage", "status") == [
        ("ingest", "embed", "ok")
    ]
    assert [(value, labels["pipeline_stage"]) for metric, value, labels in records if "documents" in metric] == [
        (3, "embed")
    ]


def test_without_a_sink_nothing_is_recorded_and_nothing_fails() -> None:
    report_operation(operation(), "request", "ok")
