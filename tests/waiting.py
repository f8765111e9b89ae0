"""Waiting for conditions and for the end of processes."""

import time
from collections.abc import Callable

import psutil

TIMEOUT = 60.0
"""Seconds that a condition can take."""


def wait_until(is_true: Callable[[], bool], timeout: float = TIMEOUT) -> None:
    deadline = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < deadline, f"the condition was not met within {timeout:g} s"
        time.sleep(0.02)


def wait_for_end(process: int) -> None:
    """Waits until the process has ended or is a zombie. A signal takes a moment to arrive."""
    wait_until(lambda: not _alive(process))


def _alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
