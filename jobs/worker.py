"""The jobs of the queue, one after the other. Any number of workers share them, and none has a state of its own."""

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from jobs.ingest import AutoRunner
from jobs.runner import EVERYTHING
from jobs.telemetry import job_operation
from rag_core.config import Settings
from rag_core.errors import BusyError, FencedError, StoreError, UsageError
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import ATTEMPTS, Lease, Leases
from rag_core.wiring.ingestion import leased_settings, leased_sync

LEASE = 30.0
"""Seconds after which a job is another's, if its worker did not say that it lives."""
POLL = 1.0
"""Seconds between looks at the queue without being called: for jobs that wait for their time, and lost calls."""
AGAIN = 1.0
"""Seconds until the store is tried again that was away, and until a job that met another on its source."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a job is tried again that failed; with each attempt twice as many."""
SWEEP = 3600.0
"""Seconds between looks for bodies that nobody will ask for any more."""


class Worker:
    """Leases jobs and does them, until it is stopped. Nothing but `stop` and a bug ends `run`."""

    def __init__(self, settings: Settings, lease: float = LEASE, poll: float = POLL) -> None:
        self._settings, self._seconds, self._poll = settings, lease, poll
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = threading.Event()
        self._held: Lease | None = None
        self._bury_at = self._sweep_at = 0.0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._postgres = Postgres.open(self._settings.store.url)
                with self._postgres.connect("rag_worker") as connection:
                    self._work_off(Leases(connection, self._settings.tenant))
            except StoreError:
                self._stopping.wait(AGAIN)

    def stop(self) -> None:
        """Gives the job that is under way back to the queue at once: it writes nothing more here."""
        self._stopping.set()
        if lease := self._held:
            self._give_back(lease)

    def _work_off(self, leases: Leases) -> None:
        leases.listen()
        while not self._stopping.is_set():
            self._tidy(leases)
            if lease := leases.claim(self._name, self._seconds):
                self._do(lease)
            else:
                leases.wait(self._poll)

    def _tidy(self, leases: Leases) -> None:
        now = monotonic()
        if now >= self._bury_at:
            leases.bury()
            self._bury_at = now + self._poll
        if now >= self._sweep_at:
            leases.forget()
            self._sweep_at = now + SWEEP

    def _do(self, lease: Lease) -> None:
        with self._holding(lease):
            if self._stopping.is_set():
                self._give_back(lease)
                return
            try:
                self._ingest(lease)
            except FencedError:
                pass  # it was cancelled, or is somebody else's
            except BusyError as error:
                self._release(lease, AGAIN, error, counted=False)
            except UsageError as error:
                self._fail(lease, f"{type(error).__name__}: {error}")
            except Exception as error:  # noqa: BLE001 - also a bug: it must not end the loop
                self._try_again(lease, error)

    def _ingest(self, lease: Lease) -> None:
        asked = lease.request
        correlation_id = asked.correlation_id or str(lease.job)
        with job_operation(correlation_id, asked.traceparent, lease.tenant, asked.profile) as told:
            settings = leased_settings(self._settings, lease)
            report = leased_sync(settings, self._postgres, lease).run(AutoRunner(settings, EVERYTHING))
            told.counts = report.documents

    def _give_back(self, lease: Lease) -> None:
        self._settle(lambda leases: leases.release(lease, 0.0, "its worker was stopped", counted=False))

    def _try_again(self, lease: Lease, error: Exception) -> None:
        if lease.attempt < ATTEMPTS:
            wait = min(FIRST_WAIT * 2 ** (lease.attempt - 1), LONGEST_WAIT)
            self._release(lease, wait, error)
        else:
            self._fail(lease, f"dead letter: it failed {ATTEMPTS} times, at last with {type(error).__name__}: {error}")

    def _release(self, lease: Lease, wait: float, error: Exception, counted: bool = True) -> None:
        delay = wait * random.uniform(0.5, 1.5)  # noqa: S311 - so that workers do not come back together
        reason = f"{type(error).__name__}: {error}"
        self._settle(lambda leases: leases.release(lease, delay, reason, counted))

    def _fail(self, lease: Lease, reason: str) -> None:
        self._settle(lambda leases: leases.fail(lease, reason))

    def _settle(self, settle: Callable[[Leases], object]) -> None:
        """Where the store is away, the lease runs out by itself."""
        with suppress(StoreError), self._postgres.connect("rag_worker") as connection:
            settle(Leases(connection, self._settings.tenant))

    @contextmanager
    def _holding(self, lease: Lease) -> Iterator[None]:
        done = threading.Event()
        beating = threading.Thread(target=self._beat, args=(lease, done), daemon=True)
        self._held = lease
        beating.start()
        try:
            yield
        finally:
            self._held = None
            done.set()
            beating.join()

    def _beat(self, lease: Lease, done: threading.Event) -> None:
        """Until the job is done, or is not this worker's any more: then its next write will say so."""
        held = True
        while held and not done.wait(self._seconds / 3):
            with suppress(StoreError), self._postgres.connect("rag_worker") as connection:
                held = Leases(connection, self._settings.tenant).heartbeat(lease, self._seconds)
