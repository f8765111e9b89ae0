"""Documents, collections, sources and jobs of a real store, over HTTP."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar
from uuid import UUID, uuid4

import gateways
import httpx2
import pytest
from drafts import TENANT, draft, draft_with_failure
from targets import begin, end, publish, superuser, write
from trees import hashing_settings, ingest, violations
from trees import write as write_files

from rag_core.breaker import Breaker
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.storage.rate_limits import RateLimiter
from rag_core.types import Draft
from rag_core.wiring.models import RemoteModels
from serve.authentication.caller import Caller, OpenAuthenticator
from serve.readiness import store_dependency
from serve.routes.job_events import JobNotifier, JobUpdate, JobWatch
from serve.routes.sources import CONTEXT_CHARS
from serve.services import Services, SharedResources

pytestmark = pytest.mark.postgres

T = TypeVar("T")

ME, STRANGER = Caller(tenant=TENANT), Caller(tenant="another-tenant")
HIT = "<script>alert('x')</script> & \"keys\""
KEYS = draft("file:///keys.md", "Keys are replaced.", HIT, "Locks open at noon.", metadata={"team": "locks"})
GATES = draft("file:///gates.md", "Gates open at spring tide.")
HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
OUTSIDERS = [STRANGER, ME, Caller(tenant=TENANT, groups=("board",))]


def graph(store: Postgres) -> Services:
    """The services of a store, even if it cannot be reached."""
    settings = hashing_settings(f"tenant={TENANT}", "answering.budget=none")
    on = SharedResources(
        settings=settings,
        postgres=store,
        corpus=CorpusReader(store),
        conversation_store=StoredConversations(store),
        authenticator=OpenAuthenticator(TENANT),
        rate_limiter=RateLimiter(store),
        remote_models=RemoteModels(),
        dependencies={"store": store_dependency(store, Breaker("the store"))},
    )
    return on.build_services(settings)


def run_with_client(
    store: Postgres, work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]], who: Caller = ME
) -> T:
    return gateways.run_with_gateway(graph(store), work, who)


def request(store: Postgres, method: str, path: str, who: Caller = ME, **headers: str) -> httpx2.Response:
    return run_with_client(store, lambda client: client.request(method, path, headers=headers), who)


def get(store: Postgres, path: str, who: Caller = ME, **headers: str) -> httpx2.Response:
    return request(store, "GET", path, who, **headers)


def restrict(store: Postgres, *drafts: Draft) -> None:
    with superuser(store) as connection:
        statement = "update documents set access = '{staff}' where id = any(%s)"
        connection.execute(statement, [[document.id for document in drafts]])


@pytest.fixture
def library(store: Postgres) -> Postgres:
    publish(store, KEYS, GATES)
    return store


def test_documents_are_listed_as_they_are_stored(library: Postgres) -> None:
    body = get(library, "/v1/documents").json()
    listed = {row["uri"]: row for row in body["data"]}
    assert listed.keys() == {"file:///keys.md", "file:///gates.md"}
    keys = listed["file:///keys.md"]
    assert keys.pop("version") > 0
    assert keys == {
        "id": str(KEYS.id),
        "uri": "file:///keys.md",
        "title": "A title",
        "status": "completed",
        "chunks": 3,
        "updated_at": "2023-11-14T22:13:20Z",
        "metadata": {"team": "locks"},
    }
    assert (body["next_cursor"], body["has_more"]) == (None, False)


def test_documents_are_listed_by_what_became_of_them(library: Postgres) -> None:
    publish(library, draft_with_failure(draft("file:///torn.pdf", "x")))
    body = get(library, "/v1/documents?status=failed").json()
    assert [row["uri"] for row in body["data"]] == ["file:///torn.pdf"]
    document = get(library, f"/v1/documents/{body['data'][0]['id']}").json()
    assert (document["collection"], document["stage"], document["reason"]) == ("default", "read", "it was a test")
    assert get(library, f"/v1/documents/{document['id']}/content").status_code == 404


def test_pages_hold_every_document_once_while_others_are_added(store: Postgres) -> None:
    first = [draft(f"file:///{number}.md", f"text {number}") for number in range(7)]
    publish(store, *first)

    async def pages(client: httpx2.AsyncClient) -> list[str]:
        ids: list[str] = []
        query = {"limit": "2"}
        while True:
            body = (await client.get("/v1/documents", params=query)).json()
            assert len(body["data"]) <= 2
            ids += [row["id"] for row in body["data"]]
            if not body["has_more"]:
                return ids
            query["cursor"] = body["next_cursor"]
            publish(store, draft(f"file:///later-{len(ids)}.md", "later"))

    ids = run_with_client(store, pages)
    assert len(ids) == len(set(ids))
    assert set(ids) >= {str(document.id) for document in first}


def test_the_content_is_what_offsets_count_in(library: Postgres) -> None:
    response = get(library, f"/v1/documents/{KEYS.id}/content")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert KEYS.document is not None
    assert response.text == KEYS.document.text


def test_chunks_come_in_text_order_a_page_at_a_time(library: Postgres) -> None:
    body = get(library, f"/v1/documents/{KEYS.id}/chunks?limit=2").json()
    assert [(chunk["ordinal"], chunk["text"]) for chunk in body["data"]] == [(0, "Keys are replaced."), (1, HIT)]
    last = get(library, f"/v1/documents/{KEYS.id}/chunks?limit=2&cursor={body['next_cursor']}").json()
    assert [(chunk["ordinal"], chunk["start"], chunk["end"]) for chunk in last["data"]] == [
        (2, KEYS.chunks[2].start, KEYS.chunks[2].end)
    ]
    assert last["has_more"] is False


def test_a_deleted_document_is_gone_when_the_response_comes(library: Postgres) -> None:
    async def delete_all(client: httpx2.AsyncClient) -> list[int]:
        paths = [f"/v1/documents/{document.id}" for document in (KEYS, GATES, KEYS)]
        return [(await client.delete(path)).status_code for path in paths]

    assert run_with_client(library, delete_all) == [204, 204, 404]
    assert get(library, "/v1/documents").json()["data"] == []
    assert get(library, f"/v1/sources/{KEYS.chunks[0].id}").status_code == 404
    assert violations(library) == []


def test_nothing_is_deleted_while_a_job_is_at_work_on_its_source(library: Postgres) -> None:
    with library.connect() as connection:
        Ledger(connection, TENANT).claim(1, [1])
        response = request(library, "DELETE", f"/v1/documents/{KEYS.id}")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "busy")
    assert get(library, f"/v1/documents/{KEYS.id}").status_code == 200


def test_a_delete_waits_for_another_one_of_the_same_source(library: Postgres) -> None:
    with library.connect() as connection:
        ledger = Ledger(connection, TENANT)
        ledger.claim(1, [1])
        ending = Timer(0.3, ledger.close)
        ending.start()
        response = request(library, "DELETE", f"/v1/documents/{KEYS.id}")
        ending.join()
    assert response.status_code == 204


@pytest.mark.parametrize("who", OUTSIDERS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/documents/{KEYS.id}"),
        ("GET", f"/v1/documents/{KEYS.id}/content"),
        ("GET", f"/v1/documents/{KEYS.id}/chunks"),
        ("DELETE", f"/v1/documents/{KEYS.id}"),
        ("GET", f"/v1/sources/{KEYS.chunks[0].id}"),
    ],
)
def test_what_the_caller_cannot_read_is_not_found(library: Postgres, method: str, path: str, who: Caller) -> None:
    restrict(library, KEYS)
    assert request(library, method, path, who).status_code == 404
    assert request(library, method, path, Caller(tenant=TENANT, groups=("staff",))).status_code in (200, 204)


def test_what_the_caller_cannot_read_is_not_listed_nor_counted(library: Postgres) -> None:
    restrict(library, KEYS)
    staff = Caller(tenant=TENANT, groups=("staff",))
    assert [row["uri"] for row in get(library, "/v1/documents").json()["data"]] == ["file:///gates.md"]
    assert len(get(library, "/v1/documents", staff).json()["data"]) == 2
    counted = [get(library, "/v1/collections", who).json()["data"][0] for who in (ME, staff)]
    assert [(row["documents"], row["chunks"]) for row in counted] == [(1, 1), (2, 4)]


def test_collections_are_those_of_the_tenant_by_name(library: Postgres) -> None:
    publish(library, draft("file:///a.md", "a", collection="archive"), collection="archive")
    body = get(library, "/v1/collections?limit=1").json()
    assert body["data"] == [{"name": "archive", "model": "test-encoder", "dimension": 16, "documents": 1, "chunks": 1}]
    last = get(library, f"/v1/collections?cursor={body['next_cursor']}").json()
    assert [row["name"] for row in last["data"]] == ["default"]
    assert get(library, "/v1/collections", STRANGER).json()["data"] == []


def test_profiles_name_the_default_one(store: Postgres) -> None:
    row = {"name": "default", "version": "", "serving": True, "default": True, "loaded": True, "reason": ""}
    assert get(store, "/v1/profiles").json()["data"] == [row]


def test_a_source_is_its_chunk_with_the_text_around_it(library: Postgres) -> None:
    body = get(library, f"/v1/sources/{KEYS.chunks[1].id}").json()
    assert (body["before"], body["quote"], body["after"]) == ("Keys are replaced.\n\n", HIT, "\n\nLocks open at noon.")
    assert (body["document_id"], body["url"], body["collection"]) == (str(KEYS.id), "file:///keys.md", "default")


def test_a_source_page_marks_exactly_the_span_and_runs_nothing_of_the_text(library: Postgres) -> None:
    start = KEYS.chunks[1].start
    response = get(library, f"/v1/sources/{KEYS.chunks[1].id}?start={start}&end={start + 8}", Accept=HTML)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.text.count("<mark") == 1
    assert (
        'Keys are replaced.\n\n<mark id="quote">&lt;script&gt;</mark>alert(&#x27;x&#x27;)&lt;/script&gt; &amp; '
        "&quot;keys&quot;\n\nLocks open at noon.</pre>"
    ) in response.text
    assert "<script" not in response.text


def test_a_title_is_no_markup_and_only_the_text_around_the_span_is_shown(store: Postgres) -> None:
    long = draft("file:///<b>.md", "x" * 3 * CONTEXT_CHARS, "quoted", "y" * 3 * CONTEXT_CHARS)
    publish(store, long)
    path = f"/v1/sources/{long.chunks[1].id}"
    source = get(store, path).json()
    assert (len(source["before"]), source["quote"], len(source["after"])) == (CONTEXT_CHARS, "quoted", CONTEXT_CHARS)
    assert "<b>" not in get(store, path, Accept=HTML).text
    assert get(store, path, Accept="application/json, text/html").json() == source


@pytest.mark.parametrize("span", ["start=5&end=5", "start=9&end=3", "end=100000", "start=-1", "start=0&end=x"])
def test_a_span_that_a_document_does_not_have_is_refused(library: Postgres, span: str) -> None:
    assert get(library, f"/v1/sources/{KEYS.chunks[0].id}?{span}").status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/v1/documents?limit=0",
        "/v1/documents?limit=201",
        "/v1/documents?offset=3",
        "/v1/documents?collection=a%00b",
        "/v1/documents?status=gone",
        "/v1/documents?cursor=Zm9yZ2Vk",
        "/v1/collections?cursor=Zm9yZ2Vk",
        "/v1/jobs?cursor=Zm9yZ2Vk",
        f"/v1/documents/{KEYS.id}/chunks?cursor=Zm9yZ2Vk",
        f"/v1/jobs/{KEYS.id}?cursor=Zm9yZ2Vk",
        "/v1/documents/keys.md",
        "/v1/sources/1",
        "/v1/jobs/1f0c2ab4",
    ],
)
def test_a_request_that_breaks_a_rule_is_a_problem(library: Postgres, path: str) -> None:
    response = get(library, path)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")


def test_a_cursor_leads_nowhere_in_another_listing_or_another_tenants(library: Postgres) -> None:
    cursor = get(library, "/v1/documents?limit=1").json()["next_cursor"]
    path = f"/v1/documents?limit=1&cursor={cursor}"
    assert get(library, path).status_code == 200
    assert get(library, f"{path}&status=completed").status_code == 422
    publish(library, draft("file:///theirs.md", "x", tenant="another-tenant"), tenant="another-tenant")
    assert get(library, path, STRANGER).status_code == 422


def test_a_collection_that_is_not_there_has_no_documents_to_list(library: Postgres) -> None:
    assert get(library, "/v1/documents?collection=nowhere").status_code == 404
    assert get(library, "/v1/documents", STRANGER).status_code == 404


def test_a_store_that_is_away_is_a_problem_to_try_again() -> None:
    response = get(Postgres("host=/nowhere"), "/v1/documents")
    assert (response.status_code, response.json()["retryable"]) == (503, True)


def test_a_job_reports_what_an_ingest_did(store: Postgres, tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"keys.md": "# Keys\n\nReplaced every 45 days.\n", "gates.md": "# Gates\n\nOpen.\n"})
    settings = hashing_settings(f"tenant={TENANT}")
    report = ingest(store, folder, settings=settings)
    body = get(store, f"/v1/jobs/{report.job_id}").json()
    assert body["counts"] == {**report.documents, "cancelled": 0}
    assert (body["status"], body["collection"], body["profile"]) == ("completed", "default", "default")
    assert body["stages"]["parse"]["done"] == 2
    assert (body["failures"], body["next_cursor"], body["has_more"]) == ([], None, False)
    (row,) = get(store, "/v1/jobs").json()["data"]
    assert (row["job_id"], row["documents"], row["failed"]) == (str(report.job_id), 2, 0)


def test_a_job_names_the_pipeline_that_it_ran(store: Postgres, tmp_path: Path) -> None:
    settings = hashing_settings(f"tenant={TENANT}")
    job = ingest(store, write_files(tmp_path, {"keys.md": "# Keys\n\nOpen.\n"}), settings=settings).job_id
    assert get(store, f"/v1/jobs/{job}").json()["pipeline_version"] == settings.pipeline_version


def test_jobs_are_listed_newest_first(store: Postgres) -> None:
    jobs = [str(publish(store, draft(f"file:///{number}.md", "x")).job) for number in range(3)]
    body = get(store, "/v1/jobs?limit=2").json()
    last = get(store, f"/v1/jobs?limit=2&cursor={body['next_cursor']}").json()
    assert [row["job_id"] for row in body["data"] + last["data"]] == jobs[::-1]


def test_the_failures_of_a_job_come_in_pages_without_those_that_the_caller_cannot_read(store: Postgres) -> None:
    torn = [draft_with_failure(draft(f"file:///{number}.pdf", "x")) for number in range(4)]
    job = publish(store, *torn).job
    restrict(store, torn[0])
    body = get(store, f"/v1/jobs/{job}?limit=2").json()
    last = get(store, f"/v1/jobs/{job}?limit=2&cursor={body['next_cursor']}").json()
    assert {failure["uri"] for failure in body["failures"] + last["failures"]} == {
        document.entry.uri for document in torn[1:]
    }
    assert body["failures"][0].items() >= {"stage": "read", "reason": "it was a test", "retryable": False}.items()
    assert body["counts"]["failed"] == 4


def test_a_cancelled_job_writes_no_more_and_one_that_has_ended_stays_as_it_is(store: Postgres) -> None:
    job = begin(store, [KEYS]).job
    body = request(store, "POST", f"/v1/jobs/{job}/cancel").json()
    assert body["status"] == "cancelled"
    assert (body["counts"]["cancelled"], body["counts"]["failed"]) == (1, 0)
    assert request(store, "POST", f"/v1/jobs/{job}/cancel").json()["finished_at"] == body["finished_at"]
    ended = publish(store, GATES).job
    assert request(store, "POST", f"/v1/jobs/{ended}/cancel").json()["status"] == "completed"


@contextmanager
def hold_source(store: Postgres, target: WriteTarget) -> Iterator[UUID]:
    """Holds the source of the job until the block ends, as a process that runs it does."""
    with store.connect() as connection:
        Ledger(connection, TENANT).reclaim(target.collection, [1])
        yield target.job


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/events"), ("POST", "/cancel")])
def test_a_job_of_another_tenant_is_not_found(store: Postgres, method: str, path: str) -> None:
    with hold_source(store, begin(store, [KEYS])) as job:
        assert request(store, method, f"/v1/jobs/{job}{path}", STRANGER).status_code == 404
        assert request(store, method, f"/v1/jobs/{uuid4()}{path}").status_code == 404
        assert get(store, f"/v1/jobs/{job}").json()["status"] == "running"


def frames(response: httpx2.Response) -> list[tuple[int, str, dict[str, Any]]]:
    parts = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in response.text.strip().split("\n\n")]
    return [(int(part["id"]), part["event"], json.loads(part["data"])) for part in parts]


@pytest.fixture
def job(store: Postgres) -> UUID:
    """A job with seven events: three of its stages, two of published documents, and two of its end."""
    target = begin(store, [KEYS, GATES])
    for document in (KEYS, GATES):
        write(target, [document])
    end(target)
    return target.job


def test_the_events_of_a_job_end_with_its_end(store: Postgres, job: UUID) -> None:
    response = get(store, f"/v1/jobs/{job}/events")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = frames(response)
    assert [(number, name) for number, name, _ in events] == [
        (0, "job.started"),
        *((number, "job.stage") for number in (1, 2, 3)),
        (4, "job.progress"),
        (5, "job.progress"),
        (6, "job.stage"),
        (7, "job.completed"),
    ]
    end = events[-1][2]
    assert (end["job_id"], end["seq"], end["stage"], end["status"]) == (str(job), 7, "job", "completed")
    assert (end["done"], end["total"], end["failed"], end["chunks"], end["eta_s"]) == (2, 2, 0, 4, 0)


def test_events_continue_after_the_last_seen_one(store: Postgres, job: UUID) -> None:
    all_events = frames(get(store, f"/v1/jobs/{job}/events"))
    for last in range(7):
        assert frames(get(store, f"/v1/jobs/{job}/events", **{"Last-Event-ID": str(last)})) == all_events[last + 1 :]


def test_a_client_that_has_seen_the_end_is_told_not_to_reconnect(store: Postgres, job: UUID) -> None:
    assert get(store, f"/v1/jobs/{job}/events", **{"Last-Event-ID": "7"}).status_code == 204


@pytest.mark.parametrize("last_event_id", ["-1", "x", str(2**63)])
def test_an_invalid_last_event_id_is_refused(store: Postgres, job: UUID, last_event_id: str) -> None:
    assert get(store, f"/v1/jobs/{job}/events", **{"Last-Event-ID": last_event_id}).status_code == 422


def test_a_job_that_runs_is_followed_to_its_end(store: Postgres) -> None:
    target = begin(store, [KEYS, GATES])

    async def watch_and_cancel(client: httpx2.AsyncClient) -> httpx2.Response:
        watching = asyncio.create_task(client.get(f"/v1/jobs/{target.job}/events"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(write, target, [KEYS])
        assert not watching.done()
        assert (await client.post(f"/v1/jobs/{target.job}/cancel")).status_code == 200
        return await watching

    with hold_source(store, target):
        events = frames(run_with_client(store, watch_and_cancel))
    assert [(number, name) for number, name, _ in events] == [
        (0, "job.started"),
        *((number, "job.stage") for number in (1, 2, 3)),
        (4, "job.progress"),
        (5, "job.cancelled"),
    ]


def test_a_job_that_was_killed_ends_with_an_event_too(store: Postgres) -> None:
    target = begin(store, [KEYS])
    with store.connect() as connection:
        Ledger(connection, TENANT).claim(target.collection, [1])
    events = frames(get(store, f"/v1/jobs/{target.job}/events"))
    assert [name for _, name, _ in events] == ["job.started", *["job.stage"] * 3, "job.failed"]
    assert violations(store) == []


def test_a_watcher_of_a_job_outlives_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.routes.job_events.POLL_SECONDS", 0.01)
    monkeypatch.setattr("serve.routes.job_events.KEEP_ALIVE_SECONDS", 0.02)
    nowhere = Postgres("host=/nowhere")
    watch = JobWatch(services=graph(nowhere), caller=ME, job_id=uuid4(), notifier=JobNotifier(nowhere))

    async def read_two() -> list[str]:
        async with aclosing(watch.stream_texts(JobUpdate(texts=["id: 3\n\n"], last_seq=3, ended=False))) as texts:
            return [await anext(texts), await anext(texts)]

    assert asyncio.run(read_two()) == ["id: 3\n\n", ": keep-alive\n\n"]
