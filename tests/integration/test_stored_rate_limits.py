"""Rate limits in the store: exact under concurrency, and charged completely or not at all."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from threading import Thread
from typing import TypeVar

import hypothesis.strategies as st
import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, example, given, settings
from targets import superuser

from rag_core.storage.postgres import Postgres
from rag_core.storage.rate_limits import Balance, Charge, RateLimiter

pytestmark = pytest.mark.postgres

T = TypeVar("T")

TENANT = "a-tenant"
STEP = 15
"""Seconds. The buckets of these tests have room for another operation every 60 s, so slow tests are exact too."""


def charge_of(cost: float = 1, user: str = "", burst: float = 3, need: float | None = None) -> Charge:
    return Charge(kind="searches", user=user, cost=cost, need=cost if need is None else need, per_minute=1, burst=burst)


def run(postgres: Postgres, work: Callable[[RateLimiter], Awaitable[T]]) -> T:
    async def call() -> T:
        limiter = RateLimiter(postgres)
        try:
            return await work(limiter)
        finally:
            await limiter.close()

    return asyncio.run(call())


def charge(postgres: Postgres, *charges: Charge, tenant: str = TENANT) -> list[Balance]:
    return run(postgres, lambda limiter: limiter.charge(tenant, charges))


def pass_time(postgres: Postgres, seconds: float) -> None:
    """Makes the buckets as old as if this time had passed."""
    with superuser(postgres) as connection:
        connection.execute(
            "update rag.rate_limits set measured_at = measured_at - make_interval(secs => %s)", [seconds]
        )


def clear(postgres: Postgres) -> None:
    with superuser(postgres) as connection:
        connection.execute("delete from rag.rate_limits")


def test_a_burst_is_admitted_and_the_next_operation_waits_for_the_rate(postgres: Postgres) -> None:
    clear(postgres)
    rooms = [charge(postgres, charge_of())[0] for _ in range(4)]
    assert [round(balance.room) for balance in rooms] == [2, 1, 0, 0]
    assert [round(balance.wait, -1) for balance in rooms] == [0, 0, 0, 60]
    pass_time(postgres, 60)
    assert charge(postgres, charge_of())[0].wait == 0


def test_a_refused_operation_costs_neither_its_tenant_nor_its_user(postgres: Postgres) -> None:
    clear(postgres)
    both = (charge_of(), charge_of(user="eve", burst=1))
    assert [balance.wait for balance in charge(postgres, *both)] == [0, 0]
    tenant, user = charge(postgres, *both)
    assert (round(tenant.room), tenant.wait, round(user.room)) == (2, 0, 0)
    assert user.wait > 0
    assert round(charge(postgres, charge_of())[0].room) == 1


def test_a_cost_above_the_burst_is_admitted_by_a_full_bucket_and_paid_later(postgres: Postgres) -> None:
    clear(postgres)
    large = charge_of(cost=5, need=3)
    assert round(charge(postgres, large)[0].room) == -2
    assert round(charge(postgres, charge_of())[0].wait, -1) == 180
    pass_time(postgres, 180)
    assert charge(postgres, large)[0].wait > 0
    assert charge(postgres, charge_of())[0].wait == 0


def test_a_cost_that_is_known_afterwards_is_always_charged(postgres: Postgres) -> None:
    clear(postgres)
    assert round(charge(postgres, charge_of(cost=7, need=-inf))[0].room) == -4
    assert charge(postgres, charge_of(cost=0, need=1))[0].wait > 0


def test_tenants_and_users_and_kinds_have_their_own_buckets(postgres: Postgres) -> None:
    clear(postgres)
    charge(postgres, charge_of(cost=3))
    assert charge(postgres, charge_of(), tenant="b-tenant")[0].wait == 0
    assert charge(postgres, charge_of(user="eve"))[0].wait == 0
    assert charge(postgres, charge_of())[0].wait > 0


def test_eight_threads_get_exactly_the_burst(postgres: Postgres) -> None:
    clear(postgres)
    admitted: list[int] = []
    both = (charge_of(burst=200), charge_of(burst=1_000, user="eve"))

    async def charge_sixty_times(limiter: RateLimiter) -> None:
        waits = [max(balance.wait for balance in await limiter.charge(TENANT, both)) for _ in range(60)]
        admitted.append(waits.count(0))

    threads = [Thread(target=run, args=(postgres, charge_sixty_times)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), sum(admitted)) == (8, 200)
    assert round(charge(postgres, charge_of(burst=1_000, user="eve", cost=0))[0].room) == 800


USERS = ("", "ada", "bob")
operations = st.lists(
    st.tuples(st.integers(0, 8), st.lists(st.sampled_from(USERS), min_size=1, unique=True), st.integers(0, 4)),
    max_size=12,
)


class Model:
    """The reference: for each user the operations that are still in its bucket, counted in exact time.

    A refusal is repeated until its wait is over. Its rooms do not count what other operations were charged since.
    """

    def __init__(self, burst: int) -> None:
        self.burst, self.levels, self.time = burst, dict.fromkeys(USERS, 0.0), 0.0
        self._refusals: dict[tuple[Sequence[str], int], tuple[float, list[float]]] = {}

    def charge(self, users: Sequence[str], cost: int) -> tuple[bool, list[float]]:
        """Whether the operation is admitted, and the rooms that are reported."""
        need, rooms = min(cost, self.burst), self._list_rooms(users)
        if min(rooms) >= need:
            for user in users:
                self.levels[user] += cost
            return True, self._list_rooms(users)
        refused_at, refused_rooms = self._refusals.setdefault((tuple(users), cost), (self.time, rooms))
        if self.time - refused_at >= 60 * (need - min(refused_rooms)):
            refused_at, refused_rooms = self._refusals[tuple(users), cost] = self.time, rooms
        return False, [min(self.burst, room + (self.time - refused_at) / 60) for room in refused_rooms]

    def _list_rooms(self, users: Sequence[str]) -> list[float]:
        return [self.burst - self.levels[user] for user in users]

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.levels = {user: max(0.0, level - seconds / 60) for user, level in self.levels.items()}


@settings(max_examples=scale_examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
@example([(0, [""], 3), (0, [""], 2), (4, [""], 1), (0, [""], 2)])
def test_the_store_admits_what_the_reference_admits(
    postgres: Postgres, steps: Sequence[tuple[int, list[str], int]]
) -> None:
    clear(postgres)
    model = Model(burst=3)

    async def replay(limiter: RateLimiter) -> None:
        passed = 0
        limiter._refusals.clock = lambda: time.monotonic() + passed
        for pause, users, cost in steps:
            passed += pause * STEP
            model.pass_time(pause * STEP)
            pass_time(postgres, pause * STEP)
            charges = [charge_of(cost, user, need=min(cost, 3)) for user in users]
            balances = await limiter.charge(TENANT, charges)
            is_admitted, rooms = model.charge(users, cost)
            assert (max(balance.wait for balance in balances) == 0) == is_admitted
            assert [balance.room for balance in balances] == pytest.approx(rooms, abs=0.25)

    run(postgres, replay)


def test_a_refusal_is_repeated_from_memory_until_its_wait_is_over(postgres: Postgres) -> None:
    clear(postgres)

    async def refuse(limiter: RateLimiter) -> list[float]:
        charges = [charge_of(cost=3)]
        await limiter.charge(TENANT, charges)
        first = await limiter.charge(TENANT, charges)
        clear(postgres)  # the store would admit it
        again = await limiter.charge(TENANT, charges)
        limiter._refusals.clock = lambda: time.monotonic() + first[0].wait
        return [balance.wait for balance in (*first, *again, *await limiter.charge(TENANT, charges))]

    first, again, admitted = run(postgres, refuse)
    assert 0 < again <= first
    assert admitted == 0
