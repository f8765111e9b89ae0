"""A circuit breaker: a dependency that failed several times in a row is not called for a while.

closed ── 5 failures in a row ──> open ── its pause is over ──> half_open ── one call succeeds ──> closed
                                   ^                                 │
                                   └── it fails: a longer pause ─────┘
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rag_core.errors import CircuitOpenError, OverloadedError, UsageError
from rag_core.telemetry.metrics import BreakerState

FAILURE_LIMIT = 5
FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
MAX_DOUBLINGS = 6
"""Enough doublings to reach the longest pause. Without this limit, a night of failures would overflow a float."""
_IGNORED_ERRORS = (UsageError, OverloadedError, CircuitOpenError)


def ignore_state(_state: BreakerState) -> None:
    pass


class Breaker:
    """The circuit breaker of one dependency, for the calls of one event loop. Messages call the dependency `name`.

    Every exception counts as a failure, except errors of the caller and rejections because of load. A cancelled call
    counts neither as a failure nor as a success. Pauses double from 1 second to `max_pause`. Each is shortened by up to
    half, so that processes do not all retry at the same moment. `clock` returns seconds, `jitter` a number from 0 to 1.
    `on_change` receives each new state.
    """

    def __init__(
        self,
        name: str,
        *,
        max_pause: float = MAX_PAUSE,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_change: Callable[[BreakerState], None] = ignore_state,
    ) -> None:
        self.name, self._clock, self._jitter, self._on_change = name, clock, jitter, on_change
        self._max_pause = max_pause
        self._failures, self._openings = 0, 0
        self._changes = 0
        self._retry_at = 0.0
        self._is_probing = False

    @property
    def state(self) -> BreakerState:
        if not self._openings:
            return "closed"
        return "open" if self._clock() < self._retry_at else "half_open"

    @contextmanager
    def protect(self) -> Iterator[None]:
        """Records whether the block, which makes one call, succeeds.

        Raises CircuitOpenError before the block if the breaker is open, or half open while another call is running.
        """
        is_probe, changes = self._admit_call(), self._changes
        try:
            yield
        except _IGNORED_ERRORS:
            raise
        except Exception:
            if self._changes == changes:  # a call from before the last change of state is out of date
                self._record_failure()
            raise
        else:
            if self._changes == changes:
                self._failures = self._openings = 0
                self._changes += is_probe
                if is_probe:
                    self._on_change("closed")
        finally:
            self._is_probing = self._is_probing and not is_probe

    def _admit_call(self) -> bool:
        """True if this call is the one that a half-open breaker allows. Raises CircuitOpenError if none is allowed."""
        state = self.state
        if state == "open" or (state == "half_open" and self._is_probing):
            wait = max(0.0, self._retry_at - self._clock())
            raise CircuitOpenError(
                f"{self.name} failed {FAILURE_LIMIT} times in a row; the next try is in {wait:.1f} s"
            )
        self._is_probing = state == "half_open"
        if self._is_probing:
            self._on_change("half_open")
        return self._is_probing

    def _record_failure(self) -> None:
        self._failures += 1
        if self._openings or self._failures >= FAILURE_LIMIT:
            pause = min(self._max_pause, FIRST_PAUSE * 2 ** min(self._openings, MAX_DOUBLINGS))
            self._retry_at = self._clock() + pause * (1 - self._jitter() / 2)
            self._openings += 1
            self._changes += 1
            self._on_change("open")
