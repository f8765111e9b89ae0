"""Timed parts of a request: the only place with timeouts, timings and degradation.

`recording()` collects the reports of all stages below it and holds them to one deadline; `stage()` is one of them;
`attempt()` is one that the request can do without.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from rag_core.errors import RagError, StageTimeoutError
from rag_core.types import StageReport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Recording:
    reports: list[StageReport] = field(default_factory=list)
    deadline: float = inf


_recording: ContextVar[_Recording | None] = ContextVar("recording", default=None)
_parent: ContextVar[str] = ContextVar("parent", default="")


@contextmanager
def recording(timeout: float = inf) -> Iterator[list[StageReport]]:
    """The reports of the block's stages, in the order in which they ended. They share `timeout` seconds."""
    token = _recording.set(_Recording(deadline=time.monotonic() + timeout))
    try:
        yield _current().reports
    finally:
        _recording.reset(token)


@asynccontextmanager
async def stage(name: str, timeout: float = inf) -> AsyncIterator[None]:
    """StageTimeoutError after `timeout` seconds, or at the deadline; what runs in the block is cancelled then."""
    allowed = min(timeout, _current().deadline - time.monotonic())
    parent, token, began = _parent.get(), _parent.set(name), time.perf_counter()
    error = ""
    try:
        async with asyncio.timeout(None if allowed == inf else allowed) as limit:
            yield
    except TimeoutError as expired:
        if not limit.expired():  # of something in the block, which did not give it a name
            error = f"TimeoutError: {expired}"
            raise
        error = f"timeout after {allowed:.3f} s"
        raise StageTimeoutError(name, allowed) from expired
    except asyncio.CancelledError:
        error = "cancelled"
        raise
    except BaseException as failed:
        error = str(failed) if isinstance(failed, RagError) else f"{type(failed).__name__}: {failed}"
        raise
    finally:
        _parent.reset(token)
        seconds = time.perf_counter() - began
        _current().reports.append(StageReport(stage=name, seconds=seconds, error=error, parent=parent))


async def attempt(name: str, work: Awaitable[T], otherwise: T, timeout: float = inf) -> T:
    """The work's result, or `otherwise` if it fails in a named way or is late; the stage's report says which."""
    try:
        async with stage(name, timeout):
            return await work
    except RagError:
        return otherwise


def _current() -> _Recording:
    return _recording.get() or _Recording()
