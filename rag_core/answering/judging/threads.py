"""Work that a judge does claim by claim, off the event loop."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from anyio import to_thread

T = TypeVar("T")
R = TypeVar("R")


async def map_in_thread(work: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """The results of `work`, in the order of the values, computed in one thread.

    A cancelled caller returns at once; the thread stops after the current value.
    """
    abandoned = Event()

    def work_through() -> list[R]:
        return [work(value) for value in values if not abandoned.is_set()]

    try:
        return await to_thread.run_sync(work_through, abandon_on_cancel=True)
    finally:
        abandoned.set()
