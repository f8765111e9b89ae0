"""Log lines: one JSON object each, on standard error, without what identifies people or opens doors.

A process that has not asked for them logs nothing: only what a library always may, through `logging`.
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
from rag_core.types import StageReport

Queries: TypeAlias = Literal["hash", "full"]

OURS = ("rag_core", "jobs", "serve", "stamina")
"""Whose records become lines."""
SHORTEST_QUERY = 8
"""Characters: shorter ones are words that stand in lines for other reasons, too."""
LEVELS: Mapping[Status, int] = {"error": logging.ERROR, "timeout": logging.WARNING}

_quiet = logging.getLogger(__name__)
_quiet.addHandler(logging.NullHandler())  # else Python prints warnings where nobody has asked for log lines
_log: BoundLogger = structlog.wrap_logger(
    _quiet,
    processors=[structlog.stdlib.filter_by_level, ProcessorFormatter.wrap_for_formatter],
    wrapper_class=BoundLogger,
    cache_logger_on_first_use=True,
)
_traceback = logging.Formatter().formatException


def configure_logs(role: str, queries: Queries = "hash", stream: TextIO | None = None) -> None:
    """From now on, of the whole process: `role` says which of the program's processes it is. A second call takes the
    place of the first."""
    set_on_retry_hooks([LoggingOnRetryHook])  # with structlog there, stamina would write to standard output
    lines = logging.StreamHandler(stream or sys.stderr)
    render = structlog.processors.JSONRenderer(ensure_ascii=False)
    lines.setFormatter(ProcessorFormatter(foreign_pre_chain=[ExtraAdder()], processors=[_Line(role, queries), render]))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [lines], False
        logger.setLevel(logging.INFO)


def disable_logs() -> None:
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)


def log_operation(operation: Operation, event: str, status: Status, seconds: float, level: int = logging.INFO) -> None:
    """One line when it has ended, and one before for each stage that went wrong."""
    level = max(level, LEVELS.get(status, 0))
    if not _quiet.isEnabledFor(level):
        return
    for report in operation.stages:
        if report.error and report.error_type != CANCELLED and status != "refused":
            _log_failed_stage(report)
    ran = [report for report in operation.stages if not report.skipped]
    _log.log(
        level,
        event,
        operation=operation.name,
        profile=operation.profile,
        status=status,
        duration_ms=_ms(seconds),
        stages={report.stage: _ms(report.seconds) for report in ran},
        counts={**operation.counts, **{report.stage: len(report.ranking) for report in ran if report.ranking}},
        degraded=operation.degraded,
        error_type=operation.failure,
        query=operation.query,
    )


def log_batch(stage: str, seconds: float, counts: Mapping[str, int], failure: str = "") -> None:
    """One batch in a stage of a job; `failure` is the type of what it raised."""
    level = logging.WARNING if failure else logging.INFO
    _log.log(level, "batch", stage=stage, duration_ms=_ms(seconds), counts=dict(counts), error_type=failure)


def query_hash(query: str) -> str:
    """Equal for equal queries, so that one can be followed and counted without being read."""
    return "hash:" + blake2b(query.encode("utf-8", "replace"), digest_size=8).hexdigest()


def scrub_record(record: logging.LogRecord) -> bool:
    """A filter for loggers of other programs: every record passes, clean and without the question."""
    text = _traceback(record.exc_info) if record.exc_info else record.exc_text
    record.msg, record.args, record.exc_info = _scrub_message(record.getMessage()), (), None
    record.exc_text = _scrub_message(text) if text else None
    return True


@dataclass(frozen=True, slots=True)
class _Line:
    """From what was said to what is written."""

    role: str
    queries: Queries

    def __call__(self, _logger: object, _method: str, said: EventDict) -> EventDict:
        record: logging.LogRecord = said.pop("_record")
        del said["_from_structlog"]
        if exception := said.pop("exc_info", None):
            said["exception"] = _traceback(exception)
        asked = said.pop("query", "")
        operation = current_operation()
        return {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **_clean_fields(self._without_query({"event": said.pop("event"), **said}, operation)),
            **self._query(asked),
            **(_operation_fields(operation) if operation else {}),
            **trace_ids(),
            "logger": record.name,
            "role": self.role,
        }

    def _query(self, asked: str) -> EventDict:
        if not asked:
            return {}
        return {"query": scrub_text(asked) if self.queries == "full" else query_hash(asked)}

    def _without_query(self, said: EventDict, operation: Operation | None) -> EventDict:
        if self.queries == "full" or operation is None:
            return said
        return {
            key: _hide_query(each, operation.query) if isinstance(each, str) else each for key, each in said.items()
        }


def _clean_fields(said: EventDict) -> EventDict:
    """Clean, and without what is empty."""
    clean: EventDict = scrub({key: each for key, each in said.items() if each not in ("", {}, [], None)})
    return clean


def _operation_fields(operation: Operation) -> EventDict:
    return {"correlation_id": operation.correlation_id, "tenant": operation.tenant, "operation": operation.name}


def _log_failed_stage(report: StageReport) -> None:
    _log.warning(
        "stage failed",
        stage=report.stage,
        duration_ms=_ms(report.seconds),
        error_type=report.error_type,
        error=report.error,
    )


def _scrub_message(text: str) -> str:
    operation = current_operation()
    return scrub_text(_hide_query(text, operation.query) if operation else text)


def _hide_query(text: str, query: str) -> str:
    """An error's text may repeat what was asked."""
    if len(query) < SHORTEST_QUERY or query not in text:
        return text
    return text.replace(query, query_hash(query))


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
