"""Responses of `/v1/ingest`, as `rag ingest --server` reads them."""

from typing import Any
from uuid import UUID

import httpx2
import pytest

from rag_cli import server_client
from rag_cli.server_client import RateLimitedClient, Receipt
from rag_core.errors import ResponseError, UnavailableError, UsageError

JOB = str(UUID(int=1))
ACCEPTED = {
    "job_id": JOB,
    "status": "queued",
    "documents": 2,
    "links": {"self": "/v1/jobs/1", "events": "/v1/jobs/1/e"},
}
PROBLEM = {
    "type": "about:blank",
    "title": "Unprocessable Content",
    "status": 422,
    "detail": "files/0: no text",
    "instance": "/v1/ingest",
    "correlation_id": JOB,
    "error_type": "invalid_request",
    "retryable": False,
    "recovery": [],
    "error": {"message": "files/0: no text", "type": "invalid_request_error", "code": "invalid_request", "param": ""},
}


def receipt(status: int, body: Any) -> Receipt:
    request = httpx2.Request("POST", "http://gateway/v1/ingest")
    return Receipt.from_response(httpx2.Response(status, json=body, request=request))


def rule(pointer: str, detail: str) -> dict[str, str]:
    return {"pointer": pointer, "code": "value_error", "detail": detail}


def test_rejected_files_are_reported_by_their_positions() -> None:
    rows = [{"index": 0, "id": "a", "status": 202}, {"index": 2, "id": "c", "status": 422, "problem": PROBLEM}]
    assert receipt(202, ACCEPTED) == Receipt(job=JOB, documents=2)
    assert receipt(207, {**ACCEPTED, "items": rows}) == Receipt(job=JOB, documents=2, rejected={2: "files/0: no text"})


def test_there_is_no_job_if_every_file_is_rejected() -> None:
    rules = [rule("#/files/0", "no text"), rule("#/files/11/name", "too long")]
    assert receipt(422, {**PROBLEM, "errors": rules}) == Receipt(rejected={0: "no text", 11: "too long"})


@pytest.mark.parametrize("errors", [{}, {"errors": None}, {"errors": [rule("#/profile", "unknown")]}])
def test_a_rejected_request_is_an_error(errors: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no text"):
        receipt(422, {**PROBLEM, **errors})
    with pytest.raises(UnavailableError, match="no text"):
        receipt(503, {**PROBLEM, **errors})


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (202, {**ACCEPTED, "documents": "many"}, "invalid: Ingested.documents: "),
        (207, {**ACCEPTED, "items": [{"index": 0}]}, r"invalid: Ingested.items\[0\].id: "),
        (422, {"errors": [{"pointer": "#/files/0"}]}, "invalid: Problem.type: "),
        (422, ["no"], "is not a JSON object: is a gateway there"),
        (202, "accepted", "is not a JSON object: is a gateway there"),
    ],
)
def test_a_malformed_response_is_an_error(status: int, body: Any, message: str) -> None:
    with pytest.raises(ResponseError, match=message):
        receipt(status, body)


def send(monkeypatch: pytest.MonkeyPatch, refusals: int, retry_after: str) -> tuple[int, list[float], list[bytes]]:
    """The last status, the waits, and the bodies that a server received which refuses the first requests."""
    waits: list[float] = []
    bodies: list[bytes] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.read())
        is_refused = len(bodies) <= refusals
        return httpx2.Response(429 if is_refused else 200, headers={"Retry-After": retry_after} if is_refused else {})

    monkeypatch.setattr(server_client.time, "sleep", waits.append)
    with RateLimitedClient(base_url="http://gateway", transport=httpx2.MockTransport(respond)) as client:
        status = client.post("/v1/ingest", files=[("files", ("a.txt", b"text"))]).status_code
    return status, waits, bodies


def test_a_request_beyond_a_rate_limit_is_sent_again_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    status, waits, bodies = send(monkeypatch, refusals=2, retry_after="7")
    assert (status, waits, len(bodies), len(set(bodies))) == (200, [7, 7], 3, 1)


@pytest.mark.parametrize(("retry_after", "waits"), [("901", []), ("400", [400, 400])])
def test_a_request_waits_for_a_rate_limit_only_for_a_time(
    monkeypatch: pytest.MonkeyPatch, retry_after: str, waits: list[float]
) -> None:
    assert send(monkeypatch, refusals=9, retry_after=retry_after)[:2] == (429, waits)


def test_refused_credentials_are_an_error_that_names_the_variable_and_the_scope() -> None:
    invalid = "refused; set RAG_API_KEY to a key that `rag keys create` printed, or to an access token"
    missing = "this request needs the scope ingest:bulk, which the credentials do not have"
    for status, challenge, message in (
        (401, 'Bearer error="invalid_token"', invalid),
        (403, 'Bearer error="insufficient_scope", scope="ingest:bulk"', f"{missing}; set RAG_API_KEY to another key"),
        (403, "", "refused"),
    ):
        request = httpx2.Request("POST", "http://gateway/v1/ingest")
        headers = {"WWW-Authenticate": challenge} if challenge else {}
        response = httpx2.Response(status, json={**PROBLEM, "detail": "refused"}, headers=headers, request=request)
        with pytest.raises(UsageError) as refused:
            Receipt.from_response(response)
        assert (str(refused.value), refused.value.exit_code) == (message, 2)


@pytest.mark.parametrize("key", ["rk_a1B2c3D4_…", "rk_a1B2c3D4_a\nb", "rk_a1B2c3D4_\x7f"])
def test_a_key_that_no_header_can_have_is_refused_without_being_quoted(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("RAG_API_KEY", key)
    with pytest.raises(UsageError, match=r"^RAG_API_KEY must have printable ASCII characters") as refused:
        server_client.check_server("http://127.0.0.1:9")
    assert "a1B2c3D4" not in str(refused.value)


def test_spaces_around_a_key_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def respond(client: httpx2.Client, request: httpx2.Request, **_: Any) -> httpx2.Response:
        sent.append(request.headers["Authorization"])
        return httpx2.Response(200, request=request)

    monkeypatch.setenv("RAG_API_KEY", " rk_a1B2c3D4_secret\n")
    monkeypatch.setattr(httpx2.Client, "send", respond)
    server_client.check_server("http://127.0.0.1:9")
    assert sent == ["Bearer rk_a1B2c3D4_secret"]
