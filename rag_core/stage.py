"""Timed parts of a request: their timeouts, their reports, and how a request continues without one of them.

`recording()` collects the reports of all stages in its block and gives them a common deadline. `stage()` runs a block
as one stage. `attempt()` runs work as a stage that the request can do without.
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

from rag_core.errors import RagError, StageTimeoutError, UsageError, describe_error
from rag_core.telemetry.operation import current_operation
from rag_core.telemetry.traces import end_stage, start_span
from rag_core.types import StageReport

T = TypeVar("T")

NO_LIMITS: Mapping[str, float] = {}
HEADROOM = 0.01
"""Seconds by which a stage with its own limit ends before its enclosing stage, which can then continue without it.

Another thread can delay the event loop by 5 ms. Without headroom, the loop could notice both timeouts in the same turn,
and the enclosing stage could not continue.
"""


@dataclass(slots=True)
class _Recording:
    """The reports so far, and what their stages share.

    `deadline` is a time of `time.monotonic`, `started` one of `time.perf_counter`. `limits` holds the timeouts of
    single stages, in seconds, by name.
    """

    reports: list[StageReport] = field(default_factory=list)
    deadline: float = inf
    limits: Mapping[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)


@dataclass(slots=True)
class Stage:
    """A running stage. Its report will have this `ranking`, chunk ids with the best first, and these `figures`."""

    ranking: tuple[UUID, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The timeout of a running stage.

    `is_own` is true if the stage has a limit of its own; otherwise `timeout` ends at the recording's deadline.
    `enclosing` is the timeout of the nearest enclosing stage with a limit of its own, if there is one.
    """

    timeout: asyncio.Timeout
    is_own: bool
    enclosing: asyncio.Timeout | None

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; with a limit of its own, at most those that the enclosing stage leaves."""
        return _seconds_until(self.enclosing if self.is_own else None)


_recording: ContextVar[_Recording | None] = ContextVar("recording", default=None)
_innermost_name: ContextVar[str] = ContextVar("innermost_name", default="")
_innermost_stage: ContextVar[Stage | None] = ContextVar("innermost_stage", default=None)
_innermost_limit: ContextVar[_Limit | None] = ContextVar("innermost_limit", default=None)


@contextmanager
def recording(timeout: float = inf, limits: Mapping[str, float] = NO_LIMITS) -> Iterator[list[StageReport]]:
    """Yields the reports of the block's stages, in the order in which they end.

    The stages share `timeout` seconds; `limits` holds the timeouts of single stages, in seconds, by name. When the
    block ends, the current operation receives the reports and the type of the block's error.
    """
    current = _Recording(deadline=time.monotonic() + timeout, limits=limits)
    token = _recording.set(current)
    failure = ""
    try:
        yield current.reports
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        _recording.reset(token)
        if (operation := current_operation()) is not None:
            operation.stages += current.reports
            operation.failure = failure


@asynccontextmanager
async def stage(name: str, timeout: float = inf) -> AsyncIterator[Stage]:
    """Times the block and cancels it when its time is over.

    Raises StageTimeoutError after `timeout` seconds, after the recording's limit for this name, or at the deadline. A
    stage with a limit of its own also ends shortly before the enclosing stage would. One without is cancelled with it.
    """
    own_limit = min(timeout, _current_recording().limits.get(name, inf))
    enclosing = _enclosing_timeout()
    time_limit = max(0.0, min(own_limit, _seconds_until(enclosing if own_limit < inf else None)))
    asyncio_timeout = asyncio.timeout(None if time_limit == inf else time_limit)
    running = Stage()
    with (
        _append_report(name, running, time_limit),
        _make_innermost(name, running, _Limit(asyncio_timeout, own_limit < inf, enclosing)),
    ):
        try:
            async with asyncio_timeout:
                yield running
        except TimeoutError as expired:
            if not asyncio_timeout.expired():  # the block raised this error itself; the stage's time was not over
                raise
            raise StageTimeoutError(name, time_limit) from expired


async def attempt(
    name: str,
    work: Awaitable[T],
    otherwise: T,
    timeout: float = inf,
    ranking: Callable[[T], Iterable[UUID]] = lambda _: (),
) -> T:
    """Returns the result of `work`, or `otherwise` if it raises a RagError or times out.

    The stage's report then has the error; without one it has the `ranking` of the result. A UsageError is passed on,
    because the request itself is wrong, and so is any error that is not a RagError.
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


def seconds_left() -> float:
    """The seconds until the recording's deadline, or until the enclosing stage with its own limit ends."""
    return max(0.0, _seconds_until(_enclosing_timeout()))


def leave_seconds(seconds: float) -> None:
    """Moves the recording's deadline so that the next stages have at least so much time."""
    current = _current_recording()
    current.deadline = max(current.deadline, time.monotonic() + seconds)


def skip_stage(name: str, reason: str) -> None:
    """Reports a stage that does not run, with the reason."""
    current = _current_recording()
    started = time.perf_counter() - current.started
    current.reports.append(
        StageReport(stage=name, seconds=0.0, parent=_innermost_name.get(), started=started, skipped=reason)
    )


def skip_stages(reasons: Mapping[str, str]) -> None:
    """Reports stages that do not run; `reasons` are by stage."""
    for name, reason in reasons.items():
        skip_stage(name, reason)


def record_figures(**figures: float) -> None:
    """Adds figures to the report of the innermost stage; does nothing outside a stage."""
    if (running := _innermost_stage.get()) is not None:
        running.figures.update(figures)


@contextmanager
def pause_timeout() -> Iterator[float]:
    """Stops the clock of the innermost stage's own timeout during the block.

    The block is for waiting that is not the stage's work, such as for a connection. The deadline and the enclosing
    stage still count. Yields the seconds that the stage has left. They are infinite if neither a limit of its own nor
    the deadline ends the stage, or if its time is already over.
    """
    limit = _innermost_limit.get()
    when = limit.timeout.when() if limit else None
    if limit is None or when is None or limit.timeout.expired():
        yield inf
        return
    loop = asyncio.get_running_loop()
    own_left, seconds_left = when - loop.time(), limit.seconds_left
    limit.timeout.reschedule(None if seconds_left == inf else loop.time() + seconds_left)
    try:
        yield own_left
    finally:
        if not limit.timeout.expired():
            limit.timeout.reschedule(loop.time() + min(own_left, limit.seconds_left))


@contextmanager
def _append_report(name: str, running: Stage, time_limit: float) -> Iterator[None]:
    """Times the block and appends its report to the current recording, even if the block raises."""
    parent, started = _innermost_name.get(), time.perf_counter()
    span = start_span(name)
    error = error_type = ""
    try:
        yield
    except BaseException as failure:
        error, error_type = _describe(failure, name), type(failure).__name__
        raise
    finally:
        current = _current_recording()
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


def _describe(failure: BaseException, name: str) -> str:
    match failure:
        case StageTimeoutError() if failure.stage == name:
            return f"timeout after {failure.time_limit:.3f} s"
        case asyncio.CancelledError():
            return "cancelled"
        case RagError():
            return str(failure)
        case _:
            return describe_error(failure)


@contextmanager
def _make_innermost(name: str, running: Stage, limit: _Limit) -> Iterator[None]:
    """Makes the stage the innermost one during the block."""
    tokens = _innermost_name.set(name), _innermost_stage.set(running), _innermost_limit.set(limit)
    try:
        yield
    finally:
        _innermost_name.reset(tokens[0])
        _innermost_stage.reset(tokens[1])
        _innermost_limit.reset(tokens[2])


def _enclosing_timeout() -> asyncio.Timeout | None:
    """The timeout of the innermost running stage with a limit of its own, if there is one."""
    if (limit := _innermost_limit.get()) is None:
        return None
    return limit.timeout if limit.is_own else limit.enclosing


def _seconds_until(enclosing: asyncio.Timeout | None) -> float:
    """The seconds until the recording's deadline, or until `HEADROOM` before the enclosing timeout.

    Callers pass None for a stage without a limit of its own: it is cancelled together with the enclosing stage. An
    enclosing stage that ends with the deadline, or less than `HEADROOM` before it, leaves no headroom. No stage has
    time to continue after the deadline.
    """
    deadline_left = _current_recording().deadline - time.monotonic()
    when = enclosing.when() if enclosing else None
    enclosing_left = inf if when is None else when - asyncio.get_running_loop().time()
    return enclosing_left - HEADROOM if enclosing_left < deadline_left - HEADROOM else deadline_left


def _current_recording() -> _Recording:
    """The current recording; outside of one, a new one without limits, whose reports are dropped."""
    return _recording.get() or _Recording()
