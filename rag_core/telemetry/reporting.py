"""What is told when something has ended: its metrics and its log line."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rag_core.errors import BusyError, FencedError, UsageError
from rag_core.telemetry.logs import log_batch, log_operation
from rag_core.telemetry.metrics import record_batch, record_operation
from rag_core.telemetry.operation import Operation, Status, operating
from rag_core.telemetry.propagation import continuing_operation
from rag_core.telemetry.traces import NO_PARENT, span_of


def report_operation(operation: Operation, event: str, status: Status, level: int = logging.INFO) -> None:
    """Once, when the operation has ended."""
    seconds = time.perf_counter() - operation.started
    record_operation(operation, status, seconds)
    log_operation(operation, event, status, seconds, level)


@contextmanager
def reporting_operation(operation: Operation, event: str, parent: Mapping[str, str] = NO_PARENT) -> Iterator[Operation]:
    """The block is the operation; it is told of when it ends, however it does, and a span as long as it."""
    with operating(operation), span_of(operation, operation.name, parent):
        try:
            yield operation
        except BaseException as error:
            operation.failure = type(error).__name__
            report_operation(operation, event, _status(operation, error))
            raise
        report_operation(operation, event, operation.status)


def _status(operation: Operation, error: BaseException) -> Status:
    match error:
        case UsageError():
            return "refused"
        case BusyError() | FencedError():  # it is done at another time, or by another
            return "cancelled"
        case _:
            return operation.status


@contextmanager
def reporting_batch(values: Mapping[str, str], stage: str, counts: Mapping[str, int]) -> Iterator[None]:
    """The block is one batch in a stage of the job whose marks were `carried` here."""
    began, failure = time.perf_counter(), ""
    with continuing_operation(values, stage) as operation:
        try:
            yield
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            if operation:
                seconds = time.perf_counter() - began
                record_batch(operation, stage, seconds, failure)
                log_batch(stage, seconds, counts, failure)
