"""Log lines: JSON objects on standard error, without personal data and secrets.

A process that does not call `configure_logs` prints nothing, as usual for a library that uses `logging`.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TextIO, TypeAlias

import structlog
from stamina.instrumentation import LoggingOnRetryHook, set_on_retry_hooks
from structlog.stdlib import BoundLogger, ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict

from rag_core.telemetry.operation import CANCELLED, Operation, Status, current_operation
from rag_core.telemetry.scrubbing import scrub, scrub_text
from rag_core.telemetry.traces import trace_ids

QueryMode: TypeAlias = Literal["hash", "full"]

PROGRAM_LOGGERS = ("rag_core", "jobs", "serve", "stamina")
"""The loggers whose records become log lines."""
MIN_QUERY_CHARS = 8
"""The length from which queries are hidden. Shorter ones are words that also occur in lines for other reasons."""
LEVELS: Mapping[Status, int] = {"error": logging.ERROR, "timeout": logging.WARNING}

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # without a handler, Python would print warnings itself
_log: BoundLogger = structlog.wrap_logger(
    _logger,
    processors=[structlog.stdlib.filter_by_level, ProcessorFormatter.wrap_for_formatter],
    wrapper_class=BoundLogger,
    cache_logger_on_first_use=True,
)
_format_traceback = logging.Formatter().formatException


def configure_logs(role: str, queries: QueryMode = "hash", stream: TextIO | None = None) -> None:
    """Turns on the log lines of the whole process. A second call replaces the settings of the first.

    `role` names the kind of process in every line. `queries` selects full queries or hashes.
    """
    set_on_retry_hooks([LoggingOnRetryHook])  # stamina's default hook for structlog would write to standard output
    handler = logging.StreamHandler(stream or sys.stderr)
    render = structlog.processors.JSONRenderer(ensure_ascii=False)
    handler.setFormatter(
        ProcessorFormatter(foreign_pre_chain=[ExtraAdder()], processors=[_LineBuilder(role, queries), render])
    )
    for name in PROGRAM_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


def disable_logs() -> None:
    for name in PROGRAM_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        if logger.level != logging.NOTSET:  # each change of a level clears the caches of all loggers
            logger.setLevel(logging.NOTSET)


def log_operation(operation: Operation, event: str, status: Status, seconds: float, level: int = logging.INFO) -> None:
    """Logs one line for an operation that has ended; before it, one line for each stage that failed."""
    level = max(level, LEVELS.get(status, 0))
    if not _logger.isEnabledFor(level):
        return
    for report in operation.stages:
        if report.error and report.error_type != CANCELLED and status != "refused":
            _log.warning(
                "stage failed",
                stage=report.stage,
                duration_ms=_to_ms(report.seconds),
                error_type=report.error_type,
                error=report.error,
            )
    ran = [report for report in operation.stages if not report.skipped]
    _log.log(
        level,
        event,
        operation=operation.name,
        profile=operation.profile,
        status=status,
        duration_ms=_to_ms(seconds),
        stages={report.stage: _to_ms(report.seconds) for report in ran},
        counts={**operation.counts, **{report.stage: len(report.ranking) for report in ran if report.ranking}},
        degraded=operation.degraded,
        error_type=operation.failure,
        query=operation.query,
    )


def log_batch(stage: str, seconds: float, counts: Mapping[str, int], failure: str = "") -> None:
    """Logs one batch in a stage of a job. `failure` is the type of its error, empty if it succeeded."""
    level = logging.WARNING if failure else logging.INFO
    _log.log(level, "batch", stage=stage, duration_ms=_to_ms(seconds), counts=dict(counts), error_type=failure)


def query_hash(query: str) -> str:
    """A hash that shows which queries are equal, without showing the query."""
    return "hash:" + blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()


def hide_query(text: str, query: str) -> str:
    """Replaces the query in a text by its hash: error messages can repeat it."""
    if len(query) < MIN_QUERY_CHARS or query not in text:
        return text
    return text.replace(query, query_hash(query))


def scrub_record(record: logging.LogRecord) -> bool:
    """A filter for other programs' loggers. Lets every record pass, scrubbed and without the question."""
    text = _format_traceback(record.exc_info) if record.exc_info else record.exc_text
    record.msg, record.args, record.exc_info = _scrub_message(record.getMessage()), (), None
    record.exc_text = _scrub_message(text) if text else None
    return True


@dataclass(frozen=True, slots=True)
class _LineBuilder:
    """A structlog processor that turns an event into the fields of a log line."""

    role: str
    queries: QueryMode

    def __call__(self, _wrapped: object, _method: str, fields: EventDict) -> EventDict:
        record: logging.LogRecord = fields.pop("_record")
        del fields["_from_structlog"]
        if exception := fields.pop("exc_info", None):
            fields["exception"] = _format_traceback(exception)
        query = fields.pop("query", "")
        operation, operation_fields = current_operation(), {}
        if operation:
            operation_fields = {
                "correlation_id": operation.correlation_id,
                "tenant": operation.tenant,
                "operation": operation.name,
            }
        return {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._clean_fields({"event": fields.pop("event"), **fields}, operation),
            **({"query": scrub_text(query) if self.queries == "full" else query_hash(query)} if query else {}),
            **operation_fields,
            **trace_ids(),
            "logger": record.name,
            "role": self.role,
        }

    def _clean_fields(self, fields: EventDict, operation: Operation | None) -> EventDict:
        """Scrubs the fields, hides the operation's query in them, and drops empty ones."""
        if self.queries != "full" and operation is not None:
            fields = {
                key: hide_query(value, operation.query) if isinstance(value, str) else value
                for key, value in fields.items()
            }
        clean: EventDict = scrub({key: value for key, value in fields.items() if value not in ("", {}, [], None)})
        return clean


def _scrub_message(text: str) -> str:
    operation = current_operation()
    return scrub_text(hide_query(text, operation.query) if operation else text)


def _to_ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
