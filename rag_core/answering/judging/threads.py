"""Work that a judge does claim by claim, off the event loop."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from anyio import to_thread

T = TypeVar("T")
R = TypeVar("R")


async def each(work: Callable[[T], R], given: Sequence[T]) -> list[R]:
    """In the order given, in a thread. A caller who is cancelled goes at once, and the work ends with the one at
    hand."""
    abandoned = Event()

    def worked() -> list[R]:
        return [work(one) for one in given if not abandoned.is_set()]

    try:
        return await to_thread.run_sync(worked, abandon_on_cancel=True)
    finally:
        abandoned.set()
