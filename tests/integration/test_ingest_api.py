"""Ingest over HTTP, into a real store."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import gateways
import httpx2
import pytest
from drafts import TENANT
from gateways import build_services
from psycopg.rows import dict_row
from targets import superuser
from trees import hashing_settings, violations
from workers import run_worker

from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wire.jobs import Ingested
from serve.authentication.caller import Caller
from serve.profiles import NO_PROFILES
from serve.services import Services

pytestmark = pytest.mark.postgres

T = TypeVar("T")

KEYS = {"id": "keys", "uri": "https://example.org/keys", "title": "Keys", "text": "Keys are replaced every 45 days."}
GATES = {"id": "gates", "text": "Gates open at spring tide."}
BAD = {"id": "bad", "text": "a\x00b"}
ALLOWED = 'ingestion.allowed_locations=["/", "s3://bucket"]'
JOBS = """
select j.id, j.status, j.profile, j.settings, j.request, j.correlation_id, j.traceparent,
  (select array_agg(p.id order by p.id) from pushed_documents p where p.job_id = j.id) as documents
from jobs j order by j.run"""
PUSHED = "select id, body, media_type, title, url, metadata from pushed_documents order by id"


def graph(store: Postgres) -> Services:
    return build_services(
        hashing_settings(f"tenant={TENANT}", f"store.url={store.dsn}", "answering.budget=none", ALLOWED)
    )


def run_with_client(
    store: Postgres,
    work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]],
    tenant: str = TENANT,
    others: Mapping[str, Settings] = NO_PROFILES,
) -> T:
    return gateways.run_with_gateway(graph(store), work, Caller(tenant=tenant), others)


def post(store: Postgres, *documents: object, tenant: str = TENANT, **headers: str) -> httpx2.Response:
    return run_with_client(
        store, lambda client: client.post("/v1/ingest", json={"documents": documents}, headers=headers), tenant
    )


@contextmanager
def worker(store: Postgres) -> Iterator[None]:
    """A worker that runs the queued jobs until the block ends."""
    base_settings = hashing_settings(f"tenant={TENANT}", "store.patience_s=5", ALLOWED)
    settings = base_settings.model_copy(update={"store": base_settings.store.model_copy(update={"url": store.dsn})})
    with run_worker(settings):
        yield


def rows(store: Postgres, statement: str) -> list[dict[str, Any]]:
    with superuser(store) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement.encode()).fetchall()


def test_a_request_is_a_queued_job_and_nothing_else(store: Postgres) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    id = "6f2f3a52-5a0e-4c4b-9d52-1b7a3c0e9d11"
    response = post(store, KEYS, GATES, **{"X-Correlation-ID": id, "traceparent": trace})
    job = response.json()["job_id"]
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/jobs/{job}"
    assert response.json() == {
        "job_id": job,
        "status": "queued",
        "documents": 2,
        "links": {"self": f"/v1/jobs/{job}", "events": f"/v1/jobs/{job}/events"},
    }
    (entered,) = rows(store, JOBS)
    assert (str(entered["id"]), entered["status"], entered["documents"]) == (job, "queued", ["gates", "keys"])
    assert (entered["correlation_id"], entered["traceparent"]) == (id, trace)
    assert run_with_client(store, lambda client: client.get(response.headers["location"])).json()["status"] == "queued"


def test_an_invalid_traceparent_is_dropped(store: Postgres) -> None:
    post(store, KEYS, traceparent="00-nonsense")
    assert rows(store, JOBS)[0]["traceparent"] == ""


def test_documents_are_kept_as_they_came(store: Postgres) -> None:
    metadata = {"team": "locks", "pages": 3, "tags": ["a", "b"], "draft": False}
    post(store, {**KEYS, "metadata": metadata}, {"text": "Grüße"})
    assert rows(store, PUSHED) == [
        {
            "id": "keys",
            "body": b"Keys are replaced every 45 days.",
            "media_type": "text/plain",
            "title": "Keys",
            "url": "https://example.org/keys",
            "metadata": metadata,
        },
        {
            "id": "sha256:f83e039796c6453a10f5519e39fd113901572316a1a8ea07cb525d2801dfd074",
            "body": "Grüße".encode(),
            "media_type": "text/plain",
            "title": "",
            "url": "",
            "metadata": {},
        },
    ]


def test_files_are_kept_as_they_came(store: Postgres) -> None:
    body = bytes(range(256)) * 20_000
    files = [
        ("files", ("a.pdf", body, "application/pdf")),
        ("files", ("file:///docs/b.md", b"# B", "text/markdown; charset=utf-8")),
        ("files", ("c", b"C", "odd")),
    ]
    fields = {"collection": "docs", "metadata": '{"team": "locks"}'}
    response = run_with_client(store, lambda client: client.post("/v1/ingest", data=fields, files=files))
    assert (response.status_code, response.json()["documents"]) == (202, 3)
    pushed_rows = {row["id"]: row for row in rows(store, PUSHED)}
    assert pushed_rows["a.pdf"]["body"] == body
    assert [pushed_rows[id]["media_type"] for id in ("a.pdf", "file:///docs/b.md", "c")] == [
        "application/pdf",
        "text/markdown",
        "application/octet-stream",
    ]
    assert pushed_rows["file:///docs/b.md"]["url"] == "file:///docs/b.md"
    assert all(row["metadata"] == {"team": "locks"} for row in pushed_rows.values())
    assert rows(store, JOBS)[0]["request"]["collection"] == "docs"


def test_a_source_is_a_job_with_its_options(store: Postgres) -> None:
    source = {"type": "files", "locations": ["s3://bucket/docs"], "prune": False, "checksum": True}
    response = run_with_client(
        store, lambda client: client.post("/v1/ingest", json={"source": source, "collection": "docs"})
    )
    assert (response.status_code, response.json()["documents"]) == (202, 0)
    request = rows(store, JOBS)[0]["request"]
    assert (
        request.items()
        >= {
            "collection": "docs",
            "locations": ["s3://bucket/docs"],
            "prune": False,
            "confirmed": False,
            "checksum": True,
        }.items()
    )


def test_a_job_keeps_the_settings_of_the_gateway_or_of_the_profile_that_was_named(store: Postgres) -> None:
    post(store, KEYS)
    body = {"documents": [KEYS], "profile": "pmc"}
    profiles = {"pmc": load_settings(profile="pmc", environment={})}
    run_with_client(store, lambda client: client.post("/v1/ingest", json=body), others=profiles)
    default_job, named_job = rows(store, JOBS)
    assert (default_job["profile"], default_job["settings"]["embedding"]["type"]) == ("default", "hashing")
    assert named_job["profile"] == "pmc"
    assert named_job["settings"]["chunking"] == load_settings(profile="pmc", environment={}).chunking.model_dump(
        mode="json"
    )
    assert not {"store", "tenant"} & (default_job["settings"].keys() | named_job["settings"].keys())


def test_valid_documents_are_accepted_and_the_others_refused_with_a_reason(store: Postgres) -> None:
    response = post(store, KEYS, BAD, {"id": "keys", "text": "again"}, {"id": "long", "text": "x" * 8_000_001}, GATES)
    body = response.json()
    Ingested.model_validate(body)
    assert (response.status_code, body["documents"]) == (207, 2)
    assert [(row["index"], row["id"], row["status"]) for row in body["items"]] == [
        (0, "keys", 202),
        (1, "bad", 422),
        (2, "keys", 422),
        (3, "long", 413),
        (4, "gates", 202),
    ]
    problem = body["items"][1]["problem"]
    assert (problem["status"], problem["errors"][0]["pointer"]) == (422, "#/documents/1/text")
    assert problem["correlation_id"] == response.headers["x-correlation-id"]
    assert "problem" not in body["items"][0]
    assert rows(store, JOBS)[0]["documents"] == ["gates", "keys"]


def test_a_request_of_which_nothing_can_be_taken_enters_no_job(store: Postgres) -> None:
    assert post(store, BAD).status_code == 422
    assert rows(store, JOBS) == []


def test_names_that_no_encoding_can_write_are_reported_all_the_same(store: Postgres) -> None:
    body = b'{"documents": [{"text": "a"}, {"text": "b", "metadata": {"\\ud800": 1}}, {"text": "c", "\\ud800": 1}]}'
    sent = {"content": body, "headers": {"Content-Type": "application/json"}}
    response = run_with_client(store, lambda client: client.post("/v1/ingest", **sent))
    assert (response.status_code, [row["status"] for row in response.json()["items"]]) == (207, [202, 422, 422])


def test_a_key_makes_one_job_of_the_same_request(store: Postgres) -> None:
    first, again = (post(store, KEYS, BAD, **{"Idempotency-Key": key}) for key in ('"one"', "one"))
    assert (first.status_code, first.json()["job_id"]) == (again.status_code, again.json()["job_id"])
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(rows(store, JOBS)) == 1
    other = post(store, GATES, **{"Idempotency-Key": "one"})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency")
    assert post(store, GATES, **{"Idempotency-Key": "another"}).status_code == 202


def test_a_key_is_another_tenants_own(store: Postgres) -> None:
    mine = post(store, KEYS, **{"Idempotency-Key": "one"}).json()["job_id"]
    theirs = post(store, GATES, tenant="another-tenant", **{"Idempotency-Key": "one"})
    assert (theirs.status_code, theirs.json()["job_id"] == mine) == (202, False)


def test_a_key_is_forgotten_after_24_hours(store: Postgres) -> None:
    post(store, KEYS, **{"Idempotency-Key": "one"})
    with superuser(store) as connection:
        connection.execute("update jobs set created_at = now() - interval '24 hours 1 second'")
    assert "idempotency-replayed" not in post(store, GATES, **{"Idempotency-Key": "one"}).headers


def test_20_requests_with_one_key_at_once_make_one_job(store: Postgres) -> None:
    async def all_at_once(client: httpx2.AsyncClient) -> list[httpx2.Response]:

        send = [
            client.post("/v1/ingest", json={"documents": [KEYS]}, headers={"Idempotency-Key": "one"}) for _ in range(20)
        ]
        return await asyncio.gather(*send)

    responses = run_with_client(store, all_at_once)
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["job_id"] for response in responses}) == 1
    assert sorted("idempotency-replayed" in response.headers for response in responses) == [False] + [True] * 19
    assert len(rows(store, JOBS)) == 1


def test_a_job_that_is_not_done_in_time_is_reported_as_it_is(store: Postgres) -> None:
    response = post(store, KEYS, Prefer="wait=1")
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert response.headers["preference-applied"] == "wait=1"


@pytest.mark.slow
def test_a_file_of_50_mb_is_taken_and_one_byte_more_is_not(store: Postgres) -> None:
    largest = b"x" * 50_000_000
    files = [("files", ("fits.txt", largest)), ("files", ("large.txt", largest + b"!"))]
    response = run_with_client(store, lambda client: client.post("/v1/ingest", files=files))
    assert (response.status_code, [row["status"] for row in response.json()["items"]]) == (207, [202, 413])
    assert rows(store, JOBS)[0]["documents"] == ["fits.txt"]


WAIT = {"Prefer": "wait=50"}
TORN = ("torn.pdf", b"%PDF-1.7 torn", "application/pdf")


@pytest.mark.slow
def test_what_was_pushed_is_found_and_cited_with_its_url(store: Postgres) -> None:
    async def push_and_search(client: httpx2.AsyncClient) -> tuple[httpx2.Response, Any, Any]:
        response = await client.post("/v1/ingest", json={"documents": [KEYS, GATES]}, headers=WAIT)
        retrieval = await client.post("/v1/retrieve", json={"query": "How often are keys replaced?", "top_k": 1})
        answered = await client.post("/v1/answer", json={"question": "How often are keys replaced?"})
        pages = [(await client.get(citation["url"])).json() for citation in answered.json()["citations"]]
        return response, retrieval.json(), {**answered.json(), "pages": pages}

    with worker(store):
        response, retrieval, answered = run_with_client(store, push_and_search)
    assert (response.status_code, response.headers["preference-applied"]) == (200, "wait=50")
    assert response.json()["counts"].items() >= {"listed": 2, "added": 2, "completed": 2, "failed": 0}.items()
    assert (response.json()["status"], "items" in response.json()) == ("completed", False)
    (hit,) = retrieval["results"]
    assert (hit["title"], hit["url"]) == ("Keys", "https://example.org/keys")
    assert [citation["origin_url"] for citation in answered["citations"]] == ["https://example.org/keys"]
    assert [page["url"] for page in answered["pages"]] == ["https://example.org/keys"]
    assert answered["citations"][0]["quote"] in answered["pages"][0]["quote"]
    assert violations(store) == []


def test_documents_bring_their_own_chunks_and_vectors(store: Postgres) -> None:
    vector = [1.0, *[0.0] * 63]
    documents = [
        {**GATES, "chunks": [{"start": 0, "end": 10, "vector": vector}, {"text": "at spring tide.", "vector": vector}]},
        {**KEYS, "vector": [0.5, 0.5]},
        {"id": "both", "text": "Both.", "vector": vector, "chunks": [{"start": 0, "end": 4}]},
    ]

    async def push(client: httpx2.AsyncClient) -> tuple[httpx2.Response, Any]:
        response = await client.post("/v1/ingest", json={"documents": documents}, headers=WAIT)
        return response, (await client.post("/v1/retrieve", json={"query": "gates", "top_k": 2})).json()

    with worker(store):
        response, retrieval = run_with_client(store, push)
    assert response.status_code == 207
    reasons = {item["id"]: str(item["problem"]) for item in response.json()["items"] if "problem" in item}
    assert "must have the 64 dimensions of the collection's embedding model, got 2" in reasons["keys"]
    assert "a vector or chunks, not both" in reasons["both"]
    assert {(hit["text"], hit["start"]) for hit in retrieval["results"]} == {("Gates open", 0), ("at spring tide.", 11)}
    assert violations(store) == []


@pytest.mark.slow
def test_the_same_id_again_is_a_new_version_and_the_same_text_no_work(store: Postgres) -> None:
    async def push_versions(client: httpx2.AsyncClient) -> tuple[list[Any], Any]:
        texts = ["Gates open at spring tide.", "Gates open at noon.", "Gates open at noon."]
        documents = [{"documents": [{"id": "gates", "text": text}]} for text in texts]
        counts = [(await client.post("/v1/ingest", json=body, headers=WAIT)).json()["counts"] for body in documents]
        return counts, (await client.get("/v1/documents")).json()["data"]

    with worker(store):
        counts, listed = run_with_client(store, push_versions)
    assert [(row["added"], row["changed"], row["same"]) for row in counts] == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert [(row["chunks"], row["status"]) for row in listed] == [(1, "completed")]


@pytest.mark.slow
def test_a_waiting_client_is_told_of_each_document_that_was_not_stored(store: Postgres) -> None:
    files = [("files", ("keys.md", b"# Keys", "text/markdown")), ("files", TORN), ("files", ("empty.md", b" "))]
    with worker(store):
        response = run_with_client(store, lambda client: client.post("/v1/ingest", files=files, headers=WAIT))
    body = response.json()
    assert (response.status_code, body["status"], body["documents"]) == (207, "completed", 2)
    assert [(row["id"], row["status"]) for row in body["items"]] == [
        ("keys.md", 200),
        ("torn.pdf", 422),
        ("empty.md", 422),
    ]
    problem = body["items"][1]["problem"]
    assert (problem["failed_stage"], problem["error_type"], problem["retryable"]) == ("parse", "document", False)


@pytest.mark.slow
def test_a_client_that_waits_for_a_source_is_told_which_files_were_not_stored(store: Postgres, tmp_path: Path) -> None:
    (tmp_path / "keys.md").write_text("# Keys")
    (tmp_path / TORN[0]).write_bytes(TORN[1])
    body = {"source": {"type": "files", "locations": [tmp_path.as_uri()]}}
    with worker(store):
        response = run_with_client(store, lambda client: client.post("/v1/ingest", json=body, headers=WAIT))
    report = response.json()
    Ingested.model_validate(report)
    assert (response.status_code, report["counts"]["completed"], report["counts"]["failed"]) == (207, 1, 1)
    assert [(row["id"], row["status"]) for row in report["items"]] == [(f"{tmp_path.as_uri()}/torn.pdf", 422)]


@pytest.mark.slow
@pytest.mark.parametrize("documents", [[], [{"id": "own", "text": "Keys are replaced."}]])
def test_a_client_that_waits_for_a_source_is_told_of_some_files_and_of_none_that_it_cannot_read(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: list[dict[str, str]]
) -> None:
    monkeypatch.setattr("serve.routes.ingest_outcome.MAX_SOURCE_ITEMS", 2)
    for number in range(4):
        (tmp_path / f"{number}.pdf").write_bytes(TORN[1])
    body = {"source": {"type": "files", "locations": [tmp_path.as_uri()]}, "documents": documents}

    def push_as(*groups: str) -> tuple[int, int, int]:
        async def push(client: httpx2.AsyncClient) -> httpx2.Response:
            return await client.post("/v1/ingest", json=body, headers={**WAIT, "Idempotency-Key": "one"})

        response = gateways.run_with_gateway(graph(store), push, Caller(tenant=TENANT, groups=groups))
        Ingested.model_validate(response.json())
        files = [row for row in response.json().get("items", []) if row["id"].startswith("file:")]
        return response.status_code, response.json()["counts"]["failed"], len(files)

    with worker(store):
        assert push_as() == (207, 4, 2)
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}'")
    assert [push_as(), push_as("staff")] == [(207, 4, 0), (207, 4, 2)]


def test_a_waiting_client_is_told_that_a_source_is_missing(store: Postgres) -> None:
    body = {"source": {"type": "files", "locations": ["file:///nowhere/at/all"]}}
    with worker(store):
        response = run_with_client(store, lambda client: client.post("/v1/ingest", json=body, headers=WAIT))
    (row,) = response.json()["items"]
    assert (response.status_code, response.json()["status"]) == (207, "failed")
    assert (row["id"], row["status"], row["problem"]["error_type"]) == ("file:///nowhere/at/all", 422, "source")


def test_a_waiting_client_is_told_that_its_job_was_cancelled(store: Postgres) -> None:
    async def push_and_cancel(client: httpx2.AsyncClient) -> httpx2.Response:
        waiting = asyncio.create_task(client.post("/v1/ingest", json={"documents": [KEYS]}, headers=WAIT))
        while not (jobs := (await client.get("/v1/jobs")).json()["data"]):
            await asyncio.sleep(0.02)
        await client.post(f"/v1/jobs/{jobs[0]['job_id']}/cancel")
        return await waiting

    response = run_with_client(store, push_and_cancel)
    (row,) = response.json()["items"]
    assert (response.status_code, row["id"], row["status"]) == (207, "keys", 503)
    assert row["problem"]["detail"] == "the job was cancelled: over HTTP"


def test_clients_beyond_the_limit_of_waiting_ones_are_answered_at_once(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.routes.ingest_outcome._waiters", threading.BoundedSemaphore(1))

    async def send_two(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        send = [client.post("/v1/ingest", json={"documents": [KEYS]}, headers={"Prefer": "wait=1"}) for _ in range(2)]
        return await asyncio.gather(*send)

    waited, not_waited = sorted(
        run_with_client(store, send_two), key=lambda response: "preference-applied" not in response.headers
    )
    assert (waited.status_code, not_waited.status_code) == (202, 202)
    assert waited.headers["preference-applied"] == "wait=1"
    assert "preference-applied" not in not_waited.headers


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc",
        "file:///srv/docs/../secret",
        "http://127.0.0.1:9/a",
        "local:///etc",
        "s3://other/a",
        "zip://a::s3://bucket/a",
    ],
)
def test_a_source_outside_the_allowed_locations_is_refused_and_queues_nothing(store: Postgres, location: str) -> None:
    settings = hashing_settings(
        f"tenant={TENANT}", f"store.url={store.dsn}", 'ingestion.allowed_locations=["/srv/docs", "s3://bucket"]'
    )
    body = {"source": {"type": "files", "locations": ["s3://bucket/docs", location]}}
    response = gateways.run_with_gateway(
        build_services(settings), lambda client: client.post("/v1/ingest", json=body), Caller(tenant=TENANT)
    )
    problem = response.json()
    assert (response.status_code, problem["error_type"], problem["retryable"]) == (403, "location", False)
    assert "location" in problem["detail"]
    assert "/srv/docs'" not in problem["detail"]
    assert rows(store, JOBS) == []


def test_the_worker_checks_a_location_again_by_its_own_settings(store: Postgres, tmp_path: Path) -> None:
    (tmp_path / "keys.md").write_text("# Keys")
    body = {"source": {"type": "files", "locations": [tmp_path.as_uri()]}}
    worker_settings = hashing_settings(
        f"tenant={TENANT}", f"store.url={store.dsn}", 'ingestion.allowed_locations=["/srv/docs"]'
    )
    with run_worker(worker_settings):
        response = run_with_client(store, lambda client: client.post("/v1/ingest", json=body, headers=WAIT))
    (row,) = response.json()["items"]
    assert (response.status_code, row["problem"]["status"], row["problem"]["error_type"]) == (207, 403, "location")
    assert rows(store, "select from documents") == []
    assert "allowed_locations" not in rows(store, JOBS)[0]["settings"]["ingestion"]
