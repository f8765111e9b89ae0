"""Jobs of the queue over HTTP: watched, cancelled and tried again."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, TypeVar
from uuid import UUID, uuid4

import gateways
import httpx2
import pytest
from drafts import TENANT
from gateways import build_services
from targets import superuser, wait_until_unlocked
from trees import hashing_settings, ingest, write

from rag_core.config import Settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, Lease, Leases, PushedDocument, Queue
from rag_core.wiring.ingestion import build_inline_runner, build_lease_sync, build_sync
from serve.authentication.caller import Caller
from serve.routes.job_events import JobNotifier, JobWatch
from serve.services import Services

pytestmark = pytest.mark.postgres

T = TypeVar("T")

ME, STRANGER = Caller(tenant=TENANT), Caller(tenant="another-tenant")
SETTINGS = hashing_settings(f"tenant={TENANT}")
NOTE = PushedDocument(id="a.md", body=b"# Keys\n\nThe keys are rotated.", url="https://example.org/keys")
TORN = PushedDocument(id="b.pdf", body=b"%PDF-1.7\n")
LISTENERS = "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen rag_events'"


def graph(store: Postgres) -> Services:
    return build_services(hashing_settings(f"tenant={TENANT}", f"store.url={store.dsn}", "answering.budget=none"))


def run_with_client(
    store: Postgres, work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]], who: Caller = ME
) -> T:
    return gateways.run_with_gateway(graph(store), work, who)


def request(store: Postgres, method: str, path: str, who: Caller = ME, **headers: str) -> httpx2.Response:
    return run_with_client(store, lambda client: client.request(method, path, headers=headers), who)


def frames(response: httpx2.Response) -> list[tuple[int, str, dict[str, Any]]]:
    parts = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in response.text.strip().split("\n\n")]
    return [(int(part["id"]), part["event"], json.loads(part["data"])) for part in parts]


def enter(store: Postgres, *documents: PushedDocument) -> UUID:
    frozen = SETTINGS.model_dump(mode="json", exclude={"store", "tenant"})
    ingest_request = IngestRequest(collection="default", profile="default", settings=frozen, documents=documents)
    with store.connect() as connection:
        return Queue(connection, TENANT).enqueue(ingest_request).job_id


@contextmanager
def claim_lease(store: Postgres) -> Iterator[tuple[Leases, Lease]]:
    with store.connect("rag_worker") as connection:
        leases = Leases(connection, TENANT)
        lease = leases.claim("a-test", 30)
        assert lease is not None
        yield leases, lease


def work(store: Postgres, settings: Settings = SETTINGS) -> None:
    with claim_lease(store) as (_, lease):
        build_lease_sync(settings, store, lease).run(build_inline_runner(settings))


def test_the_events_of_a_queued_job_begin_with_the_queue_and_report_each_failed_document(store: Postgres) -> None:
    job = enter(store, NOTE, TORN)
    work(store)
    events = frames(request(store, "GET", f"/v1/jobs/{job}/events"))
    assert [(number, name) for number, name, _ in events] == [
        (1, "job.queued"),
        (2, "job.started"),
        (3, "job.stage"),
        (4, "job.stage"),
        (5, "job.stage"),
        (6, "job.document"),
        (7, "job.progress"),
        (8, "job.stage"),
        (9, "job.stage"),
        (10, "job.stage"),
        (11, "job.completed"),
    ]
    assert [(body["stage"], body["status"]) for _, name, body in events if name == "job.stage"] == [
        (stage, status) for stage in ("listing", "working", "finishing") for status in ("running", "completed")
    ]
    document = events[5][2]["document"]
    assert (document["uri"], document["status"], document["stage"]) == ("push:///b.pdf", "failed", "parse")
    assert all(body["job_id"] == str(job) and body["total"] == 2 for _, _, body in events)
    again = frames(request(store, "GET", f"/v1/jobs/{job}/events", ME, **{"Last-Event-ID": "5"}))
    assert again == events[5:]
    stages = request(store, "GET", f"/v1/jobs/{job}").json()["stages"]
    assert {"read", "parse", "embed"} <= stages.keys()
    assert all(stage["started_at"] <= stage["finished_at"] for stage in stages.values())


def test_the_figures_of_an_event_are_of_one_moment(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    id = enter(store, NOTE, TORN)
    read_job = Ledger.job

    def finish_after_read(ledger: Ledger, job: str) -> dict[str, Any]:
        row = read_job(ledger, job)
        monkeypatch.undo()
        work(store)
        return row

    monkeypatch.setattr(Ledger, "job", finish_after_read)
    update = JobWatch(services=graph(store), caller=ME, job_id=id, notifier=JobNotifier(store)).read_update(-1)
    figures = json.loads(update.texts[0].split("data: ")[1])
    assert (figures["done"], figures["total"], figures["failed"]) == (2, 2, 1)


def test_a_document_that_the_caller_cannot_read_is_not_reported(store: Postgres) -> None:
    job = enter(store, NOTE, TORN)
    work(store)
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}' where uri = 'push:///b.pdf'")
    for groups, names in (((), []), (("staff",), ["job.document"])):
        events = frames(request(store, "GET", f"/v1/jobs/{job}/events", Caller(tenant=TENANT, groups=groups)))
        assert [name for _, name, _ in events if name == "job.document"] == names


def test_a_queued_job_is_shown_and_cancelled(store: Postgres) -> None:
    job = enter(store, NOTE)
    body = request(store, "GET", f"/v1/jobs/{job}").json()
    assert (body["status"], body["collection"], body["started_at"]) == ("queued", "default", None)
    assert body["created_at"] is not None
    assert request(store, "GET", "/v1/jobs").json()["data"][0]["status"] == "queued"
    assert request(store, "POST", f"/v1/jobs/{job}/cancel").json()["status"] == "cancelled"
    assert [name for _, name, _ in frames(request(store, "GET", f"/v1/jobs/{job}/events"))] == [
        "job.queued",
        "job.cancelled",
    ]


@contextmanager
def run_until_killed(store: Postgres, folder: Path, events: int = 3) -> Iterator[UUID]:
    """A job of the command with so many events. It is killed at the end of the block."""
    work = build_sync(SETTINGS, store, [str(write(folder, {"keys.md": "# Keys\n\nThe keys are rotated."}))])
    with store.connect() as connection:
        catalog, ledger = Catalog(connection, TENANT), Ledger(connection, TENANT)
        collection = catalog.ensure_collection(work.collection)
        sources = catalog.ensure_sources(collection, [source.uri for source in work.sources])
        ledger.claim(collection.id, sources)
        job = ledger.begin(collection.id, sources, work.profile, work.settings, 0, []).id
        if events > 3:
            ledger.record_finishing(job, 0)
        yield job
    wait_until_unlocked(store)


@pytest.mark.parametrize("events", [3, 5])
def test_a_killed_job_has_failed_and_its_watchers_receive_that_event_once(
    store: Postgres, tmp_path: Path, events: int
) -> None:
    def list_events(last: int | None = None) -> list[tuple[int, str]]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        response = request(store, "GET", f"/v1/jobs/{job}/events", ME, **headers)
        return [] if response.status_code == 204 else [(number, name) for number, name, _ in frames(response)]

    with run_until_killed(store, tmp_path, events) as job:
        assert request(store, "GET", f"/v1/jobs/{job}").json()["status"] == "running"
    body = request(store, "GET", f"/v1/jobs/{job}").json()
    assert (body["status"], body["reason"], body["finished_at"]) == ("failed", "interrupted", None)
    (row,) = request(store, "GET", "/v1/jobs").json()["data"]
    assert (row["status"], row["reason"]) == ("failed", "interrupted")

    stages = [(number, "job.stage") for number in range(1, events + 1)]
    all_events = [(0, "job.started"), *stages, (events + 1, "job.failed")]
    assert [list_events(), list_events(0), list_events(events), list_events(events + 1)] == [
        all_events,
        all_events[1:],
        all_events[-1:],
        [],
    ]
    ingest(store, tmp_path, settings=SETTINGS)  # the next sync of its source ends it
    assert [list_events(), list_events(events), list_events(events + 1)] == [all_events, all_events[-1:], []]


def test_a_job_that_was_killed_is_tried_again(store: Postgres, tmp_path: Path) -> None:
    with run_until_killed(store, tmp_path) as killed:
        assert request(store, "POST", f"/v1/jobs/{killed}/retry").status_code == 422
    response = request(store, "POST", f"/v1/jobs/{killed}/retry")
    assert response.status_code == 202
    work(store)
    assert request(store, "GET", f"/v1/jobs/{response.json()['job_id']}").json()["counts"]["completed"] == 1
    assert request(store, "GET", f"/v1/jobs/{killed}").json()["finished_at"] is not None


def test_a_job_that_lost_the_store_does_not_reveal_its_address(store: Postgres) -> None:
    job = enter(store, NOTE)
    with store.connect() as connection:
        Ledger(connection, TENANT).end(job, "failed", "StoreError: cannot reach the store at host=harbour: refused")
    body = request(store, "GET", f"/v1/jobs/{job}").json()
    assert body["reason"] == "StoreError: the store cannot be reached"
    *_, (_, name, end) = frames(request(store, "GET", f"/v1/jobs/{job}/events"))
    assert (name, end["reason"]) == ("job.failed", body["reason"])


def test_too_many_watchers_are_told_to_retry_and_an_end_makes_room(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = BoundedSemaphore(1)
    monkeypatch.setattr("serve.routes.job_events._watchers", places)
    monkeypatch.setattr("serve.routes.job_events.POLL_SECONDS", 0.05)
    ended, watched = enter(store, NOTE), enter(store, TORN)
    with store.connect() as connection:
        Ledger(connection, TENANT).end(ended, "cancelled")

    async def watch(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        watching = asyncio.create_task(client.get(f"/v1/jobs/{watched}/events"))
        while places.acquire(blocking=False):
            places.release()
            await asyncio.sleep(0.01)
        refused = await client.get(f"/v1/jobs/{ended}/events")
        await client.post(f"/v1/jobs/{watched}/cancel")
        return [refused, await watching, await client.get(f"/v1/jobs/{ended}/events")]

    refused, complete, after = run_with_client(store, watch)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["code"] == "overloaded"
    assert [name for _, name, _ in frames(complete)] == ["job.queued", "job.cancelled"]
    assert after.status_code == 200


def test_a_stream_ends_after_a_while_and_goes_on_where_it_ended(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.routes.job_events.MAX_WATCH_SECONDS", 0.0)
    job = enter(store, NOTE)
    assert [name for _, name, _ in frames(request(store, "GET", f"/v1/jobs/{job}/events"))] == ["job.queued"]
    work(store)
    later_events = frames(request(store, "GET", f"/v1/jobs/{job}/events", ME, **{"Last-Event-ID": "1"}))
    assert [name for _, name, _ in later_events][-1] == "job.completed"


def test_a_dead_letter_is_tried_again_as_a_job_of_its_own(store: Postgres) -> None:
    dead = enter(store, NOTE)
    with claim_lease(store) as (leases, lease):
        leases.fail(lease, "a test")
    response = request(store, "POST", f"/v1/jobs/{dead}/retry")
    body = response.json()
    job = body["job_id"]
    assert (response.status_code, response.headers["location"]) == (202, f"/v1/jobs/{job}")
    assert (body["status"], body["documents"]) == ("queued", 1)
    assert body["links"] == {"self": f"/v1/jobs/{job}", "events": f"/v1/jobs/{job}/events"}
    work(store)
    assert request(store, "GET", f"/v1/jobs/{job}").json()["counts"]["completed"] == 1
    assert request(store, "POST", f"/v1/jobs/{dead}/retry").status_code == 404


def test_a_job_that_has_not_ended_or_does_not_exist_is_not_tried_again(store: Postgres) -> None:
    job = enter(store, NOTE)
    refused = request(store, "POST", f"/v1/jobs/{job}/retry")
    assert refused.status_code == 422
    assert "is queued" in refused.json()["detail"]
    assert request(store, "POST", f"/v1/jobs/{job}/retry", STRANGER).status_code == 404
    assert request(store, "POST", f"/v1/jobs/{uuid4()}/retry").status_code == 404


def test_a_source_link_leads_to_the_url_that_the_request_named(store: Postgres) -> None:
    enter(store, NOTE)
    work(store)

    async def search(client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.post("/v1/retrieve", json={"query": "keys rotated"})

    (hit,) = run_with_client(store, search).json()["results"]
    assert hit["url"] == "https://example.org/keys"


def test_all_watchers_are_woken_over_one_connection(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.routes.job_events.POLL_SECONDS", 60.0)
    job = enter(store, NOTE)

    async def read_names(watch: JobWatch) -> list[str]:
        update = await asyncio.to_thread(watch.read_update, -1)
        async with aclosing(watch.stream_texts(update)) as updates:
            return [frame.split("event: job.")[1].split("\n")[0] async for frame in updates]

    async def watch_ten_times() -> tuple[list[list[str]], list[int]]:
        notifier = JobNotifier(store)
        watching = [
            asyncio.create_task(read_names(JobWatch(services=graph(store), caller=ME, job_id=job, notifier=notifier)))
            for _ in range(10)
        ]
        counts = [await count_listeners(store, 1)]
        await asyncio.to_thread(work, store)
        name_lists = await asyncio.wait_for(asyncio.gather(*watching), 30)
        return name_lists, [*counts, await count_listeners(store, 0)]

    name_lists, counts = asyncio.run(watch_ten_times())
    stages = ["stage"] * 3
    assert name_lists == [["queued", "started", *stages, "progress", *stages, "completed"]] * 10
    assert counts == [1, 0]


async def count_listeners(store: Postgres, expected: int) -> int:
    """Waits until as many connections listen, or some seconds, and returns their number."""
    count = -1
    for _ in range(100):
        with superuser(store) as connection:
            (count,) = connection.execute(LISTENERS).fetchone() or (-1,)
        if count == expected:
            break
        await asyncio.sleep(0.05)
    return count


def test_a_watcher_receives_events_after_the_connection_was_lost(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.routes.job_events.POLL_SECONDS", 0.2)
    job = enter(store, NOTE)

    async def watch_through_loss() -> list[str]:
        watch = JobWatch(services=graph(store), caller=ME, job_id=job, notifier=JobNotifier(store))
        received = []
        async with aclosing(watch.stream_texts(await asyncio.to_thread(watch.read_update, -1))) as updates:
            received.append(await anext(updates))
            watching = asyncio.create_task(anext(updates))
            assert await count_listeners(store, 1) == 1
            with superuser(store) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and query = 'listen rag_events'"
                )
            assert await count_listeners(store, 1) == 1
            with store.connect() as connection:
                Ledger(connection, TENANT).end(job, "cancelled")
            received.append(await asyncio.wait_for(watching, 30))
        return received

    assert [
        "event: job.queued" in frame or "event: job.cancelled" in frame for frame in asyncio.run(watch_through_loss())
    ] == [
        True,
        True,
    ]
