"""Two gateways of one store, and callers with keys that exceed their limits."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from uuid import UUID

import pytest
from fakes.serving import RecordingRetriever, scripted_graph
from fastapi.testclient import TestClient
from httpx import Response

from rag_core.config import AuthSettings, RateLimitSettings
from rag_core.scopes import ROLES, Scope
from rag_core.storage.keys import KeyFinder, Keys
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from serve.authentication.keys import KeyAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

pytestmark = pytest.mark.postgres

SEARCH = {"query": "Where is the key?"}
LIMITS = {
    "tenant": {"searches": 3, "documents": 2, "bulk_documents": 4},
    "user": {"searches": 2},
    "tenants": {"open-tenant": {"tenant": {"searches": 0}, "user": {"searches": 0}}},
}


@pytest.fixture
def gateways(store: Postgres) -> Iterator[list[TestClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(build_gateway(store)) for _ in range(2)]


def build_gateway(store: Postgres) -> TestClient:
    graph = scripted_graph(
        RecordingRetriever(hits=[]), postgres=store, authenticator=KeyAuthenticator(KeyFinder(store))
    )
    sections = {"auth": AuthSettings(mode="keys"), "rate_limits": RateLimitSettings.model_validate(LIMITS)}
    graph = replace(graph, settings=graph.settings.model_copy(update=sections))
    return TestClient(build_fastapi(ServedProfiles(graph)), base_url="http://localhost")


def key_of(store: Postgres, tenant: str, *more: Scope) -> dict[str, str]:
    with store.connect() as connection:
        key = Keys(connection, tenant).create(ROLES["writer"] | {*more})
    return {"Authorization": f"Bearer {key.text}"}


def statuses(clients: list[TestClient], key: dict[str, str], count: int) -> list[int]:
    """Sends the requests to the gateways in turns, and returns the statuses."""
    return [clients[n % 2].post("/v1/retrieve", json=SEARCH, headers=key).status_code for n in range(count)]


def test_all_gateways_share_the_limits_of_a_user_and_of_its_tenant(gateways: list[TestClient], store: Postgres) -> None:
    ada, bob = key_of(store, "first-tenant"), key_of(store, "first-tenant")
    assert statuses(gateways, ada, 3) == [200, 200, 429]
    assert statuses(gateways, bob, 2) == [200, 429]
    assert statuses(gateways, key_of(store, "other-tenant"), 1) == [200]
    assert statuses(gateways, key_of(store, "open-tenant"), 5) == [200] * 5


def test_documents_are_counted_and_a_refused_request_queues_nothing(
    gateways: list[TestClient], store: Postgres
) -> None:
    key = key_of(store, "first-tenant")

    def ingest(count: int, headers: dict[str, str]) -> int:
        documents = [{"id": f"d{number}", "text": "Keys are replaced."} for number in range(count)]
        return gateways[0].post("/v1/ingest", json={"documents": documents}, headers=headers).status_code

    assert [ingest(2, key), ingest(1, key)] == [202, 429]
    assert len(gateways[0].get("/v1/jobs", headers=key).json()["data"]) == 1
    bulk = key_of(store, "first-tenant", "ingest:bulk")
    assert [ingest(4, bulk), ingest(1, bulk)] == [202, 429]


def test_a_retry_counts_its_documents_and_needs_the_scopes_of_the_first_request(
    gateways: list[TestClient], store: Postgres
) -> None:
    key, bulk = key_of(store, "first-tenant"), key_of(store, "first-tenant", "ingest:bulk")
    pushed = [
        cancel_new_job(store, documents=(PushedDocument(id=id, body=b"Keys are replaced."),)) for id in ("a", "b", "c")
    ]
    listed = cancel_new_job(store, locations=("file:///srv/docs",))

    def retry(job: UUID, headers: dict[str, str]) -> Response:
        return gateways[0].post(f"/v1/jobs/{job}/retry", headers=headers)

    refused = retry(listed, key)
    assert (refused.status_code, 'scope="ingest:bulk"' in refused.headers["WWW-Authenticate"]) == (403, True)
    assert [retry(listed, bulk).status_code for _ in range(5)] == [202] * 4 + [429]
    assert [retry(job, key).status_code for job in pushed] == [202, 202, 429]


def cancel_new_job(
    store: Postgres, locations: tuple[str, ...] = (), documents: tuple[PushedDocument, ...] = ()
) -> UUID:
    request = IngestRequest(
        collection="default", profile="default", settings={}, locations=locations, documents=documents
    )
    with store.connect() as connection:
        job = Queue(connection, "first-tenant").enqueue(request).job_id
        Ledger(connection, "first-tenant").end(job, "cancelled")
    return job


def test_a_repeated_request_is_charged_once(gateways: list[TestClient], store: Postgres) -> None:
    body = {"documents": [{"id": name, "text": "Keys are replaced."} for name in "ab"]}
    headers = {**key_of(store, "first-tenant"), "Idempotency-Key": "one"}
    first, again = (client.post("/v1/ingest", json=body, headers=headers) for client in gateways)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["job_id"] == again.json()["job_id"]
    headers["Idempotency-Key"] = "two"
    assert gateways[0].post("/v1/ingest", json=body, headers=headers).status_code == 429


def test_a_form_that_exceeds_a_limit_is_refused_with_the_time_to_wait(
    gateways: list[TestClient], store: Postgres
) -> None:
    key = key_of(store, "first-tenant")
    files = [("files", (f"{name}.txt", b"Keys are replaced.")) for name in "abc"]
    assert gateways[0].post("/v1/ingest", files=files, headers=key).status_code == 202  # from an unused bucket
    refused = gateways[1].post("/v1/ingest", files=files[:1], headers=key)
    assert (refused.status_code, refused.json()["error_type"]) == (429, "rate_limited")
    assert 30 < int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["RateLimit-Policy"] == '"documents";q=2;w=60'


def test_the_routes_that_have_limits_say_so(gateways: list[TestClient]) -> None:
    paths = gateways[0].get("/openapi.json").json()["paths"]
    limited = {path for path, operations in paths.items() if "429" in operations.get("post", {}).get("responses", {})}
    assert limited == {
        "/v1/answer",
        "/v1/chat/completions",
        "/v1/ingest",
        "/v1/jobs/{id}/retry",
        "/v1/retrieve",
        "/v1/vector_stores/{collection}/search",
    }
