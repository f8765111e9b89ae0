"""A limit on the CPU time that a thread spends on one document. Long loops check it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rag_core.errors import DocumentError

_LIMIT: ContextVar[tuple[float, DocumentError] | None] = ContextVar("cpu_limit", default=None)
"""The CPU time of this thread at which the limit is reached, and the error then."""


@contextmanager
def limit_cpu(stage: str, seconds: float) -> Iterator[None]:
    """Limits the CPU time of this thread within the block; 0 seconds mean no limit."""
    error = DocumentError(stage, f"took longer than {seconds:g} s of CPU time", True)
    token = _LIMIT.set((time.thread_time() + seconds, error) if seconds else None)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check_cpu() -> None:
    """Raises DocumentError if the limit is reached."""
    limit = _LIMIT.get()
    if limit and time.thread_time() > limit[0]:
        raise limit[1]
