"""The rows of requests in the audit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from drafts import draft
from fakes.replies import stored_reply
from fakes.serving import NOWHERE, scripted_graph
from fastapi.testclient import TestClient
from targets import publish

from rag_core.config import AuditedReads
from rag_core.scopes import ROLES
from rag_core.storage.audit_reading import Audit
from rag_core.storage.catalog import Catalog
from rag_core.storage.keys import KeyFinder, Keys
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Replies
from rag_core.telemetry.logs import query_hash
from rag_core.telemetry.metrics import install_sink
from rag_core.telemetry.operation import Operation
from serve import audit
from serve.audit import AuditLog
from serve.authentication.caller import OpenAuthenticator
from serve.authentication.keys import KeyAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

pytestmark = pytest.mark.postgres

TENANT = "acme"


@contextmanager
def gateway(store: Postgres, role: str = "admin", reads: AuditedReads = "authenticated") -> Iterator[TestClient]:
    """A gateway and a client with a key of that role. Without a role, callers are anonymous."""
    authenticator = KeyAuthenticator(KeyFinder(store)) if role else OpenAuthenticator(TENANT)
    graph = scripted_graph(postgres=store, authenticator=authenticator, audit=AuditLog(store, reads))
    headers: Mapping[str, str] = {}
    if role:
        with store.connect() as connection:
            key = Keys(connection, TENANT).create(ROLES[role], user="ada")
        headers = {"Authorization": f"Bearer {key.text}"}
    app = build_fastapi(ServedProfiles(graph))
    with TestClient(app, base_url="http://localhost", headers=headers) as client:
        yield client


def entries(store: Postgres) -> list[dict[str, Any]]:
    """The rows of requests and of their changes, oldest first."""
    with store.connect() as connection:
        rows = Audit(connection, TENANT).list_entries(limit=10_000)[:0:-1]
    return [row for row in rows if not row["user"].startswith("operator:")]


def add_document(store: Postgres) -> str:
    publish(store, draft("file:///a.md", "one", tenant=TENANT), tenant=TENANT)
    with store.connect() as connection:
        return str(Catalog(connection, TENANT).document("default", "file:///a.md")["id"])


def test_a_read_names_the_caller_the_documents_and_how_it_ended(store: Postgres) -> None:
    document = add_document(store)
    with gateway(store) as client:
        response = client.get(f"/v1/documents/{document}/content", headers={"X-Correlation-ID": "c-1"})
        assert response.status_code == 200
    (entry,) = entries(store)
    assert (entry["user"], len(entry["key_id"]), entry["operation"]) == ("ada", 8, "documents")
    assert (entry["documents"], entry["resource"]["ids"]) == ([document], [document])
    assert (entry["status"], entry["correlation_id"]) == ("ok", response.headers["X-Correlation-ID"])
    assert entry["detail"] == {"method": "GET", "route": "/v1/documents/{id}/content", "http_status": 200}
    assert entry["duration_ms"] > 0


def test_an_answer_has_its_stages_and_a_hash_of_its_question(store: Postgres) -> None:
    question = "Who is Ada Lovelace?"
    with gateway(store) as client:
        assert client.post("/v1/answer", json={"question": question}).status_code == 200
        with client.stream("POST", "/v1/answer", json={"question": question, "stream": True}) as response:
            assert b"run_finished" in response.read()
    complete, streamed = entries(store)
    for entry in (complete, streamed):
        assert (entry["operation"], entry["detail"]["question"]) == ("answer", query_hash(question))
        assert {stage["stage"] for stage in entry["stages"]} >= {"retrieve", "select"}
        assert "Lovelace" not in str(entry)


def test_a_refused_request_has_a_row_if_its_caller_is_known(store: Postgres) -> None:
    with gateway(store, "reader") as client:
        assert client.get("/v1/jobs").status_code == 403
        assert client.delete(f"/v1/documents/{uuid4()}").status_code == 403
        assert client.get(f"/v1/documents/{uuid4()}").status_code == 404
        assert client.get("/v1/jobs", headers={"Authorization": "Bearer garbage"}).status_code == 401
        assert client.get("/healthz").status_code == 200
    assert [(entry["status"], entry["detail"]["http_status"]) for entry in entries(store)] == [
        ("refused", 403),
        ("refused", 403),
        ("refused", 404),
    ]


def test_a_change_has_one_row_which_names_the_caller(store: Postgres) -> None:
    document = add_document(store)
    with store.connect() as connection:
        Replies(connection, TENANT).add([stored_reply("ans_1", user_id="ada")], timeout=60)
    with gateway(store) as client:
        assert client.delete(f"/v1/documents/{document}").status_code == 204
        assert client.post("/v1/feedback", json={"answer_id": "ans_1", "rating": 1}).status_code == 201
        assert client.post("/v1/feedback", json={"answer_id": "ans_2", "rating": 1}).status_code == 404
        job = client.post("/v1/ingest", json={"documents": [{"id": "a", "text": "b"}]}).json()["job_id"]
        assert client.post(f"/v1/jobs/{job}/cancel").status_code == 200
    rows = [(entry["user"], entry["operation"], entry["status"]) for entry in entries(store)]
    assert [row for row in rows if row[2] == "ok"] == [
        ("ada", "documents.delete", "ok"),
        ("ada", "feedback.give", "ok"),
        ("ada", "ingest", "ok"),
        ("ada", "jobs.cancel", "ok"),
    ]
    # a queue writes this row, so that later changes can precede it
    assert [row for row in rows if row[2] != "ok"] == [("ada", "feedback", "refused")]


@pytest.mark.parametrize(
    ("reads", "role", "count"), [("never", "admin", 0), ("authenticated", "", 0), ("always", "", 1)]
)
def test_the_settings_decide_which_reads_are_recorded(
    store: Postgres, reads: AuditedReads, role: str, count: int
) -> None:
    with gateway(store, role, reads) as client:
        assert client.get("/v1/documents").status_code == 404
        assert client.get("/readyz").status_code == 200
    assert len(entries(store)) == count


def test_the_conversation_of_messages_is_named_by_its_id_and_not_by_its_clients_name(store: Postgres) -> None:
    with gateway(store) as client:
        assert client.get("/v1/conversations/marker-of-a-person/messages").status_code == 404
    (entry,) = entries(store)
    assert entry["resource"]["count"] == 1
    assert "marker" not in str(entry)


def test_lost_rows_are_logged_and_counted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    counts: list[float] = []
    install_sink(lambda _metric, value, _labels: counts.append(value))
    log = AuditLog(NOWHERE, "always")
    log.add(Operation(name="answer", tenant=TENANT, user="ada"), "ok", {})
    log.wait(60)
    monkeypatch.setattr(audit, "MAX_WAITING", 0)
    log.add(Operation(name="answer", tenant=TENANT, user="ada"), "ok", {})
    assert counts == [1, 1]
    assert caplog.messages[0].startswith("rows of the audit are lost (1): cannot reach the store")
    assert caplog.messages[1] == "rows of the audit are lost (1): 0 rows wait for the store"
