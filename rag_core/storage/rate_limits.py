"""Rate limits that all replicas share. See migration 0025 for their arithmetic."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg_pool import PoolTimeout

from rag_core.errors import StoreError
from rag_core.storage.pools import build_pool
from rag_core.storage.postgres import ASSUME_ROLE, Postgres, redact_dsn

CHARGE = """
select room, wait from charge_rate_limits(%(tenant)s, %(users)s::text[], %(kinds)s::text[], %(needs)s::float8[],
  %(costs)s::float8[], %(rates)s::float8[], %(bursts)s::float8[])"""

CONNECTIONS = 4
"""Connections of a process. A charge takes less than a millisecond."""
PLANS_AND_TIMEOUT = " -c plan_cache_mode=auto -c statement_timeout=5s"
"""The statements of the function have one plan each, so that it is not made again for each charge."""


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


class RateLimiter:
    """Charges the operations of all tenants. Its connections belong to the event loop that uses it first.

    `protect` surrounds each attempt to get a connection.
    """

    def __init__(self, postgres: Postgres, protect: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._protect, self._shown = protect, redact_dsn(postgres.dsn)
        self._pool = build_pool(postgres, PLANS_AND_TIMEOUT, _assume_role, min_size=0, max_size=CONNECTIONS)

    async def charge(self, tenant: str, charges: Sequence[Charge]) -> list[Balance]:
        """Charges all, and returns their balances. If one has a wait, nothing was charged. Raises StoreError."""
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


async def _assume_role(connection: AsyncConnection) -> None:
    await connection.execute(ASSUME_ROLE, {"role": "rag_app"})
