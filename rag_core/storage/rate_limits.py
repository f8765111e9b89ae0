"""Rate limits that all replicas share. See migration 0025 for their arithmetic."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import psycopg
from psycopg.rows import class_row
from psycopg_pool import PoolTimeout

from rag_core.errors import StoreError
from rag_core.storage.pools import assume_app_role, build_pool
from rag_core.storage.postgres import Postgres, redact_dsn

CHARGE = """
select room, wait from charge_rate_limits(%(tenant)s, %(users)s::text[], %(kinds)s::text[], %(needs)s::float8[],
  %(costs)s::float8[], %(rates)s::float8[], %(bursts)s::float8[])"""

CONNECTIONS = 4
"""Connections of a process. A charge takes less than a millisecond."""
PLANS_AND_TIMEOUT = " -c plan_cache_mode=auto -c statement_timeout=5s"
"""The statements of the function have one plan each. A new plan for each charge takes four times as long."""
MAX_REFUSALS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of an operation for one limit of its tenant, or of `user` if that is not empty.

    It is charged if the bucket has room for `need`, which is `cost` unless it is given. A cost that is larger than the
    bucket needs a need of at most `burst`; the operations after it then wait until the bucket has drained.
    """

    kind: str
    per_minute: float
    burst: float
    cost: float
    need: float
    user: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """The room that is left in a bucket, negative after a debt. `wait`: seconds until it has room for the need."""

    room: float
    wait: float

    def after(self, seconds: float, charge: Charge) -> Self:
        """The balance of the charge's bucket if nothing else is charged for some time."""
        room = min(charge.burst, self.room + seconds * charge.per_minute / 60)
        return replace(self, room=room, wait=max(self.wait - seconds, 0.0))


Operation: TypeAlias = tuple[str, tuple[Charge, ...]]
"""A tenant and all charges of a request."""


@dataclass(slots=True)
class RefusalMemory:
    """The refusals whose waits are not over.

    A bucket without room for an operation has none for the same operation until then, whatever other replicas charge.
    So a caller that ignores refusals costs the store little.
    """

    clock: Callable[[], float] = time.monotonic
    _refusals: dict[Operation, tuple[float, Sequence[Balance]]] = field(default_factory=dict)

    def find(self, operation: Operation) -> list[Balance]:
        """The balances of the refusal as they are now; none if there is no refusal, or if its waits are over."""
        refused_at, balances = self._refusals.pop(operation, (0.0, ()))
        passed = self.clock() - refused_at
        if all(balance.wait <= passed for balance in balances):
            return []
        self._refusals[operation] = refused_at, balances
        return [balance.after(passed, charge) for charge, balance in zip(operation[1], balances, strict=True)]

    def add(self, operation: Operation, balances: Sequence[Balance], refused_at: float) -> None:
        """Adds a refusal. If there are too many, the one that was not asked for longest is forgotten."""
        while len(self._refusals) >= MAX_REFUSALS:
            self._refusals.pop(next(iter(self._refusals)))
        self._refusals[operation] = refused_at, balances


class RateLimiter:
    """Charges the operations of all tenants. Its connections belong to the event loop that uses it first.

    `protect` surrounds each attempt to get a connection.
    """

    def __init__(self, postgres: Postgres, protect: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._protect, self._shown, self._refusals = protect, redact_dsn(postgres.dsn), RefusalMemory()
        self._pool = build_pool(postgres, PLANS_AND_TIMEOUT, assume_app_role, min_size=0, max_size=CONNECTIONS)

    async def charge(self, tenant: str, charges: Sequence[Charge]) -> list[Balance]:
        """Charges all, and returns their balances. If one has a wait, nothing was charged. Raises StoreError.

        The rooms of a refusal that is repeated from memory do not count what other operations were charged since.

        The buckets are locked in the order of the charges: always name kinds, and a tenant and its user, in the same
        order, and no bucket twice.
        """
        operation = tenant, tuple(charges)
        if refusal := self._refusals.find(operation):
            return refusal
        asked_at = self._refusals.clock()  # before the store measures, so that no refusal lasts too long
        balances = await self._charge(tenant, charges)
        if any(balance.wait > 0 for balance in balances):
            self._refusals.add(operation, balances, asked_at)
        return balances

    async def _charge(self, tenant: str, charges: Sequence[Charge]) -> list[Balance]:
        columns = {
            "users": [charge.user for charge in charges],
            "kinds": [charge.kind for charge in charges],
            "needs": [float(charge.need) for charge in charges],
            "costs": [float(charge.cost) for charge in charges],
            "rates": [charge.per_minute / 60 for charge in charges],
            "bursts": [float(charge.burst) for charge in charges],
        }
        try:
            with self._protect():
                await self._pool.open()
                async with self._pool.connection() as connection:
                    cursor = connection.cursor(row_factory=class_row(Balance))
                    return await (await cursor.execute(CHARGE, {"tenant": tenant, **columns})).fetchall()
        except (psycopg.Error, PoolTimeout) as error:
            raise StoreError(f"cannot use the store at {self._shown}: {str(error).strip()}") from error

    async def close(self) -> None:
        await self._pool.close()
