"""The operation that a process works on: one request, or its part of a job.

Log lines, metrics and spans take their labels from the current operation.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from uuid import UUID

from rag_core.types import StageReport

Status: TypeAlias = Literal["ok", "degraded", "refused", "timeout", "error", "cancelled"]

ANONYMOUS = "anonymous"
"""The user of a request whose caller was not authenticated."""
CANCELLED = "CancelledError"
TIMEOUT = "StageTimeoutError"
STATUS_BY_ERROR: Mapping[str, Status] = {CANCELLED: "cancelled", TIMEOUT: "timeout"}
"""The status by error type; other types have the status `error`."""


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation; its fields are filled in as their values become known.

    `name` is one of a few, because it is a label of metrics. `stages` are in the order in which they ended. `counts`
    holds the operation's results. `failure` is the type of the error that ended the last recording; empty if none did.
    `user` is empty if no caller was identified. `documents` are those whose contents or titles were read, and
    `resources` other ids that the request named. `is_audited`: a change of the operation has its row in the audit.
    """

    name: str
    correlation_id: str = ""
    tenant: str = ""
    user: str = ""
    key_id: str = ""
    profile: str = ""
    query: str = ""
    stages: list[StageReport] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    documents: dict[UUID, None] = field(default_factory=dict)
    resources: list[str] = field(default_factory=list)
    failure: str = ""
    is_audited: bool = False
    started: float = field(default_factory=time.perf_counter)

    @property
    def degraded(self) -> list[str]:
        """The stages that failed, each once. Cancelled ones are left out: another failure cancelled them."""
        failed = (report.stage for report in self.stages if report.error and report.error_type != CANCELLED)
        return list(dict.fromkeys(failed))

    @property
    def status(self) -> Status:
        """The status that follows from how the recordings ended."""
        if self.failure:
            return STATUS_BY_ERROR.get(self.failure, "error")
        return "degraded" if self.degraded else "ok"


_operation: ContextVar[Operation | None] = ContextVar("operation", default=None)


def current_operation() -> Operation | None:
    return _operation.get()


@contextmanager
def enter_operation(operation: Operation) -> Iterator[Operation]:
    """Makes this the current operation during the block."""
    token = _operation.set(operation)
    try:
        yield operation
    finally:
        _operation.reset(token)


def record_question(query: str) -> None:
    """Stores the question in the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.query = query


def record_caller(tenant: str, user: str, key_id: str) -> None:
    """Stores the caller in the current operation, if there is one. An empty user is anonymous."""
    if (operation := _operation.get()) is not None:
        operation.tenant, operation.user, operation.key_id = tenant, user or ANONYMOUS, key_id


def record_documents(documents: Iterable[UUID]) -> None:
    """Adds documents that were read to the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.documents.update(dict.fromkeys(documents))


def record_resource(id: str) -> None:
    """Adds an id that the request names to the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.resources.append(id)


def record_profile(profile: str) -> None:
    """Stores the profile in the current operation, if there is one."""
    if (operation := _operation.get()) is not None:
        operation.profile = profile
