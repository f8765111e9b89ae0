"""A clock that tests set: seconds of asyncio pass only while an event loop waits, and then at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from anyio import to_thread

from rag_core import stage
from rag_core.answering import pipeline

T = TypeVar("T")
run_sync = to_thread.run_sync


class Clock(selectors.SelectSelector):
    """The time of an event loop, and the stand-in for the module `time` in what runs on it.

    While worker threads run, no time passes. It does not suit work with sockets, which are not waited for.
    """

    now = 0.0
    threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads and timeout != 0:
            return super().select()
        self.now += timeout or 0.0
        return super().select(0)

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(self)
        loop.time = self.monotonic  # type: ignore[method-assign]
        return loop

    async def run_in_thread(self, *arguments: Any, **options: Any) -> Any:
        self.threads += 1
        try:
            return await run_sync(*arguments, **options)
        finally:
            self.threads -= 1


def run_on_clock(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a clock that stages and pipelines read too. No time passes on it while code runs."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=clock.loop) as runner:
        patch.setattr(to_thread, "run_sync", clock.run_in_thread)
        for module in (stage, pipeline):
            patch.setattr(module, "time", clock)
        return runner.run(work)
