"""Batches of concurrent calls, for a model that computes one batch at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Call(Generic[T, R]):
    parts: Sequence[T]
    size: int
    rows: "asyncio.Future[R]"


class Batches(Generic[T, R]):
    """Joins calls that wait for a model, such as those that arrive while it is busy, into batches.

    `compute_batch` returns one row per part, in order. A batch ends before the call with which the sizes of its parts,
    which `measure` returns, exceed `limit`. A free model waits `wait` seconds for more calls, unless a batch is full.
    `limit` and `wait` can be changed, for later batches.

    Cancelled calls are not computed. If a batch fails, its calls are computed one by one, so that only the faulty ones
    fail. Use it with one event loop at a time.
    """

    def __init__(
        self,
        compute_batch: Callable[[Sequence[T]], Coroutine[Any, Any, R]],
        measure: Callable[[T], int],
        *,
        limit: int,
        wait: float = 0.0,
    ) -> None:
        self.limit, self.wait = limit, wait
        self._compute_batch, self._measure = compute_batch, measure
        self._waiting: list[_Call[T, R]] = []
        self._work: asyncio.Task[None] | None = None
        self._full: asyncio.Event | None = None

    async def compute(self, parts: Sequence[T]) -> R:
        """Returns the rows of the parts. They are in one batch, even if they exceed the limit."""
        call: _Call[T, R] = _Call(parts, sum(map(self._measure, parts)), asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._full and self._is_full():
            self._full.set()
        if self._work is None:
            # an empty context: the task serves many callers, so it belongs to no caller's operation
            self._work = asyncio.create_task(self._compute_waiting(), context=Context())
        return await call.rows

    async def compute_divided(self, parts: Sequence[T]) -> list[R]:
        """Returns the rows of the parts in order, in pieces within the limit. A part above it is one piece."""
        return await asyncio.gather(*map(self.compute, self._divide(parts)))

    async def _compute_waiting(self) -> None:
        try:
            while self._waiting:
                await self._wait_for_more()
                await self._compute_calls(self._take_batch())
        finally:
            self._work = None

    async def _wait_for_more(self) -> None:
        if not self.wait or self._is_full():
            return
        self._full = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.wait):
                await self._full.wait()
        self._full = None

    def _is_full(self) -> bool:
        return sum(call.size for call in self._waiting if not call.rows.done()) >= self.limit

    def _take_batch(self) -> list[_Call[T, R]]:
        """Removes the first waiting call, and as many of the following ones as fit in a batch."""
        waiting = [call for call in self._waiting if not call.rows.done()]
        batch, size = waiting[:1], sum(call.size for call in waiting[:1])
        for call in waiting[1:]:
            size += call.size
            if size > self.limit:
                break
            batch.append(call)
        self._waiting = waiting[len(batch) :]
        return batch

    async def _compute_calls(self, calls: Sequence[_Call[T, R]]) -> None:
        if not calls:
            return
        parts = [part for call in calls for part in call.parts]
        outcome: Any
        (outcome,) = await asyncio.gather(self._compute_batch(parts), return_exceptions=True)
        if not isinstance(outcome, BaseException):
            first = 0
            for call in calls:
                if not call.rows.done():
                    call.rows.set_result(outcome[first : first + len(call.parts)])
                first += len(call.parts)
        elif len(calls) > 1:
            for call in calls:
                await self._compute_calls([call])
        elif not calls[0].rows.done():
            calls[0].rows.set_exception(outcome)

    def _divide(self, parts: Sequence[T]) -> list[Sequence[T]]:
        """Divides the parts into pieces within the limit. The result has at least one piece."""
        pieces, start, size = [], 0, 0
        for position, part in enumerate(parts):
            size += self._measure(part)
            if size > self.limit and position > start:
                pieces.append(parts[start:position])
                start, size = position, self._measure(part)
        return [*pieces, parts[start:]]
