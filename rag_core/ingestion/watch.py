"""The watch over a running job, which stops the work when the job has been cancelled or taken over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TypeAlias
from uuid import UUID

from rag_core.errors import StoreError
from rag_core.storage.ledger import Ledger, fencing_error
from rag_core.storage.postgres import Postgres

POLL_SECONDS = 0.5

Check: TypeAlias = Callable[[], None]
"""Raises an error if the work must stop. Runners call it at least once per batch, from any thread."""


def never_stop() -> None:
    """The check of work that nobody can stop."""


@contextmanager
def watch_job(
    postgres: Postgres, tenant: str, job: UUID, fence: int, on_end: Callable[[], object] = never_stop
) -> Iterator[Check]:
    """Yields a check that raises FencedError once the job has ended or has another fence.

    A thread reads the state of the job. It calls `on_end` as soon as it sees the end. While the store is unavailable,
    the job counts as running. A block that is shorter than a poll needs no connection.
    """
    stopped, finished = Event(), Event()

    def poll() -> None:
        while not finished.wait(POLL_SECONDS):
            with suppress(StoreError), postgres.connect() as connection:
                while Ledger(connection, tenant).is_open(job, fence):
                    if finished.wait(POLL_SECONDS):
                        return
                stopped.set()
                on_end()
                return

    def check() -> None:
        if stopped.is_set():
            raise fencing_error(job)

    thread = Thread(target=poll, daemon=True, name="watch-job")
    thread.start()
    try:
        yield check
    finally:
        finished.set()
        thread.join(POLL_SECONDS)
