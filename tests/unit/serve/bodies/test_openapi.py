"""`/openapi.json` describes the requests and the responses as they are."""

import asyncio
from typing import Any

import httpx2
import pytest
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph
from pydantic import BaseModel

from rag_core.errors import NotFoundError, RagError, StageTimeoutError
from rag_core.wire.answer import Answered
from rag_core.wire.documents import Profiles
from rag_core.wire.openai import Completion, SearchPage
from rag_core.wire.problems import Problem
from rag_core.wire.retrieval import Retrieval
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles

HITS = [passage(1, "Keys are replaced every 45 days.", title="Keys").hit, passage(2, "Locks open at noon.").hit]
PIECES = ["Keys are replaced every 45 days [1]. ", "Locks open [2]."]
CHAT = {"model": "default", "messages": [{"role": "user", "content": "How often?"}]}


def send_request(method: str, path: str, body: object = None, error: RagError | None = None) -> httpx2.Response:
    async def send() -> httpx2.Response:
        graph = scripted_graph(ScriptedRetriever(hits=HITS, error=error), ScriptedGenerator(answers=[PIECES]))
        transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(graph)), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(send())


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return send_request("GET", "/openapi.json").json()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/retrieve", {"query": "?"}, Retrieval),
        ("/v1/retrieve", {"query": "?", "explain": True, "top_k": 1}, Retrieval),
        ("/v1/answer", {"question": "?"}, Answered),
        ("/v1/chat/completions", CHAT, Completion),
        ("/v1/chat/completions", {**CHAT, "rag": {"explain": True, "conversation_id": "c"}}, Completion),
        ("/v1/vector_stores/default/search", {"query": "?"}, SearchPage),
    ],
)
def test_bodies_are_as_they_are_documented(path: str, body: object, kind: type[BaseModel]) -> None:
    response = send_request("POST", path, body)
    assert response.status_code == 200
    kind.model_validate_json(response.text, strict=True)


def test_profiles_are_as_they_are_documented() -> None:
    Profiles.model_validate_json(send_request("GET", "/v1/profiles").text, strict=True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"query": "?", "top_k": 0}, None),
        ({"query": "?"}, NotFoundError("no collection")),
        ({"query": "?"}, StageTimeoutError("retrieve", 1.0)),
    ],
)
def test_problems_are_as_they_are_documented(body: object, error: RagError | None) -> None:
    problem = Problem.model_validate_json(send_request("POST", "/v1/retrieve", body, error).text, strict=True)
    assert problem.status >= 400


def test_every_route_documents_its_success_and_its_problems(schema: dict[str, Any]) -> None:
    for path, routes in schema["paths"].items():
        for method, route in routes.items():
            media_types = {status: list(answer.get("content", {})) for status, answer in route["responses"].items()}
            assert any(status < "300" for status in media_types), (method, path)
            assert {"403", "404", "422", "500", "503"} <= media_types.keys(), (method, path)
            assert media_types["422"] == ["application/problem+json"], (method, path)


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/answer", "/v1/chat/completions"])
def test_the_documented_examples_of_bodies_are_accepted(schema: dict[str, Any], path: str) -> None:
    body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    (example, *_) = schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]["examples"]
    assert send_request("POST", path, example).status_code == 200


@pytest.mark.parametrize("path", ["/v1/answer", "/v1/chat/completions"])
def test_streams_are_documented_as_events(schema: dict[str, Any], path: str) -> None:
    assert schema["paths"][path]["post"]["responses"]["200"]["content"].keys() == {
        "application/json",
        "text/event-stream",
    }
