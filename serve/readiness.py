"""What the gateway cannot work without, or not well, and whether it is there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic as time
from typing import Any, TypeAlias

from anyio import CapacityLimiter, to_thread

from rag_core.errors import OverloadedError, RagError, StageTimeoutError, StoreError
from rag_core.storage.postgres import Postgres
from serve.public_errors import hide_store

PATIENCE = 1.0
"""Seconds that a dependency has to answer."""

KEPT = 2.0
"""Seconds that an answer holds, so that probes cost nothing, however many come."""

_log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """`reason` is why it is not `there`, in words that are not for clients; `breaker` is the state of the circuit to
    it, if there is one."""

    there: bool
    required: bool
    reason: str = ""
    breaker: str = ""

    def as_json(self) -> Mapping[str, Any]:
        told = {"reason": hide_store(self.reason), "breaker": self.breaker}
        return {"ok": self.there, "required": self.required, **{key: value for key, value in told.items() if value}}


def no_breaker() -> str:
    return ""


class Dependency:
    """`ask` is the smallest call that shows that it works, and raises RagError if it does not. Without one that is
    `required` no question can be answered."""

    def __init__(self, ask: Ask, *, required: bool, breaker: Callable[[], str] = no_breaker) -> None:
        self._ask, self._required, self._breaker = ask, required, breaker
        self._asking = asyncio.Lock()
        self._reason, self._until = "", 0.0

    async def presence(self) -> Presence:
        """Within `PATIENCE`, and not asked again for `KEPT` seconds."""
        async with self._asking:
            if time() >= self._until:
                before, self._reason = self._reason, await self._why_not()
                if self._reason and not before:
                    _log.warning("a dependency is away: %s", self._reason)
                self._until = time() + KEPT
        return Presence(there=not self._reason, required=self._required, reason=self._reason, breaker=self._breaker())

    async def _why_not(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._ask()
        except TimeoutError:
            return f"no answer within {PATIENCE:g} s"
        except OverloadedError:
            return ""  # it is there, and busy
        except RagError as error:
            return str(error)
        return ""


async def because_of(store: Dependency, late: StageTimeoutError) -> RagError:
    """StoreError if a stage ran out of its time because the store is away, else what it was late with."""
    found = await store.presence()
    return late if found.there else StoreError(found.reason)


def store_dependency(postgres: Postgres) -> Dependency:
    """At most one thread of this process waits for a store that does not answer."""
    one = CapacityLimiter(1)

    async def ask() -> None:
        await to_thread.run_sync(_ask_store, postgres, abandon_on_cancel=True, limiter=one)

    return Dependency(ask, required=True)


def _ask_store(postgres: Postgres) -> None:
    postgres.connect().close()
