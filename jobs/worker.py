"""The worker that runs the jobs of the queue in turns, one at a time. Any number of workers can share the queue.

The whole state of a job is in the store, not in its worker.
"""

import ctypes
import gc
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic

from jobs.ingest import AutoRunner
from jobs.ray_connection import UNLIMITED
from jobs.telemetry import job_operation
from rag_core.config import Settings
from rag_core.errors import (
    BusyError,
    FencedError,
    LimitError,
    RagError,
    StoreError,
    TurnOverError,
    UsageError,
    describe_error,
)
from rag_core.ingestion.watch import Check
from rag_core.storage.ledger import fencing_error
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import MAX_ATTEMPTS, Lease, Leases
from rag_core.wiring.ingestion import build_lease_sync, settings_from_lease

SUPERVISION_SECONDS = 0.5
"""Seconds between two looks at the queue while a job runs."""
LEASE_SECONDS = 30.0
"""Seconds without a heartbeat after which another worker can take over a job."""
POLL_SECONDS = 1.0
"""Seconds between polls of the queue. A poll finds jobs whose delay has passed or whose notification was lost."""
RETRY_SECONDS = 1.0
"""Seconds until the next attempt if the store is unavailable, or if another job holds the source."""
FIRST_BACKOFF, MAX_BACKOFF = 1.0, 60.0
"""Seconds before a failed job is tried again. They double with each attempt."""
CLEANUP_SECONDS = 3600.0
"""Seconds between deletions of uploaded bodies that are too old for a retry."""


class Worker:
    """A worker that leases jobs and runs them. Only `stop` or a defect ends `run`."""

    def __init__(self, settings: Settings, lease_seconds: float = LEASE_SECONDS, poll_seconds: float = POLL_SECONDS):
        self._settings, self._lease_seconds, self._poll_seconds = settings, lease_seconds, poll_seconds
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = threading.Event()
        self._current_lease: Lease | None = None
        self._next_check = self._next_cleanup = 0.0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._postgres = Postgres.open(self._settings.store.url)
                with self._postgres.connect("rag_worker") as connection:
                    self._run_jobs(Leases(connection, self._settings.tenant))
            except StoreError:
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """Returns the running job to the queue at once; after that this worker writes nothing more for it."""
        self._stopping.set()
        if lease := self._current_lease:
            self._return_to_queue(lease)

    def _run_jobs(self, leases: Leases) -> None:
        leases.listen()
        while not self._stopping.is_set():
            now = monotonic()
            if now >= self._next_check:
                leases.fail_abandoned()
                self._next_check = now + self._poll_seconds
            if now >= self._next_cleanup:
                leases.delete_old_bodies(self._settings.retention.uploads)
                self._next_cleanup = now + CLEANUP_SECONDS
            if lease := leases.claim(self._name, self._lease_seconds):
                self._run_job(lease)
            else:
                leases.wait(self._poll_seconds)

    def _run_job(self, lease: Lease) -> None:
        """Syncs the sources of the job. The type of an error decides if the job fails or is queued again."""
        with self._supervise(lease) as check:
            if self._stopping.is_set():
                self._return_to_queue(lease)
                return
            try:
                self._sync(lease, check)
            except FencedError:
                pass  # the job was cancelled, or another worker has taken it over
            except BusyError as error:
                self._requeue(lease, RETRY_SECONDS, error, count_attempt=False)
            except UsageError as error:
                self._fail(lease, describe_error(error))
            except Exception as error:  # noqa: BLE001 - even a defect must not end the loop
                if lease.attempt < MAX_ATTEMPTS:
                    self._requeue(lease, min(FIRST_BACKOFF * 2 ** (lease.attempt - 1), MAX_BACKOFF), error)
                else:
                    last_error = describe_error(error)
                    self._fail(lease, f"dead letter: it failed {MAX_ATTEMPTS} times; the last error was {last_error}")
        release_memory()

    def _sync(self, lease: Lease, check: Check) -> None:
        request = lease.request
        correlation_id = request.correlation_id or str(lease.job)
        with job_operation(correlation_id, request.traceparent, lease.tenant, request.profile) as operation:
            settings = settings_from_lease(self._settings, lease)
            sync = build_lease_sync(settings, self._postgres, lease)
            sync = replace(sync, max_documents=self._settings.ingestion.queued_documents, check=check)
            try:
                operation.counts = sync.run(AutoRunner(settings, UNLIMITED)).documents
            except TurnOverError as error:  # within the operation, because it is no failure
                reason = str(error)
                self._update(lambda leases: leases.release(lease, 0.0, reason, count_attempt=False))

    def _return_to_queue(self, lease: Lease) -> None:
        self._update(lambda leases: leases.release(lease, 0.0, "its worker was stopped", count_attempt=False))

    def _requeue(self, lease: Lease, wait: float, error: Exception, count_attempt: bool = True) -> None:
        """Queues the job again, with a random delay between half and one and a half times `wait` seconds."""
        delay = wait * random.uniform(0.5, 1.5)  # noqa: S311 - workers should not all retry at the same time
        reason = describe_error(error)
        self._update(lambda leases: leases.release(lease, delay, reason, count_attempt))

    def _fail(self, lease: Lease, reason: str) -> None:
        self._update(lambda leases: leases.fail(lease, reason))

    def _update(self, change: Callable[[Leases], object]) -> None:
        """Applies a change to the queue. If the store is unavailable, the lease expires instead."""
        with suppress(StoreError), self._postgres.connect("rag_worker") as connection:
            change(Leases(connection, self._settings.tenant))

    @contextmanager
    def _supervise(self, lease: Lease) -> Iterator[Check]:
        """Renews the lease until the block ends. Yields a check that raises an error if the work must stop.

        That is FencedError if the job no longer belongs to this worker, TurnOverError if more urgent jobs wait, and
        LimitError if the job has worked for too long.
        """
        finished, started = threading.Event(), monotonic()
        reasons: list[RagError] = []

        def check() -> None:
            if reasons:
                raise reasons[0]

        def look() -> None:
            pause = min(SUPERVISION_SECONDS, self._lease_seconds / 3)
            next_heartbeat = started + self._lease_seconds / 3
            while not reasons and not finished.wait(pause):
                with suppress(StoreError), self._postgres.connect("rag_worker") as connection:
                    leases = Leases(connection, self._settings.tenant)
                    while not reasons:
                        if monotonic() >= next_heartbeat:
                            next_heartbeat = monotonic() + self._lease_seconds / 3
                            if not leases.heartbeat(lease, self._lease_seconds):
                                reasons.append(fencing_error(lease.job))
                        reasons.extend(self._find_reasons(leases, lease, monotonic() - started))
                        if finished.wait(pause):
                            return

        supervisor = threading.Thread(target=look, daemon=True)
        self._current_lease = lease
        supervisor.start()
        try:
            yield check
        finally:
            self._current_lease = None
            finished.set()
            supervisor.join()

    def _find_reasons(self, leases: Leases, lease: Lease, seconds: float) -> Iterator[RagError]:
        """Yields the reasons to stop a job that has worked for `seconds` in its turn."""
        ingestion = self._settings.ingestion
        worked = lease.worked_seconds + seconds
        if ingestion.queued_s and worked > ingestion.queued_s:
            yield LimitError(
                f"a queued job must work for at most {ingestion.queued_s:g} s (ingestion.queued_s), got {worked:.0f} s;"
                " a retry continues where it stopped"
            )
        if seconds > ingestion.turn_s and leases.is_turn_over(lease, ingestion.turn_s):
            yield TurnOverError("its turn ended: other jobs were waiting")


def release_memory() -> None:
    """Returns the memory of a job to the operating system. The C library keeps freed memory for later allocations."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # other C libraries have no such function
            ctypes.CDLL(None).malloc_trim(0)
