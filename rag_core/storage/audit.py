"""The audit: one row for each change, and for each recorded read. Rows form a chain of hashes per tenant.

A change writes its row in its own transaction, as the last statement: the row exists exactly if the change does. Until
the commit, other writers of the tenant wait for the end of the chain.
"""

import os
import pwd
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.types.json import Jsonb

from rag_core.errors import StoreError
from rag_core.storage.postgres import LIMIT_TIME, transaction
from rag_core.telemetry.logs import query_hash
from rag_core.telemetry.operation import Operation, Status, current_operation

APPEND = "select append_audit(%(tenant)s, %(user)s, %(content)s)"
APPEND_ALL = """
select append_audit(%(tenant)s, e ->> 'user', e -> 'content') from jsonb_array_elements(%(entries)s) e"""

MAX_IDS = 1_000
"""The ids that a row holds of a change; the count of all is next to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to stored data. `ids` are those of resources of one kind, without names that people have chosen.

    `detail` has further facts, such as counts.
    """

    operation: str
    kind: str
    ids: Sequence[UUID | str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the audit before it is added to the chain."""

    tenant: str
    user: str
    content: Mapping[str, Any]


def record(connection: Connection, tenant: str, change: Change) -> None:
    """Adds the row of a change to the open transaction. Call it last: it locks the end of the tenant's chain."""
    operation = current_operation()
    content = {
        "operation": change.operation,
        "resource": {"kind": change.kind, "ids": [str(id) for id in change.ids[:MAX_IDS]], "count": len(change.ids)},
        "status": "ok",
        **({"detail": dict(change.detail)} if change.detail else {}),
        **(_describe_operation(operation) if operation else {}),
    }
    connection.execute(APPEND, {"tenant": tenant, "user": current_user(), "content": Jsonb(content)})
    if operation:
        operation.is_audited = True


def current_user() -> str:
    """The user of the current operation. Without one, the process works for an operator: the system's user.

    The environment is not read, because it could name somebody else.
    """
    if (operation := current_operation()) and operation.user:
        return operation.user
    try:
        return f"operator:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:  # a container can run as a number without a name
        return f"operator:{os.getuid()}"


def describe_read(operation: Operation, status: Status, detail: Mapping[str, Any]) -> Entry:
    """The row of a request that has ended and changed nothing, including of a refused one."""
    content = {
        "operation": operation.name,
        "resource": {"kind": operation.name, "ids": operation.resources, "count": len(operation.resources)},
        "documents": [str(id) for id in operation.documents],
        "status": status,
        "detail": {**detail, **({"question": query_hash(operation.query)} if operation.query else {})},
        **_describe_operation(operation),
    }
    return Entry(tenant=operation.tenant, user=operation.user, content=content)


def _describe_operation(operation: Operation) -> dict[str, Any]:
    return {
        "key_id": operation.key_id,
        "correlation_id": operation.correlation_id,
        "stages": [
            {"stage": report.stage, "ms": round(1000 * report.seconds, 1)}
            for report in operation.stages
            if not report.skipped
        ],
        "duration_ms": round(1000 * (time.perf_counter() - operation.started), 1),
    }


def append_entries(connection: Connection, tenant: str, entries: Sequence[Entry], timeout: float) -> None:
    """Adds the rows of one tenant in one transaction and one statement. Raises StoreError, and then adds none."""
    rows = [{"user": entry.user, "content": entry.content} for entry in entries]
    try:
        with transaction(connection, tenant):
            connection.execute(LIMIT_TIME, {"timeout_ms": round(1000 * timeout)})
            connection.execute(APPEND_ALL, {"tenant": tenant, "entries": Jsonb(rows)})
    except psycopg.Error as error:
        raise StoreError(f"the store refused rows of the audit: {str(error).strip()}") from error
