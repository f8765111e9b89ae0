"""The HTTP API over scripted parts."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import httpx2
import pytest
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph

from rag_core.errors import GenerationError, NotFoundError, RagError, StageTimeoutError, StoreError
from rag_core.types import Query, Reply
from serve.gateway import build_app
from serve.graph import Graph

T = TypeVar("T")

HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit, passage(2, "Locks open at noon.").hit]
PIECES = ["Keys are replaced every ", "45 days [1]. ", "Locks open [2]."]
TEXT = "Keys are replaced every 45 days [1]. Locks open [2]."


def graph(retriever: ScriptedRetriever | None = None, generator: ScriptedGenerator | None = None) -> Graph:
    found = retriever or ScriptedRetriever(hits=HITS)
    return scripted_graph(found, generator or ScriptedGenerator(answers=[PIECES] * 9))


def asked(served: Graph, work: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, T]]) -> T:
    async def called() -> T:
        transport = httpx2.ASGITransport(app=build_app(served), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await work(client)

    return asyncio.run(called())


def post(path: str, body: object, served: Graph | None = None, **headers: str) -> httpx2.Response:
    return asked(served or graph(), lambda client: client.post(path, json=body, headers=headers))


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
    whole = post("/v1/answer", {"question": "How often?"}).json()
    streamed = frames(post("/v1/answer", {"question": "How often?", "stream": True}))
    names = [name for name, _ in streamed]
    assert names[0] == "run_started"
    assert names[-1] == "run_finished"
    assert names.index("sources") < names.index("text_delta")
    assert "".join(data["text"] for name, data in streamed if name == "text_delta") == whole["answer"]
    citations = [data["citation"] for name, data in streamed if name == "citation_added"]
    ungraded = [{**citation, "verdict": "unchecked"} for citation in whole["citations"]]
    assert citations == ungraded
    assert next(data for name, data in streamed if name == "grounding") == whole["grounding"]


def test_a_stream_that_fails_ends_with_an_event_that_says_so() -> None:
    broken = ScriptedGenerator(answers=[[]], error=GenerationError("the endpoint is away"))
    streamed = frames(post("/v1/answer", {"question": "How often?", "stream": True}, graph(generator=broken)))
    assert streamed[-1] == ("run_failed", {"detail": "the endpoint is away"})


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError("there is no collection 'x'"), 404, "not_found"),
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


def test_what_nobody_expected_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
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
    ],
)
def test_a_request_that_breaks_a_rule_is_told_which_one(body: object, pointer: str) -> None:
    response = post("/v1/retrieve", body)
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


def test_a_filter_that_the_grammar_does_not_allow_is_refused() -> None:
    response = post("/v1/retrieve", {"query": "?", "filters": {"type": "like"}})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "filter")


def test_a_body_above_a_megabyte_is_refused() -> None:
    assert post("/v1/retrieve", {"query": "x" * (1 << 20)}).status_code == 413


def test_a_correlation_id_is_returned_if_it_is_a_uuid_of_version_4() -> None:
    sent = "6f2f3a52-5a0e-4c4b-9d52-1b7a3c0e9d11"
    assert post("/v1/retrieve", {"query": "?"}, None, **{"X-Correlation-ID": sent}).headers["x-correlation-id"] == sent
    made = post("/v1/retrieve", {"query": "?"}, None, **{"X-Correlation-ID": "a\tb"}).headers["x-correlation-id"]
    assert UUID(made).version == 4


def test_every_response_names_its_pipeline_and_its_time() -> None:
    headers = post("/v1/retrieve", {"query": "?"}).headers
    assert headers["x-pipeline-version"].startswith("default:v1+")
    assert headers["x-api-version"] == "1.0"
    assert "total;dur=" in headers["server-timing"]


def test_the_gateway_lives_without_its_store_but_is_not_ready() -> None:
    async def both(client: httpx2.AsyncClient) -> tuple[int, int]:
        return (await client.get("/healthz")).status_code, (await client.get("/readyz")).status_code

    assert asked(graph(), both) == (200, 503)


def test_what_is_asked_for_is_who_asks_and_how_long_they_wait() -> None:
    heard: list[Query] = []

    class Hearing:
        async def answer(self, query: Query, tell: object = None) -> Reply:  # noqa: ARG002
            heard.append(query)
            raise NotFoundError("nothing")

    served = replace(graph(), answerer=Hearing())  # type: ignore[arg-type]
    body = {"question": "q", "collection": "docs", "conversation_id": "c", "timeout_ms": 500}
    assert post("/v1/answer", body, served).status_code == 404
    (query,) = heard
    assert (query.tenant, query.collection, query.session_id, query.timeout) == ("default-tenant", "docs", "c", 0.5)
