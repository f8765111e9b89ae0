"""The end of a command by SIGTERM, which container platforms and service managers send: work stops at a safe point."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from types import FrameType

from rag_core.errors import StoppedError
from rag_core.ingestion.watch import Check, never_stop


@contextmanager
def stop_on_sigterm() -> Iterator[Check]:
    """Yields a check that raises StoppedError once the process has received SIGTERM.

    In a thread other than the main one, which cannot handle signals, the check never raises it.
    """
    if current_thread() is not main_thread():
        yield never_stop
        return
    stopping = Event()

    def check() -> None:
        if stopping.is_set():
            raise StoppedError("stopped by SIGTERM; the next sync continues where this one stopped")

    with notify_on_sigterm(stopping):
        yield check


@contextmanager
def notify_on_sigterm(stopping: Event) -> Iterator[None]:
    """Sets the event when the process receives SIGTERM, and then calls the handler of an enclosing block."""
    enclosing = signal.getsignal(signal.SIGTERM)

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if callable(enclosing):
            enclosing(number, frame)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, enclosing)
