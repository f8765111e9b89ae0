"""Waiting for what comes by itself."""

import time
from collections.abc import Callable

import psutil

TIMEOUT = 60.0
"""Seconds."""


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < deadline, f"not within {TIMEOUT:g} s"
        time.sleep(0.02)


def wait_for_end(process: int) -> None:
    """A signal that kills is on its way for a moment; and what nobody has reaped has ended, too."""
    wait_until(lambda: not _alive(process))


def _alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
