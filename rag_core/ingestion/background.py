"""Work that goes on beside other work, in a thread of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread


@contextmanager
def now_and_then(work: Callable[[], object], first: float, patience: float) -> Iterator[None]:
    """While the block runs: after `first` seconds, and again after waits that double, so that it is a small share of a
    long block and none of a short one. At the end work that is under way has `patience` seconds to end."""
    ended = Event()

    def repeat() -> None:
        for times in count():
            if ended.wait(first * 2**times):
                return
            work()

    thread = Thread(target=repeat, daemon=True, name="now-and-then")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience)
