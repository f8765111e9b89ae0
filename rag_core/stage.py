"""Timed parts of a request: the only place with timeouts, timings and degradation.

`recording()` collects the reports of all stages below it and gives them one deadline; `stage()` is one of them;
`attempt()` is a stage that the request can do without.
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
from rag_core.telemetry.operation import current_operation
from rag_core.telemetry.traces import end_stage, start_span
from rag_core.types import StageReport

T = TypeVar("T")

NO_LIMITS: Mapping[str, float] = {}
HEADROOM = 0.01
"""Seconds by which a stage ends before its enclosing stage, which then has time to continue without it. A computing
thread can hold the event loop for 5 ms, so with no headroom both would be late at once."""


@dataclass(frozen=True, slots=True)
class _Recording:
    reports: list[StageReport] = field(default_factory=list)
    deadline: float = inf
    limits: Mapping[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)


@dataclass(slots=True)
class Stage:
    """A running stage. Its report will hold `ranking`, the chunks that it let through, best first, and `figures`."""

    ranking: tuple[UUID, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The timeout of a stage. `is_own`: set for this stage itself; `enclosing`: inherited from the nearest enclosing
    stage that has one of its own."""

    timeout: asyncio.Timeout
    is_own: bool
    enclosing: asyncio.Timeout | None

    @property
    def seconds_left(self) -> float:
        """The seconds that the stage could have from now on, its own timeout aside."""
        return _seconds_until(self.enclosing if self.is_own else None)


_recording: ContextVar[_Recording | None] = ContextVar("recording", default=None)
_parent: ContextVar[str] = ContextVar("parent", default="")
_stage: ContextVar[Stage | None] = ContextVar("stage", default=None)
_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def recording(timeout: float = inf, limits: Mapping[str, float] = NO_LIMITS) -> Iterator[list[StageReport]]:
    """Yields the reports of the block's stages, in the order in which they end.

    The stages share `timeout` seconds; `limits` holds the timeouts of single stages, in seconds, by name. The current
    operation receives the reports too.
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
    """Times the block and cancels it when its time is over.

    Raises StageTimeoutError after `timeout` seconds, at the deadline, or shortly before the enclosing stage would end,
    whichever comes first.
    """
    own = min(timeout, _current().limits.get(name, inf))
    enclosing = _enclosing_timeout()
    time_limit = max(0.0, min(own, _seconds_until(enclosing if own < inf else None)))
    limit = asyncio.timeout(None if time_limit == inf else time_limit)
    running = Stage()
    with _report(name, running, time_limit), _enter(name, running, _Limit(limit, own < inf, enclosing)):
        try:
            async with limit:
                yield running
        except TimeoutError as expired:
            if not limit.expired():  # something in the block timed out, without a name of ours
                raise
            raise StageTimeoutError(name, time_limit) from expired


async def attempt(
    name: str,
    work: Awaitable[T],
    otherwise: T,
    timeout: float = inf,
    ranking: Callable[[T], Iterable[UUID]] = lambda _: (),
) -> T:
    """Returns the result of `work`, or `otherwise` if it raises a RagError or times out; the report says which.

    A UsageError is raised: the same question would fail again. The stage's report holds `ranking` of the result.
    """
    try:
        async with stage(name, timeout) as running:
            result = await work
            running.ranking = tuple(ranking(result))
            return result
    except UsageError:
        raise
    except RagError:
        return otherwise


def skip_stage(name: str, reason: str) -> None:
    """Reports a stage that the settings leave out."""
    current = _current()
    started = time.perf_counter() - current.started
    current.reports.append(StageReport(stage=name, seconds=0.0, parent=_parent.get(), started=started, skipped=reason))


def record_figures(**figures: float) -> None:
    """Adds figures to the report of the innermost stage; does nothing outside a stage."""
    if (running := _stage.get()) is not None:
        running.figures.update(figures)


@contextmanager
def pause_timeout() -> Iterator[float]:
    """Stops the innermost stage's own timeout during the block: only the deadline and the enclosing stage still count.

    Yields the seconds that the stage has left for its own work.
    """
    limit = _limit.get()
    when = limit.timeout.when() if limit else None
    if limit is None or when is None or limit.timeout.expired():
        yield inf
        return
    now = asyncio.get_running_loop().time
    own_left, seconds_left = when - now(), limit.seconds_left
    limit.timeout.reschedule(None if seconds_left == inf else now() + seconds_left)
    try:
        yield own_left
    finally:
        if not limit.timeout.expired():
            limit.timeout.reschedule(now() + min(own_left, limit.seconds_left))


@contextmanager
def _report(name: str, running: Stage, time_limit: float) -> Iterator[None]:
    """Appends the report of the block to the current recording, however the block ends."""
    parent, started = _parent.get(), time.perf_counter()
    span = start_span(name)
    error = error_type = ""
    try:
        yield
    except BaseException as failure:
        error, error_type = _describe(failure, name), type(failure).__name__
        raise
    finally:
        current = _current()
        report = StageReport(
            stage=name,
            seconds=time.perf_counter() - started,
            error=error,
            parent=parent,
            ranking=running.ranking,
            figures=running.figures,
            started=started - current.started,
            time_limit=time_limit,
            error_type=error_type,
        )
        current.reports.append(report)
        end_stage(span, report)


def _describe(failure: BaseException, stage: str) -> str:
    match failure:
        case StageTimeoutError() if failure.stage == stage:
            return f"timeout after {failure.time_limit:.3f} s"
        case asyncio.CancelledError():
            return "cancelled"
        case RagError():
            return str(failure)
        case _:
            return f"{type(failure).__name__}: {failure}"


@contextmanager
def _enter(name: str, running: Stage, limit: _Limit) -> Iterator[None]:
    """Makes the stage the innermost one for the block."""
    tokens = _parent.set(name), _stage.set(running), _limit.set(limit)
    try:
        yield
    finally:
        _parent.reset(tokens[0])
        _stage.reset(tokens[1])
        _limit.reset(tokens[2])


def _enclosing_timeout() -> asyncio.Timeout | None:
    """The timeout of the nearest stage with a limit of its own, as seen by a new stage."""
    if (limit := _limit.get()) is None:
        return None
    return limit.timeout if limit.is_own else limit.enclosing


def _seconds_until(enclosing: asyncio.Timeout | None) -> float:
    """The seconds until the deadline, or until `HEADROOM` before the enclosing timeout if that is well before it."""
    left = _current().deadline - time.monotonic()
    when = enclosing.when() if enclosing else None
    enclosing_left = inf if when is None else when - asyncio.get_running_loop().time()
    return enclosing_left - HEADROOM if enclosing_left < left - HEADROOM else left


def _current() -> _Recording:
    return _recording.get() or _Recording()
