"""Somebody who does what is queued."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.worker import Worker
from rag_core.config import Settings


@contextmanager
def run_worker(settings: Settings) -> Iterator[None]:
    """Until the block ends, in a thread."""
    worker = Worker(settings, poll_seconds=0.1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()
