"""A worker for the queued jobs of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.worker import Worker
from rag_core.config import Settings


@contextmanager
def run_worker(settings: Settings) -> Iterator[None]:
    """Runs a worker in a thread until the block ends."""
    worker = Worker(settings, poll_seconds=0.1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()
