"""The time of a charge to the rate limits of a search, beside that of a `select 1` over the same kind of connection.

A charge is one call for the tenant's and the user's limit. Both kinds of calls take turns. Several callers share one
tenant, and so one row.

    python -m benchmarks.rate_limits
    python -m benchmarks.rate_limits --calls 5000 --callers 1 8
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
import uvloop

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.storage.pools import build_pool
from rag_core.storage.postgres import Postgres
from rag_core.storage.rate_limits import CONNECTIONS, PLANS_AND_TIMEOUT, Charge, RateLimiter

CHARGES = [
    Charge(kind="searches", user=user, cost=1, need=1, per_minute=1e9, burst=1e9)  # none is refused
    for user in ("", "ada")
]


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        uvloop.run(_compare(Postgres.open(dsn), arguments))


async def _compare(postgres: Postgres, arguments: argparse.Namespace) -> None:
    async def configure(_connection: object) -> None:
        """Leaves the connection as it is."""

    pool = build_pool(postgres, PLANS_AND_TIMEOUT, configure, min_size=0, max_size=CONNECTIONS)
    limiter = RateLimiter(postgres)

    async def select() -> None:
        async with pool.connection() as connection:
            await (await connection.execute("select 1")).fetchall()

    async def charge() -> None:
        await limiter.charge("a-tenant", CHARGES)

    await pool.open()
    print(f"{'callers':>7} {'select p50 ms':>14} {'charge p50 ms':>14} {'ratio':>6} {'charge p99 ms':>14}")
    try:
        for callers in arguments.callers:
            times: dict[str, list[float]] = {"select": [], "charge": []}
            for _ in range(10):
                for name, call in (("select", select), ("charge", charge)):
                    times[name] += await _time_calls(call, callers, arguments.calls // 10)
            selected, charged = (np.percentile(times[name], [50, 99]) for name in ("select", "charge"))
            print(
                f"{callers:7} {selected[0]:14.3f} {charged[0]:14.3f} {charged[0] / selected[0]:6.2f} {charged[1]:14.3f}"
            )
    finally:
        await limiter.close()
        await pool.close()


async def _time_calls(call: Callable[[], Awaitable[None]], callers: int, calls: int) -> list[float]:
    """The milliseconds of each call."""
    milliseconds: list[float] = []

    async def call_repeatedly() -> None:
        for _ in range(calls // callers):
            began = time.perf_counter()
            await call()
            milliseconds.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*(call_repeatedly() for _ in range(callers)))
    return milliseconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8])
    return parser.parse_args()


if __name__ == "__main__":
    main()
