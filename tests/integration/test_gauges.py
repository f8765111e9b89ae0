"""The gauges of the queue and of the store, over a real store."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread
from typing import LiteralString

import pytest
from psycopg.sql import SQL, Identifier
from targets import superuser

from jobs.telemetry import poll_store
from rag_core.errors import StoreError
from rag_core.storage.gauges import open_jobs, store_state
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, Queue
from rag_core.telemetry.metrics import QUEUE_DEPTH, STORE_UP, Labels, Metric, OpenJobs, Sink, install_sink

pytestmark = pytest.mark.postgres

REQUEST = IngestRequest(collection="default", profile="default", settings={})


def enqueue(store: Postgres, tenant: str, jobs: int) -> None:
    with store.connect() as connection:
        for _ in range(jobs):
            Queue(connection, tenant).enqueue(REQUEST)


def test_jobs_that_have_not_ended_are_counted_by_tenant_and_status(store: Postgres) -> None:
    assert open_jobs(store) == {}
    enqueue(store, "tenant-one", 2)
    enqueue(store, "tenant-two", 1)
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set status = 'failed', started_at = now(), finished_at = now() where run = 1")
        connection.execute("update jobs set status = 'running', started_at = now() where run = 2")
    jobs = open_jobs(store)
    assert {key: value.count for key, value in jobs.items()} == {
        ("tenant-one", "running"): 1,
        ("tenant-two", "queued"): 1,
    }


def test_a_queue_is_as_old_as_its_oldest_job(store: Postgres) -> None:
    enqueue(store, "tenant-one", 2)
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set created_at = now() - interval '700 seconds' where run = 1")
    assert 700 <= open_jobs(store)["tenant-one", "queued"].oldest < 1000


def test_only_running_jobs_that_a_runner_has_leased_have_an_age(store: Postgres) -> None:
    enqueue(store, "tenant-one", 1)
    enqueue(store, "tenant-two", 1)
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set status = 'running', started_at = now() - interval '700 seconds'")
        connection.execute("update jobs set lease_until = now() where tenant = 'tenant-one'")
    jobs = open_jobs(store)
    assert 700 <= jobs["tenant-one", "running"].oldest < 1000
    assert jobs["tenant-two", "running"] == OpenJobs(count=1, oldest=0.0)


def test_the_state_of_a_store_counts_failed_jobs_of_a_day_and_the_age_of_listings(store: Postgres) -> None:
    enqueue(store, "tenant-one", 3)
    enqueue(store, "tenant-two", 1)
    with store.connect("rag_worker") as connection:
        fail = "update jobs set status = 'failed', started_at = now(), finished_at = now() - %s where run = %s"
        connection.execute(fail, [timedelta(hours=23), 1])
        connection.execute(fail, [timedelta(hours=25), 2])
        connection.execute("insert into collections (tenant, name) values ('tenant-one', 'default')")
        for uri, days in (("file:/a", 1), ("file:/b", 3)):
            connection.execute(
                "insert into sources (tenant, collection, uri, listed_at) select tenant, id, %s, now() - %s"
                " from collections",
                [uri, timedelta(days=days)],
            )
    state = store_state(store)
    assert state.failed_jobs == {"tenant-one": 1}
    assert state.listing_ages == {"tenant-one": pytest.approx(86_400, abs=300)}
    assert state.tables["documents"].bytes > 8192
    assert state.bytes > sum(size.bytes for size in state.tables.values())
    assert 1 <= state.connections <= state.connection_limit


@pytest.mark.parametrize(
    "lock", ["lock table rag.vectors in access exclusive mode", "drop index rag.vectors_of_content"]
)
def test_a_table_with_an_exclusive_lock_is_left_out_and_not_waited_for(store: Postgres, lock: LiteralString) -> None:
    with store.connect("rag_owner") as other, other.transaction(force_rollback=True):
        other.execute(lock)
        tables = store_state(store).tables
    assert set(store_state(store).tables) - set(tables) == {"vectors"}


@pytest.mark.parametrize("read", [open_jobs, store_state])
def test_an_unreachable_store_is_reported(read: Callable[[Postgres], object]) -> None:
    with pytest.raises(StoreError):
        read(Postgres("host=/nowhere"))


def test_a_poll_reports_the_queue_until_it_has_ended_and_zero_when_it_is_empty(store: Postgres) -> None:
    depths, ended = list[float](), Event()

    def keep(metric: Metric, value: float, labels: Labels) -> None:
        if metric is not QUEUE_DEPTH or labels["pipeline_stage"] != "queued":
            return
        depths.append(value)
        if value == 0:
            ended.set()
        else:
            with store.connect("rag_worker") as connection:
                connection.execute("delete from jobs")

    enqueue(store, "default-tenant", 3)
    poll(store, keep, ended)
    assert depths == [3, 0]


@pytest.mark.parametrize("url", ["host=/nowhere", "file:/nowhere/dsn"])
def test_a_poll_reports_that_the_store_is_down(url: str) -> None:
    reported, ended = list[tuple[str, float]](), Event()

    def keep(metric: Metric, value: float, labels: Labels) -> None:
        reported.append((metric.name, value))
        ended.set()

    poll(Postgres(url), keep, ended)
    assert reported == [("orchestration_store_up", 0.0)]


def test_a_poll_goes_on_after_the_schema_was_away(store: Postgres) -> None:
    """The schema is missing while a restore runs, because it renames the schema."""
    reported, ended = list[float](), Event()
    rename: LiteralString = "alter schema {} rename to {}"
    with superuser(store) as connection:
        connection.execute(SQL(rename).format(Identifier("rag"), Identifier("away")))

        def keep(metric: Metric, value: float, labels: Labels) -> None:
            if metric is not STORE_UP:
                return
            reported.append(value)
            if value:
                ended.set()
            elif len(reported) == 1:
                connection.execute(SQL(rename).format(Identifier("away"), Identifier("rag")))

        poll(store, keep, ended)
    assert (reported[0], reported[-1]) == (0.0, 1.0)


def poll(store: Postgres, sink: Sink, ended: Event) -> None:
    install_sink(sink)
    polling = Thread(target=poll_store, args=(store, ended, 0.01), daemon=True)
    polling.start()
    polling.join(60)
    assert not polling.is_alive()
