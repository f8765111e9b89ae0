"""The HTTP API over scripted parts."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import httpx2
import numpy as np
import pytest
from anyio import to_thread
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage
from fakes.serving import NOWHERE, scripted_graph, serve_graph
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ValidationError

from rag_core.breaker import Breaker
from rag_core.errors import (
    ClusterError,
    GenerationError,
    JudgeError,
    NotFoundError,
    OverloadedError,
    RagError,
    RetrievalError,
    StageTimeoutError,
    StoreError,
)
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Query, Reply
from serve import gateway
from serve.bodies.chat import Chat, Search
from serve.bodies.ingest import DocumentBody
from serve.bodies.requests import Retrieve
from serve.gateway import build_fastapi
from serve.http import request_telemetry
from serve.http.draining import start_draining
from serve.profiles import ServedProfiles
from serve.readiness import store_dependency
from serve.services import Services

T = TypeVar("T")

COMPONENTS = "sections-200:all-MiniLM-L6-v2:pgvector:none"
JSON = "application/json"
USER = {"role": "user", "content": "?"}
CHAT = {"model": "default", "messages": [USER], "stream": True}

HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit, passage(2, "Locks open at noon.").hit]
PIECES = ["Keys are replaced every ", "45 days [1]. ", "Locks open [2]."]
TEXT = "Keys are replaced every 45 days [1]. Locks open [2]."


AWAY = {"store": store_dependency(NOWHERE, Breaker("the store"))}


def graph(retriever: ScriptedRetriever | None = None, generator: ScriptedGenerator | None = None) -> Services:
    scripted = retriever or ScriptedRetriever(hits=HITS)
    return scripted_graph(scripted, generator or ScriptedGenerator(answers=[PIECES] * 9))


def call_gateway(served: Services, work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]]) -> T:
    async def call() -> T:
        transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(served)), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await work(client)

    return asyncio.run(call())


def post(path: str, body: object, served: Services | None = None, **headers: str) -> httpx2.Response:
    return call_gateway(served or graph(), lambda client: client.post(path, json=body, headers=headers))


def post_bytes(path: str, body: str | bytes, kind: str = JSON, **headers: str) -> httpx2.Response:
    """Sends the body unchanged."""
    named = {**headers, **({"Content-Type": kind} if kind else {})}
    return call_gateway(graph(), lambda client: client.post(path, content=body, headers=named))


def frames(response: httpx2.Response) -> list[tuple[str, Any]]:
    parts = [frame.split("\n") for frame in response.text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_hits_come_best_first_with_where_they_stand() -> None:
    body = post("/v1/retrieve", {"query": "How often?", "top_k": 1}).json()
    (best,) = body["results"]
    assert (best["rank"], best["title"], best["start"], best["end"]) == (1, "Keys", 0, 32)
    assert body["object"] == "retrieval"


def test_an_answer_has_its_citations_and_its_verdict() -> None:
    body = post("/v1/answer", {"question": "How often?"}).json()
    assert body["answer"] == TEXT
    assert [citation["n"] for citation in body["citations"]] == [1, 2]
    assert body["grounding"]["verdict"] == "supported"
    assert body["degraded"] == []


def test_the_streamed_answer_is_the_whole_one_and_its_sources_come_first() -> None:
    answer = post("/v1/answer", {"question": "How often?"}).json()
    streamed = frames(post("/v1/answer", {"question": "How often?", "stream": True}))
    names = [name for name, _ in streamed]
    assert names[0] == "run_started"
    assert names[-1] == "run_finished"
    assert names.index("sources") < names.index("text_delta")
    assert "".join(data["text"] for name, data in streamed if name == "text_delta") == answer["answer"]
    citations = [data["citation"] for name, data in streamed if name == "citation_added"]
    ungraded = [{**citation, "verdict": "unchecked"} for citation in answer["citations"]]
    assert citations == ungraded
    assert next(data for name, data in streamed if name == "grounding") == answer["grounding"]


def test_a_stream_that_fails_ends_with_an_event_that_reports_the_failure() -> None:
    served = graph(generator=ScriptedGenerator(answers=[[]] * 2, error=GenerationError("the endpoint is away")))
    name, failure = frames(post("/v1/answer", {"question": "How often?", "stream": True}, served))[-1]
    problem = post("/v1/answer", {"question": "How often?"}, served).json()
    assert (name, failure["detail"], failure["status"]) == ("run_failed", "the endpoint is away", 502)
    assert {**failure, "correlation_id": ""} == {**problem, "correlation_id": ""}


def test_a_stream_that_nobody_expected_to_fail_ends_without_the_words(caplog: pytest.LogCaptureFixture) -> None:
    broken = ScriptedGenerator(answers=[[]], error=RuntimeError("password=hunter2"))
    response = post("/v1/answer", {"question": "?", "stream": True}, graph(generator=broken))
    error = frames(response)[-1][1]["error"]
    assert (error["code"], error["message"]) == ("generation", "RuntimeError")
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text


def test_an_error_of_a_users_own_part_is_reported_by_its_kind_alone() -> None:
    wrapped = RetrievalError("no leg answered: dense: ValueError: password=hunter2")
    response = post("/v1/retrieve", {"query": "?"}, graph(ScriptedRetriever(hits=[], error=wrapped)))
    assert (response.status_code, response.json()["detail"]) == (503, "no leg answered: dense: ValueError")


def test_a_stream_says_first_what_answers() -> None:
    response = post("/v1/answer", {"question": "?", "stream": True})
    started = frames(response)[0][1]
    assert started["correlation_id"] == response.headers["x-correlation-id"]
    assert started["pipeline_version"] == graph().settings.pipeline_version
    assert (started["profile"], started["question"]) == ("default", "?")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError("no collection 'x'"), 404, "not_found"),
        (StoreError("lost the store"), 503, "store"),
        (GenerationError("the model broke"), 502, "generation"),
        (StageTimeoutError("retrieve", 1.0), 504, "stage_timeout"),
    ],
)
def test_failures_are_problems_that_say_whether_to_try_again(error: RagError, status: int, code: str) -> None:
    response = post("/v1/retrieve", {"query": "?"}, graph(ScriptedRetriever(hits=[], error=error)))
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, body["status"], body["error"]["code"]) == (status, status, code)
    assert body["retryable"] is (status > 500)
    assert ("retry-after" in response.headers) is (status > 500)


def test_an_unexpected_error_is_reported_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    broken = ScriptedRetriever(hits=[], error=RuntimeError("password=hunter2"))
    response = post("/v1/retrieve", {"query": "?"}, graph(broken))
    assert response.status_code == 500
    assert "hunter2" not in response.text
    assert "failed" in caplog.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/query"),
        ({"query": ""}, "#/query"),
        ({"query": " \n"}, "#/query"),
        ({"query": "x" * 1001}, "#/query"),
        ({"query": "a\x00b"}, "#/query"),
        ({"query": "?", "top_k": 0}, "#/top_k"),
        ({"query": "?", "top_k": 101}, "#/top_k"),
        ({"query": "?", "unknown": 1}, "#/unknown"),
        ({"query": "?", "strategies": []}, "#/strategies"),
        ({"query": "?", "strategies": "bm25"}, "#/strategies"),
        ({"query": "?", "fusion_method": "sum"}, "#/fusion_method"),
        ({"query": "?", "weights": {}}, "#/weights"),
        ({"query": "?", "weights": {"bm25": 0}}, "#/weights"),
        ({"query": "?", "weights": {"bm25": 1e308, "dense": 1e308}}, "#/weights"),
        ({"query": "?", "weights": {"bm25": -1}}, "#/weights/bm25"),
        ({"query": "?", "candidates": 1001}, "#/candidates"),
        ({"query": "?", "candidates": 3, "top_k": 4}, "#/candidates"),
        ({"query": "?", "top_k": "3"}, "#/top_k"),
        ({"query": "?", "top_k": True}, "#/top_k"),
        ({"query": "?", "rerank": "no"}, "#/rerank"),
        ({"query": "?", "timeout_ms": 0.5}, "#/timeout_ms"),
        ({"query": "?", "collection": "a\ud800"}, "#/collection"),
        ({"query": "?", "filters": {"key": "a\x00", "type": "eq", "value": 1}}, "#/filters"),
        ({"query": "?", "filters": {"key": "a", "type": "in", "value": ["\ud800"]}}, "#/filters"),
        ({"query": "?", "a/b~": 1}, "#/a~1b~0"),
        ({"query": "?", "\ud800": 1}, "#/"),
    ],
)
def test_a_request_that_breaks_a_rule_gets_the_name_of_the_rule(body: object, pointer: str) -> None:
    response = post_bytes("/v1/retrieve", json.dumps(body))
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


def nest_filters(levels: int) -> str:
    return '{"type":"and","filters":[' * levels + '{"type":"eq","key":"a","value":1}' + "]}" * levels


@pytest.mark.parametrize(("levels", "status"), [(15, 200), (16, 422), (300, 422), (20_000, 400)])
def test_a_filter_has_a_bottom(levels: int, status: int) -> None:
    assert post_bytes("/v1/retrieve", f'{{"query":"?","filters":{nest_filters(levels)}}}').status_code == status


@pytest.mark.parametrize(("conditions", "status"), [(255, 200), (256, 422), (20_000, 422)])
def test_a_filter_has_at_most_256_conditions(conditions: int, status: int) -> None:
    filters = {"type": "or", "filters": [{"key": "a", "type": "eq", "value": 1}] * conditions}
    assert post("/v1/retrieve", {"query": "?", "filters": filters}).status_code == status


@pytest.mark.parametrize(("values", "status"), [(9_000, 200), (10_000, 422)])
def test_a_filter_compares_with_at_most_10000_values(values: int, status: int) -> None:
    filters = {"key": "a", "type": "in", "value": [1] * values}
    assert post("/v1/retrieve", {"query": "?", "filters": filters}).status_code == status


NUMBERS = [1] * 80_000


@pytest.mark.parametrize(
    ("path", "body", "pointers"),
    [
        ("/v1/chat/completions", {"model": "a", "messages": NUMBERS}, ["#/messages/0"]),
        ("/v1/chat/completions", {**CHAT, "messages": [USER] * 2_001}, ["#/messages"]),
        ("/v1/chat/completions", {**CHAT, "messages": [{**USER, "content": NUMBERS}]}, ["#/messages/0/content/0"]),
        ("/v1/retrieve", {"query": "?", "strategies": NUMBERS}, ["#/strategies/0"]),
        ("/v1/retrieve", {"query": "?", "strategies": ["a"] * 65}, ["#/strategies"]),
        ("/v1/retrieve", {"query": "?", "weights": {str(n): "a" for n in range(50_000)}}, ["#/weights/0"]),
        ("/v1/retrieve", {"query": "?", "weights": {str(n): 1 for n in range(65)}}, ["#/weights"]),
        ("/v1/retrieve", {"query": "?", **{str(n): 1 for n in range(50_000)}}, ["#/"]),
        ("/v1/retrieve", {"query": "?", **{str(n): 1 for n in range(30)}}, [f"#/{n}" for n in range(20)]),
    ],
)
def test_a_rule_that_is_broken_often_is_reported_a_few_times(path: str, body: object, pointers: list[str]) -> None:
    response = post(path, body)
    assert [error["pointer"] for error in response.json()["errors"]] == pointers


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Chat, {"model": "a", "messages": NUMBERS}),
        (Chat, {"model": "a", "messages": [{**USER, "content": NUMBERS}]}),
        (Chat, {**CHAT, **{str(n): 1 for n in range(50_000)}}),
        (Chat, {**CHAT, "rag": {str(n): 1 for n in range(50_000)}}),
        (Retrieve, {"query": "?", "strategies": NUMBERS, "weights": {str(n): "a" for n in range(50_000)}}),
        (Retrieve, {"query": "?", **{str(n): 1 for n in range(50_000)}}),
        (Search, {"query": "?", **{str(n): 1 for n in range(50_000)}}),
        (DocumentBody, {"text": "?", **{str(n): 1 for n in range(50_000)}}),
    ],
)
def test_rules_that_are_broken_a_thousand_times_are_not_all_looked_for(kind: type[BaseModel], body: object) -> None:
    with pytest.raises(ValidationError) as raised:
        kind.model_validate(body)
    assert raised.value.error_count() <= 2


@pytest.mark.parametrize("length", [200, 201])
@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/retrieve", {"query": "?"}, "#/conversation_id"),
        ("/v1/answer", {"question": "?"}, "#/conversation_id"),
        ("/v1/chat/completions", {"model": "a", "messages": [USER]}, "#/rag/conversation_id"),
    ],
)
def test_a_conversation_has_an_id_of_at_most_200_characters(
    path: str, body: dict[str, Any], pointer: str, length: int
) -> None:
    named = {"conversation_id": "c" * length}
    response = post(path, {**body, "rag": named} if "rag" in pointer else {**body, **named})
    pointers = [error["pointer"] for error in response.json().get("errors", ())]
    assert (response.status_code, pointers) == ((200, []) if length == 200 else (422, [pointer]))


def test_a_key_that_is_called_messages_is_an_unknown_key_where_nobody_chats() -> None:
    response = post("/v1/retrieve", {"query": "?", "messages": []})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ("{", JSON, 400, "malformed"),
        ('{"query": ' + "9" * 5000 + "}", JSON, 400, "malformed"),
        (b'{"query": "\xff"}', JSON, 400, "malformed"),
        ("[]", JSON, 422, "invalid_request"),
        ("query=keys", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ('{"query": "?"}', "text/plain", 415, "unsupported_media_type"),
        ('{"query": "?"}', "", 415, "unsupported_media_type"),
    ],
)
def test_a_body_that_is_not_json_gets_a_problem_with_the_reason(
    body: str | bytes, kind: str, status: int, code: str
) -> None:
    response = post_bytes("/v1/retrieve", body, kind)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"


def test_the_media_type_of_this_api_is_accepted_and_sent_and_another_version_is_not() -> None:
    ours, other = "application/vnd.medkg.orchestration.v1+json", "application/vnd.medkg.orchestration.v2+json"
    answered = post_bytes("/v1/retrieve", '{"query": "?"}', ours, Accept=ours)
    assert (answered.status_code, answered.headers["content-type"]) == (200, ours)
    assert post_bytes("/v1/retrieve", '{"query": "?"}', JSON, Accept=f"{other}, */*").headers["content-type"] == JSON
    refused = post_bytes("/v1/retrieve", '{"query": "?"}', JSON, Accept=other)
    assert (refused.status_code, refused.json()["error"]["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nowhere", 404, "not_found"),
        ("POST", "/v2/retrieve", 404, "not_found"),
        ("POST", "/ingest/more", 404, "not_found"),
        ("PUT", "/v1/retrieve", 405, "method_not_allowed"),
        ("GET", "/v1/documents?collection=a%00b", 422, "invalid_request"),
        ("POST", "/v1/vector_stores/a%00b/search", 422, "invalid_request"),
    ],
)
def test_a_request_without_a_route_gets_a_problem_with_all_headers(
    method: str, path: str, status: int, code: str
) -> None:
    response = call_gateway(graph(), lambda client: client.request(method, path))
    body = response.json()
    assert (response.status_code, body["status"], body["error"]["code"]) == (status, status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-correlation-id"] == body["correlation_id"]
    assert response.headers["x-pipeline-version"] == COMPONENTS


@pytest.mark.parametrize(("path", "is_reserved"), [("/v2", True), ("/v2/retrieve", True), ("/v20/retrieve", False)])
def test_only_paths_of_the_next_version_are_reserved(path: str, is_reserved: bool) -> None:
    detail = call_gateway(graph(), lambda client: client.get(path)).json()["detail"]
    assert ("is reserved for a later version" in detail) == is_reserved


def test_a_wrong_method_gets_the_list_of_allowed_ones() -> None:
    response = call_gateway(graph(), lambda client: client.put(f"/v1/documents/{UUID(int=1)}"))
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET")


def test_a_filter_that_the_grammar_does_not_allow_is_refused() -> None:
    response = post("/v1/retrieve", {"query": "?", "filters": {"type": "like"}})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "filter")


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_above_a_megabyte_is_refused_also_one_that_does_not_say_its_length(announced: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"query": "'
        for _ in range(17):
            yield b"x" * (1 << 16)

    async def big(client: httpx2.AsyncClient) -> httpx2.Response:
        content: Any = b"x" * ((1 << 20) + 1) if announced else pieces()
        return await client.post("/v1/retrieve", content=content, headers={"Content-Type": JSON})

    response = call_gateway(graph(), big)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    assert response.json()["detail"] == "the request body is too large: the limit for this path is 1048576 bytes"


def test_a_limit_is_that_of_the_longest_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "BODY_LIMITS", {"/": 10, "/v1/retrieve": 100})
    assert post_bytes("/v1/retrieve", json.dumps({"query": "x" * 50})).status_code == 200
    assert post_bytes("/v1/answer", json.dumps({"question": "x" * 50})).status_code == 413


def test_a_correlation_id_is_returned_if_it_is_a_uuid_of_version_4() -> None:
    sent = "6f2f3a52-5a0e-4c4b-9d52-1b7a3c0e9d11"
    assert post("/v1/retrieve", {"query": "?"}, None, **{"X-Correlation-ID": sent}).headers["x-correlation-id"] == sent
    correlation_id = post("/v1/retrieve", {"query": "?"}, None, **{"X-Correlation-ID": "a\tb"}).headers[
        "x-correlation-id"
    ]
    assert UUID(correlation_id).version == 4


def test_every_response_names_its_pipeline_and_its_times() -> None:
    headers = post("/v1/answer", {"question": "?"}).headers
    assert headers["x-pipeline-version"] == COMPONENTS
    assert headers["x-api-version"] == "1.0"
    times = [part.partition(";dur=") for part in headers["server-timing"].split(", ")]
    assert [name for name, _, _ in times] == ["retrieve", "select", "generate", "judge", "total"]
    assert all(float(ms) >= 0 for _, _, ms in times)


@pytest.mark.parametrize(("request_id", "returned"), [("abc-1", True), ("a" * 201, False), ("ä", False)])
def test_a_request_id_is_returned_if_it_is_a_short_word(request_id: str, returned: bool) -> None:
    headers = {"X-Request-ID": request_id.encode("latin-1")}
    response = call_gateway(graph(), lambda client: client.get("/healthz", headers=headers))
    correlation_id = response.headers["x-correlation-id"]
    assert response.headers["x-request-id"] == (request_id if returned else correlation_id)


def test_too_much_at_once_says_when_to_come_again() -> None:
    response = post("/v1/retrieve", {"query": "?"}, graph(ScriptedRetriever(hits=[], error=OverloadedError("full"))))
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["recovery"] == ["retry_after"]


def test_each_request_has_one_end_with_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[str, int]] = []
    monkeypatch.setattr(
        request_telemetry, "report_request", lambda operation, status: reported.append((operation.name, status))
    )
    broken = graph(ScriptedRetriever(hits=[], error=RuntimeError("no")))
    post("/v1/retrieve", {"query": "?"})
    post("/v1/retrieve", {"query": "?"}, broken)
    call_gateway(graph(), lambda client: client.get("/v1/nowhere/7"))
    call_gateway(graph(), lambda client: client.get(f"/v1/documents/{UUID(int=1)}/content"))
    assert reported == [
        ("retrieve", 200),
        ("retrieve", 500),
        ("other", 404),
        ("documents", 503),
    ]


def test_a_client_that_goes_before_the_end_is_one_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []
    monkeypatch.setattr(request_telemetry, "report_request", lambda _operation, status: reported.append(status))
    endless = ScriptedGenerator(answers=[["Keys. "] * 10_000], seconds=0.01)
    body = {"question": "?", "stream": True}
    with (
        serve_graph(graph(generator=endless)) as address,
        httpx2.stream("POST", f"{address}/v1/answer", json=body) as response,
    ):
        next(response.iter_lines())
    assert (reported, endless.closed) == ([499], len(endless.prompts))


HOST = "http://localhost"


@pytest.mark.parametrize(
    ("headers", "method", "status"),
    [
        ({}, "POST", 200),
        ({"Origin": HOST}, "POST", 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": HOST}, "POST", 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://outside.example"}, "POST", 200),  # a proxy before it
        ({"Sec-Fetch-Site": "none"}, "POST", 200),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, "POST", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "POST", 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}, "POST", 403),
        ({"Origin": "https://evil.example"}, "POST", 403),
        ({"Origin": "http://localhost:3000"}, "POST", 403),
        ({"Origin": "http://["}, "POST", 403),
        ({"Origin": "null"}, "POST", 403),
        ({"Origin": "https://evil.example"}, "DELETE", 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, "GET", 200),
    ],
)
def test_a_request_of_another_sites_page_is_refused(headers: dict[str, str], method: str, status: int) -> None:
    path = "/healthz" if method == "GET" else "/v1/retrieve"
    response = call_gateway(graph(), lambda client: client.request(method, path, json={"query": "?"}, headers=headers))
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "cross_site"


def scope(path: str, method: str = "POST") -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("gateway", 80),
    }


def queue_messages(*messages: dict[str, Any]) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """Returns a function that receives these messages, and then waits without end."""
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return receive


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/answer", {"question": "?", "stream": True}), ("/v1/chat/completions", CHAT)]
)
def test_a_stream_that_is_cancelled_while_a_piece_is_on_its_way_has_no_work_left(path: str, body: object) -> None:
    endless = ScriptedGenerator(answers=[["Keys. "] * 10_000], seconds=0.001)

    async def cancel_stream() -> tuple[int, int]:
        pieces, stuck = list[object](), asyncio.Event()

        async def send(message: object) -> None:
            pieces.append(message)
            if len(pieces) > 8:
                stuck.set()
                await asyncio.Event().wait()

        body_message = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
        task = asyncio.create_task(
            build_fastapi(ServedProfiles(graph(generator=endless)))(scope(path), queue_messages(body_message), send)
        )
        await asyncio.wait_for(stuck.wait(), 10)
        task.cancel()
        await asyncio.wait([task])
        return endless.closed, len(asyncio.all_tasks())

    assert asyncio.run(cancel_stream()) == (1, 1)


def test_a_client_that_goes_amid_its_body_is_one_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []
    monkeypatch.setattr(request_telemetry, "report_request", lambda _operation, status: reported.append(status))

    async def send(_message: object) -> None:
        pass

    part = {"type": "http.request", "body": b'{"qu', "more_body": True}
    asyncio.run(
        build_fastapi(ServedProfiles(graph()))(
            scope("/v1/answer"), queue_messages(part, {"type": "http.disconnect"}), send
        )
    )
    assert reported == [499]


def test_a_response_that_fails_after_it_began_is_an_error_and_no_client_that_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[int] = []
    monkeypatch.setattr(request_telemetry, "report_request", lambda _operation, status: reported.append(status))
    app = build_fastapi(ServedProfiles(graph()))

    async def failing() -> AsyncIterator[str]:
        yield "a"
        raise RuntimeError("no")

    app.add_api_route("/failing", lambda: StreamingResponse(failing()))

    async def send(_message: object) -> None:
        pass

    with pytest.raises(RuntimeError):
        asyncio.run(app(scope("/failing", "GET"), queue_messages({"type": "http.request", "body": b""}), send))
    assert reported == [500]


def test_questions_are_answered_while_40_threads_wait_for_the_store() -> None:
    free = threading.Event()

    async def retrieve(client: httpx2.AsyncClient) -> int:
        waiting = [asyncio.create_task(to_thread.run_sync(free.wait)) for _ in range(40)]
        try:
            async with asyncio.timeout(10):
                await asyncio.sleep(0.1)
                return (await client.post("/v1/retrieve", json={"query": "?"})).status_code
        finally:
            free.set()
            await asyncio.gather(*waiting)

    assert call_gateway(graph(), retrieve) == 200


def test_the_connections_to_endpoints_are_closed_at_its_end() -> None:
    async def serve_once() -> httpx2.AsyncClient:
        services = graph()
        http = services.remote_models.pool.client()
        app = build_fastapi(ServedProfiles(services))
        async with app.router.lifespan_context(app):
            assert not http.is_closed
        return http

    assert asyncio.run(serve_once()).is_closed


def catch_store_error(work: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as raised:
        work()
    assert "harbour" in str(raised.value)
    return raised.value


async def reading(postgres: Postgres) -> None:
    corpus = CorpusReader(postgres)
    corpus._snapshots._pool.timeout = 0.1
    try:
        await corpus.rank_dense(Query(text="?"), np.zeros(3, np.float32), "space", 1)
    finally:
        await corpus.close()


@pytest.mark.parametrize("nested", [False, True])
def test_the_address_and_the_user_of_the_store_are_in_the_log_alone(
    nested: bool, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = Postgres("host=/nowhere dbname=harbour user=master")
    failures = (
        catch_store_error(lambda: Postgres.open(nowhere.dsn)),
        catch_store_error(nowhere.connect),
        catch_store_error(lambda: asyncio.run(reading(nowhere))),
        ClusterError("Ray lost a part of the job on harbour"),
    )
    for failure in failures[: 3 if nested else 4]:
        error = RetrievalError(f"no leg answered: bm25: {failure}") if nested else failure
        detail = post("/v1/retrieve", {"query": "?"}, graph(ScriptedRetriever(hits=[], error=error))).json()["detail"]
        assert detail.endswith("cannot be reached")
        assert "harbour" not in detail
    assert "harbour" in caplog.text


def test_a_probe_does_not_get_the_address_of_the_store_and_the_log_has_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dependencies = {"store": store_dependency(Postgres("host=/nowhere dbname=harbour"), Breaker("the store"))}

    async def twice(client: httpx2.AsyncClient) -> httpx2.Response:
        await client.get("/readyz")
        return await client.get("/readyz")

    response = call_gateway(replace(graph(), dependencies=dependencies), twice)
    assert response.json()["checks"]["store"]["reason"] == "the store cannot be reached"
    assert caplog.text.count("dbname=harbour") == 1


def test_the_gateway_lives_without_its_store_but_is_not_ready() -> None:
    async def both(client: httpx2.AsyncClient) -> tuple[int, int]:
        return (await client.get("/healthz")).status_code, (await client.get("/readyz")).status_code

    assert call_gateway(replace(graph(), dependencies=AWAY), both) == (200, 503)


def test_a_gateway_that_drains_is_not_ready_and_closes_each_connection_but_serves() -> None:
    async def drain_and_ask(client: httpx2.AsyncClient) -> list[httpx2.Response]:
        before = await client.post("/v1/retrieve", json={"query": "How often?"})
        start_draining(client._transport.app)  # type: ignore[attr-defined]
        after = await client.post("/v1/retrieve", json={"query": "How often?"})
        return [before, after, await client.get("/readyz"), await client.get("/healthz")]

    before, after, ready, alive = call_gateway(graph(), drain_and_ask)
    assert "connection" not in before.headers
    assert [response.headers["connection"] for response in (after, ready, alive)] == ["close"] * 3
    assert (after.status_code, after.json()["results"]) == (200, before.json()["results"])
    assert (ready.status_code, ready.json(), alive.status_code) == (503, {"ok": False, "draining": True}, 200)


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/answer"])
def test_a_request_that_waited_for_a_missing_store_gets_503_and_not_a_timeout(path: str) -> None:
    late = graph(ScriptedRetriever(hits=[], error=StageTimeoutError("retrieve", 1.0)))
    body = {"query" if path == "/v1/retrieve" else "question": "How often?"}
    assert post(path, body, late).status_code == 504
    response = post(path, body, replace(late, dependencies=AWAY))
    assert (response.status_code, response.json()["retryable"], response.headers["retry-after"]) == (503, True, "1")


def test_the_query_has_the_tenant_the_collection_the_session_and_the_timeout() -> None:
    queries: list[Query] = []

    class Hearing:
        async def answer(self, query: Query, tell: object = None) -> Reply:  # noqa: ARG002
            queries.append(query)
            raise NotFoundError("nothing")

    served = replace(graph(), answerer=Hearing())  # type: ignore[arg-type]
    body = {"question": "q", "collection": "docs", "conversation_id": "c", "timeout_ms": 500}
    assert post("/v1/answer", body, served).status_code == 404
    (query,) = queries
    assert (query.tenant, query.collection, query.session_id, query.timeout) == ("default-tenant", "docs", "c", 0.5)


def test_the_failure_of_a_part_is_reported_without_the_address_of_the_endpoint() -> None:
    error = JudgeError("the endpoint judge.internal:8000 refused with 401: bad key")
    served = scripted_graph(
        ScriptedRetriever(hits=HITS), ScriptedGenerator(answers=[["Kept [1]."]] * 2), judge=ScriptedJudge(error=error)
    )
    reply = post("/v1/answer", {"question": "Where?"}, served).json()
    assert reply["degraded"] == ["judge"]
    assert reply["degraded_reasons"] == {"judge": "the endpoint refused with 401: bad key"}
