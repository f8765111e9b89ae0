"""Work that is repeated in a separate thread while other work runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread


@contextmanager
def repeat_in_background(work: Callable[[], object], first_wait: float, join_timeout: float) -> Iterator[None]:
    """Repeats `work` in a thread while the block runs: first after `first_wait` seconds, then after waits that double.

    So the work takes a small share of a long block, and none of a short one. When the block ends, work in progress has
    `join_timeout` seconds to finish.
    """
    ended = Event()

    def repeat() -> None:
        for repetition in count():
            if ended.wait(first_wait * 2**repetition):
                return
            work()

    thread = Thread(target=repeat, daemon=True, name="repeat-in-background")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(join_timeout)
