"""What a process works on: one request, or its part of a job.

Everything that is told of the work (log lines, metrics, spans) takes from here what it belongs to.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rag_core.types import StageReport

Status: TypeAlias = Literal["ok", "degraded", "refused", "timeout", "error", "cancelled"]

CANCELLED = "CancelledError"
TIMEOUT = "StageTimeoutError"
FAILED: Mapping[str, Status] = {CANCELLED: "cancelled", TIMEOUT: "timeout"}
"""By the type of what failed; any other is an error."""


@dataclass(slots=True, kw_only=True)
class Operation:
    """`name` is one of few, since metrics are labelled with it. Who works on it enters the rest as it becomes known:
    `stages` in the order in which they ended, in `counts` what came of it, in `failure` the type of what ended the last
    recording."""

    name: str
    correlation_id: str = ""
    tenant: str = ""
    profile: str = ""
    query: str = ""
    stages: list[StageReport] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: str = ""
    started: float = field(default_factory=time.perf_counter)

    @property
    def degraded(self) -> list[str]:
        """Stages that went wrong, each once; one that was only cancelled followed from something else."""
        wrong = (report.stage for report in self.stages if report.error and report.error_type != CANCELLED)
        return list(dict.fromkeys(wrong))

    @property
    def status(self) -> Status:
        """As its recordings ended."""
        if self.failure:
            return FAILED.get(self.failure, "error")
        return "degraded" if self.degraded else "ok"


_operation: ContextVar[Operation | None] = ContextVar("operation", default=None)


def current_operation() -> Operation | None:
    return _operation.get()


@contextmanager
def operating(operation: Operation) -> Iterator[Operation]:
    """What is told of in the block belongs to the operation."""
    token = _operation.set(operation)
    try:
        yield operation
    finally:
        _operation.reset(token)


def record_question(query: str) -> None:
    """In the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.query = query


def record_tenant(tenant: str) -> None:
    """In the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.tenant = tenant
