"""The state of the gateway's dependencies: those that it requires, and those that it can do without."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic as time
from typing import Any, TypeAlias

from anyio import CapacityLimiter, to_thread

from rag_core.errors import OverloadedError, RagError, StageTimeoutError, StoreError
from rag_core.storage.postgres import Postgres
from serve.public_errors import hide_places

CHECK_TIMEOUT = 1.0
"""Seconds in which a dependency must respond."""

CACHE_SECONDS = 2.0
"""Seconds for which a result is reused, so that frequent probes cost nothing."""

_log = logging.getLogger(__name__)

Check: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyStatus:
    """`reason` is why the dependency is not `ok`; clients must not see it unchanged.

    `breaker` is the state of the dependency's circuit breaker, or empty if it has none.
    """

    ok: bool
    required: bool
    reason: str = ""
    breaker: str = ""

    def to_json(self) -> Mapping[str, Any]:
        details = {"reason": hide_places(self.reason), "breaker": self.breaker}
        return {"ok": self.ok, "required": self.required, **{key: value for key, value in details.items() if value}}


def no_breaker() -> str:
    return ""


class Dependency:
    """A service that the gateway calls. `required`: without it the gateway cannot answer any question.

    `check` is the cheapest call that shows if the dependency works; it raises RagError if it does not. `breaker`
    returns the state of the circuit breaker.
    """

    def __init__(self, check: Check, *, required: bool, breaker: Callable[[], str] = no_breaker) -> None:
        self._check, self._required, self._breaker = check, required, breaker
        self._checking = asyncio.Lock()
        self._reason, self._fresh_until = "", 0.0

    async def status(self) -> DependencyStatus:
        """The status, at most `CACHE_SECONDS` old. Takes at most `CHECK_TIMEOUT` seconds."""
        async with self._checking:
            if time() >= self._fresh_until:
                previous, self._reason = self._reason, await self._failure_reason()
                if self._reason and not previous:
                    _log.warning("a dependency is unavailable: %s", self._reason)
                self._fresh_until = time() + CACHE_SECONDS
        return DependencyStatus(
            ok=not self._reason, required=self._required, reason=self._reason, breaker=self._breaker()
        )

    async def _failure_reason(self) -> str:
        """The reason for which the check fails, or an empty string. A full queue is not a failure: it is only busy."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._check()
        except TimeoutError:
            return f"no response within {CHECK_TIMEOUT:g} s"
        except OverloadedError:
            return ""
        except RagError as error:
            return str(error)
        return ""


async def explain_timeout(store: Dependency, timeout: StageTimeoutError) -> RagError:
    """StoreError if a stage timed out because the store is unavailable, else the timeout itself."""
    status = await store.status()
    return timeout if status.ok else StoreError(status.reason)


def store_dependency(postgres: Postgres) -> Dependency:
    """The store as a dependency. Its check opens a connection; at most one thread waits for an unresponsive store."""
    one_thread = CapacityLimiter(1)

    async def check() -> None:
        await to_thread.run_sync(lambda: postgres.connect().close(), abandon_on_cancel=True, limiter=one_thread)

    return Dependency(check, required=True)
