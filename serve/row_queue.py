"""Rows that a thread stores, so that no request waits for the store or fails with it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class RowQueue(Generic[T]):
    """Passes rows to `write` in a thread, all that wait at once, but at most `batch`. `write` must not raise."""

    def __init__(self, name: str, write: Callable[[Sequence[T]], None], batch: int) -> None:
        self._write, self._batch = write, batch
        self._executor = ThreadPoolExecutor(1, name)
        self._lock = Lock()
        self._waiting: list[T] = []
        self._writing: Future[None] | None = None

    def add(self, row: T, limit: int) -> bool:
        """Returns at once: False, without adding the row, if `limit` rows wait."""
        with self._lock:
            if len(self._waiting) >= limit:
                return False
            self._waiting.append(row)
            if self._writing is None:
                self._writing = self._executor.submit(self._write_waiting)
        return True

    def wait(self, timeout: float) -> None:
        """Waits until the rows that were added are written, at most `timeout` seconds."""
        with self._lock:
            writing = self._writing
        if writing:
            wait([writing], timeout)

    def close(self, timeout: float) -> Sequence[T]:
        """Waits like `wait`, then removes the rows that still wait, and returns them.

        The process waits for its threads when it exits. So without this, a store that does not answer would delay the
        exit by a timeout for each batch.
        """
        self.wait(timeout)
        with self._lock:
            rows, self._waiting = self._waiting, []
        return rows

    def _write_waiting(self) -> None:
        while rows := self._take_waiting():
            self._write(rows)

    def _take_waiting(self) -> list[T]:
        with self._lock:
            rows, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
            if not rows:
                self._writing = None  # under the lock, so that no row is added to a thread that ends
            return rows
