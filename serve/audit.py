"""The rows of requests in the audit. A thread writes them, because no reader should wait for the store once more.

A change is not written here: it writes its row itself, in its own transaction.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from rag_core.config import AuditedReads
from rag_core.storage.audit import Entry, append_entries, describe_read
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.metrics import record_dropped_audit_rows
from rag_core.telemetry.operation import ANONYMOUS, Operation, Status
from serve.row_queue import RowQueue

MAX_WAITING = 10_000
"""Rows that wait for the store; further ones are dropped, logged and counted in a metric."""
BATCH = 50
"""Rows of a transaction. Changes of the tenant wait until it is committed."""
WRITE_TIMEOUT = 5.0
"""Seconds for each statement that writes rows."""

_log = logging.getLogger(__name__)


class AuditLog:
    """Stores a row for each request that was identified and that changed nothing."""

    def __init__(self, postgres: Postgres, reads: AuditedReads) -> None:
        self._postgres = postgres
        self._skipped_users = {"never": None, "authenticated": {"", ANONYMOUS}, "always": {""}}[reads]
        self._queue = RowQueue("audit", self._write_rows, BATCH)

    def add(self, operation: Operation, status: Status, detail: Mapping[str, Any]) -> None:
        """Adds the row of a request that has ended. Returns at once, and raises nothing if the store is unavailable.

        A request without a caller has no tenant, so it is only in the logs.
        """
        if self._skipped_users is None or operation.user in self._skipped_users:
            return
        if operation.is_audited and status in ("ok", "degraded"):
            return
        entry = describe_read(operation, status, detail)
        if not self._queue.add(entry, MAX_WAITING):
            self._drop([entry], f"{MAX_WAITING} rows wait for the store")

    def wait(self, timeout: float) -> None:
        """Waits until the rows that were added are stored, at most `timeout` seconds."""
        self._queue.wait(timeout)

    def close(self, timeout: float) -> None:
        """Waits like `wait`, and drops the rows that still wait then."""
        rows = sorted(self._queue.close(timeout), key=attrgetter("tenant"))
        for _, group in groupby(rows, key=attrgetter("tenant")):
            self._drop(list(group), "the gateway ends")

    def _write_rows(self, entries: Sequence[Entry]) -> None:
        for tenant, group in groupby(sorted(entries, key=attrgetter("tenant")), key=attrgetter("tenant")):
            rows = list(group)
            try:
                with self._postgres.connect() as connection:
                    append_entries(connection, tenant, rows, WRITE_TIMEOUT)
            except Exception as error:  # noqa: BLE001 - the thread must go on with later rows, whatever fails
                self._drop(rows, str(error))

    def _drop(self, entries: Sequence[Entry], reason: str) -> None:
        _log.error("rows of the audit are lost (%d): %s", len(entries), reason)
        record_dropped_audit_rows(entries[0].tenant, len(entries))
