"""A circuit breaker: what failed several times in a row is not asked for a while.

closed ── 5 failures in a row ──> open ── its pause is over ──> half_open ── one call succeeds ──> closed
                                   ^                                 │
                                   └──── it fails: a longer pause ───┘
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from rag_core.errors import CircuitOpenError, OverloadedError, UsageError

State: TypeAlias = Literal["closed", "open", "half_open"]

FAILURES = 5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
MOST_DOUBLINGS = 6
"""Makes the longest pause; 1024, after a night, would be more than a float holds."""
_BLAMELESS = (UsageError, OverloadedError, CircuitOpenError)


def ignore_state(_state: State) -> None:
    pass


class Breaker:
    """Of what `name` says, for the calls of one event loop.

    Failures are exceptions, but for what the caller did wrong and for refusals because of load; a call that is
    cancelled says nothing either way. Pauses in seconds double from 1 to 60, and are shortened by up to a half, so that
    not all processes ask again at once. `clock` is in seconds, `jitter` from 0 to 1; `tell` hears of each new state.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_change: Callable[[State], None] = ignore_state,
    ) -> None:
        self.name, self._clock, self._jitter, self._tell = name, clock, jitter, on_change
        self._failures, self._openings = 0, 0
        self._changes = 0
        self._again_at = 0.0
        self._probing = False

    @property
    def state(self) -> State:
        if not self._openings:
            return "closed"
        return "open" if self._clock() < self._again_at else "half_open"

    @contextmanager
    def protect(self) -> Iterator[None]:
        """Around a call. CircuitOpenError, without making it, if it is open, or half open with a call under way."""
        probing, changes = self._admitted(), self._changes
        try:
            yield
        except _BLAMELESS:
            raise
        except Exception:
            if self._changes == changes:  # else the call began before, and says nothing new
                self._failed()
            raise
        else:
            if self._changes == changes:
                self._succeeded(probing)
        finally:
            self._probing = self._probing and not probing

    def _admitted(self) -> bool:
        """Whether it is the one that tries."""
        state = self.state
        if state == "open" or (state == "half_open" and self._probing):
            wait = max(0.0, self._again_at - self._clock())
            raise CircuitOpenError(f"{self.name} failed {FAILURES} times in a row: it is asked again in {wait:.1f} s")
        self._probing = state == "half_open"
        if self._probing:
            self._tell("half_open")
        return self._probing

    def _succeeded(self, probing: bool) -> None:
        self._failures = self._openings = 0
        self._changes += probing
        if probing:
            self._tell("closed")

    def _failed(self) -> None:
        self._failures += 1
        if self._openings or self._failures >= FAILURES:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._openings, MOST_DOUBLINGS))
            self._again_at = self._clock() + pause * (1 - self._jitter() / 2)
            self._openings += 1
            self._changes += 1
            self._tell("open")
