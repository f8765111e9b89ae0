"""The metrics and the log line of operations and batches that have ended."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rag_core.errors import BusyError, FencedError, UsageError
from rag_core.telemetry.logs import log_batch, log_operation
from rag_core.telemetry.metrics import record_batch, record_operation
from rag_core.telemetry.operation import Operation, Status, enter_operation
from rag_core.telemetry.propagation import continuing_operation
from rag_core.telemetry.traces import NO_PARENT, operation_span


def report_operation(operation: Operation, event: str, status: Status, level: int = logging.INFO) -> None:
    """Records the metrics and the log line of an operation. Call it once, when the operation has ended."""
    seconds = time.perf_counter() - operation.started
    record_operation(operation, status, seconds)
    log_operation(operation, event, status, seconds, level)


@contextmanager
def reporting_operation(operation: Operation, event: str, parent: Mapping[str, str] = NO_PARENT) -> Iterator[Operation]:
    """Runs the block as the operation, in a span, and reports it when the block ends, even with an error."""
    with enter_operation(operation), operation_span(operation, operation.name, parent):
        try:
            yield operation
        except BaseException as error:
            operation.failure = type(error).__name__
            status = operation.status
            if isinstance(error, UsageError):
                status = "refused"
            elif isinstance(error, BusyError | FencedError):  # another job or another process does the work
                status = "cancelled"
            report_operation(operation, event, status)
            raise
        report_operation(operation, event, operation.status)


@contextmanager
def reporting_batch(values: Mapping[str, str], stage: str, counts: Mapping[str, int]) -> Iterator[None]:
    """Runs the block as one batch in a stage of a job. `values` are the job's `propagation_values`."""
    started, failure = time.perf_counter(), ""
    with continuing_operation(values, stage) as operation:
        try:
            yield
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            if operation:
                seconds = time.perf_counter() - started
                record_batch(operation, stage, seconds, counts.get("documents", 0), failure)
                log_batch(stage, seconds, counts, failure)
