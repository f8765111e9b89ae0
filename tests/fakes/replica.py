"""The replica context that `serve.batch` requires, for tests that run it in their own process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest


@contextmanager
def replica_context() -> Iterator[None]:
    """Replaces the replica context.

    Collects Serve's queues at the end: a queue that is collected outside of a loop would open a new one.
    """
    context = SimpleNamespace(_deployment_config=SimpleNamespace(max_ongoing_requests=100_000))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ray.serve.get_replica_context", lambda: context)
        patched.delattr("ray.serve.batching._BatchQueue.__del__")
        yield
        gc.collect()
