"""Timed parts of a request: the only place with timeouts, timings and degradation.

`recording()` collects the reports of all stages below it and holds them to one deadline; `stage()` is one of them;
`attempt()` is one that the request can do without.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar
from uuid import UUID

from rag_core.errors import RagError, StageTimeoutError, UsageError
from rag_core.telemetry.operation import CANCELLED, TIMEOUT, current_operation
from rag_core.telemetry.traces import begun, end_stage
from rag_core.types import StageReport

T = TypeVar("T")

NO_LIMITS: Mapping[str, float] = {}
HEADROOM = 0.01
"""Seconds by which a stage ends before the one around it, which can go on without it then. A thread that computes may
hold the event loop for 5 ms: both would be late at once."""


@dataclass(frozen=True, slots=True)
class _Recording:
    reports: list[StageReport] = field(default_factory=list)
    deadline: float = inf
    limits: Mapping[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)


@dataclass(slots=True)
class Stage:
    """One that is under way. Its report will have the `ranking` that it is given: what it let through, best first; and
    the `figures` that were `measured`."""

    ranking: tuple[UUID, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Limit:
    """Of a stage. `own` says whether it is one of its own; `around` is that of the nearest stage around with such."""

    timeout: asyncio.Timeout
    own: bool
    around: asyncio.Timeout | None

    @property
    def most(self) -> float:
        """Seconds that it could have from now on. A stage without one of its own ends with the one around."""
        return _left(self.around if self.own else None)


_recording: ContextVar[_Recording | None] = ContextVar("recording", default=None)
_parent: ContextVar[str] = ContextVar("parent", default="")
_stage: ContextVar[Stage | None] = ContextVar("stage", default=None)
_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def recording(timeout: float = inf, limits: Mapping[str, float] = NO_LIMITS) -> Iterator[list[StageReport]]:
    """The reports of the block's stages, in the order in which they ended. They share `timeout` seconds, and a stage
    that is named in `limits` has no more than these.

    The current operation gets them too.
    """
    recorded = _Recording(deadline=time.monotonic() + timeout, limits=limits)
    token = _recording.set(recorded)
    failure = ""
    try:
        yield recorded.reports
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        _recording.reset(token)
        if (operation := current_operation()) is not None:
            operation.stages += recorded.reports
            operation.failure = failure


@asynccontextmanager
async def stage(name: str, timeout: float = inf) -> AsyncIterator[Stage]:
    """StageTimeoutError after `timeout` seconds, at the deadline, or shortly before the stage around it would end; what
    runs in the block is cancelled then."""
    own = min(timeout, _current().limits.get(name, inf))
    bound = _around()
    allowed = max(0.0, min(own, _left(bound if own < inf else None)))
    parent, token, began = _parent.get(), _parent.set(name), time.perf_counter()
    error = error_type = ""
    limit = asyncio.timeout(None if allowed == inf else allowed)
    outer = _limit.set(_Limit(limit, own < inf, bound))
    here = Stage()
    around = _stage.set(here)
    span = begun(name)
    try:
        async with limit:
            yield here
    except TimeoutError as expired:
        if not limit.expired():  # of something in the block, which did not give it a name
            error, error_type = f"TimeoutError: {expired}", "TimeoutError"
            raise
        error, error_type = f"timeout after {allowed:.3f} s", TIMEOUT
        raise StageTimeoutError(name, allowed) from expired
    except asyncio.CancelledError:
        error, error_type = "cancelled", CANCELLED
        raise
    except BaseException as failed:
        error_type = type(failed).__name__
        error = str(failed) if isinstance(failed, RagError) else f"{type(failed).__name__}: {failed}"
        raise
    finally:
        _parent.reset(token)
        _limit.reset(outer)
        _stage.reset(around)
        seconds = time.perf_counter() - began
        report = StageReport(
            stage=name,
            seconds=seconds,
            error=error,
            parent=parent,
            ranking=here.ranking,
            figures=here.figures,
            began=began - _current().began,
            allowed=allowed,
            error_type=error_type,
        )
        _current().reports.append(report)
        end_stage(span, report)


async def attempt(
    name: str,
    work: Awaitable[T],
    otherwise: T,
    timeout: float = inf,
    ranking: Callable[[T], Iterable[UUID]] = lambda _: (),
) -> T:
    """The work's outcome, or `otherwise` if it fails in a named way or is late; the stage's report says which.

    A UsageError is raised: asking once more would not help. `ranking` of the outcome goes to the report.
    """
    try:
        async with stage(name, timeout) as here:
            outcome = await work
            here.ranking = tuple(ranking(outcome))
            return outcome
    except UsageError:
        raise
    except RagError:
        return otherwise


def skip(name: str, reason: str) -> None:
    """Reports a stage that the settings leave out."""
    began = time.perf_counter() - _current().began
    _current().reports.append(StageReport(stage=name, seconds=0.0, parent=_parent.get(), began=began, skipped=reason))


def measured(**figures: float) -> None:
    """For the report of the innermost stage around."""
    if (here := _stage.get()) is not None:
        here.figures.update(figures)


@contextmanager
def waiting() -> Iterator[float]:
    """What the block takes does not count against the innermost stage's own timeout, only against the deadline and the
    stage around it.

    Yields the seconds that the stage has left for its own work.
    """
    limit = _limit.get()
    when = limit.timeout.when() if limit else None
    if limit is None or when is None or limit.timeout.expired():
        yield inf
        return
    now = asyncio.get_running_loop().time
    left, most = when - now(), limit.most
    limit.timeout.reschedule(None if most == inf else now() + most)
    try:
        yield left
    finally:
        if not limit.timeout.expired():
            limit.timeout.reschedule(now() + min(left, limit.most))


def _around() -> asyncio.Timeout | None:
    """The timeout of the nearest stage around with a limit of its own."""
    if (limit := _limit.get()) is None:
        return None
    return limit.timeout if limit.own else limit.around


def _left(around: asyncio.Timeout | None) -> float:
    """Seconds until the deadline, or until the stage around, if it ends well before that, needs the rest for itself."""
    left = _current().deadline - time.monotonic()
    when = around.when() if around else None
    ends = inf if when is None else when - asyncio.get_running_loop().time()
    return ends - HEADROOM if ends < left - HEADROOM else left


def _current() -> _Recording:
    return _recording.get() or _Recording()
