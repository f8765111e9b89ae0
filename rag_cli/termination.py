"""The end of a command by SIGTERM, which container platforms and service managers send: work stops at a safe point."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Sets the event when the process receives SIGTERM, and the events of the blocks around this one.

    Handlers of other programs, such as Ray's, which exits at once, are restored after the block and not called in it.
    """
    previous = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _Notification(stopping, previous if isinstance(previous, _Notification) else None))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass(frozen=True)
class _Notification:
    """A signal handler that sets its event and those of the blocks around it."""

    stopping: Event
    enclosing: "_Notification | None"

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()
        if self.enclosing:
            self.enclosing(number, frame)
