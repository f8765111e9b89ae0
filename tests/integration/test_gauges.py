"""The queue's depths, over a real store."""

from threading import Event, Thread

import pytest

from jobs.telemetry import poll_queue_depths
from rag_core.errors import StoreError
from rag_core.storage.gauges import queue_depths
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, Queue
from rag_core.telemetry.metrics import Labels, Metric, install_sink

pytestmark = pytest.mark.postgres

REQUEST = IngestRequest(collection="default", profile="default", settings={})


def enqueue(store: Postgres, tenant: str, jobs: int) -> None:
    with store.connect() as connection:
        for _ in range(jobs):
            Queue(connection, tenant).enqueue(REQUEST)


def test_jobs_that_have_not_ended_are_counted_by_tenant_and_status(store: Postgres) -> None:
    assert queue_depths(store) == {}
    enqueue(store, "tenant-one", 2)
    enqueue(store, "tenant-two", 1)
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set status = 'failed', started_at = now(), finished_at = now() where run = 1")
        connection.execute("update jobs set status = 'running', started_at = now() where run = 2")
    assert queue_depths(store) == {("tenant-one", "running"): 1, ("tenant-two", "queued"): 1}


def test_a_store_that_is_away_is_said_so() -> None:
    with pytest.raises(StoreError):
        queue_depths(Postgres("host=/nowhere"))


def test_depths_are_told_until_the_queue_has_ended_and_zero_when_it_is_empty(store: Postgres) -> None:
    told, ended = list[float](), Event()

    def keep(_metric: Metric, value: float, labels: Labels) -> None:
        told.append(value)
        if value == 0:
            ended.set()
        else:
            with store.connect("rag_worker") as connection:
                connection.execute("delete from jobs")

    enqueue(store, "default-tenant", 3)
    install_sink(keep)
    telling = Thread(target=poll_queue_depths, args=(store, ended, 0.01), daemon=True)
    telling.start()
    telling.join(20)
    assert not telling.is_alive()
    assert told == [3, 0]
