"""No reply names a path or an address of the server, whatever fails and wherever it is reported."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph

from rag_core.errors import (
    ClusterError,
    ConfigError,
    GenerationError,
    ListingError,
    ModelError,
    NotFoundError,
    RagError,
    RetrievalError,
    StoreError,
    UnavailableError,
)
from rag_core.ingestion.sources.location_rules import LocationRules
from rag_core.ingestion.sources.remote import remote_uri
from rag_core.models.encoders.model_files import find_model_folder, read_json
from rag_core.models.encoders.tokens import load_tokenizer
from rag_core.models.endpoint import HttpPool, HttpTransport
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.public_errors import HIDDEN, hide_places, public_message
from serve.readiness import Dependency
from serve.services import Services

FOLDER = Path("/opt/private/models/minilm")
PRIVATE = re.compile(r"/opt|private|minilm|127\.0\.0\.1|10\.11\.12\.13|vaulted|hunter2|::1")


def call_endpoint() -> None:
    async def call() -> None:
        pool = HttpPool()
        transport = HttpTransport(pool, base_url="http://127.0.0.1:1/v1", api_key_env="")
        try:
            async for _ in transport.open({"messages": [], "model": "m", "max_tokens": 1}):
                pass
        finally:
            await pool.aclose()

    asyncio.run(call())


def raise_error(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


FAILURES: list[Callable[[], object]] = [
    call_endpoint,
    lambda: load_tokenizer(FOLDER),
    lambda: find_model_folder(str(FOLDER)),
    lambda: read_json(Path(__file__)),
    raise_error(StoreError("lost the store at host=10.11.12.13 user=rag password=hunter2")),
    raise_error(ClusterError("cannot reach 10.11.12.13:6379")),
    raise_error(ModelError(f"{FOLDER}/config.json must have hidden_size")),
    raise_error(ConfigError(f"prompt.pack: cannot read {FOLDER}/prompt.yaml: [Errno 2] No such file")),
    raise_error(RetrievalError("no leg answered: dense: ConnectionError: cannot connect to vaulted:80")),
    raise_error(RetrievalError("dense: cannot connect to llm.vaulted:8443, [::1]:80 or https://vaulted/v1?a=b")),
    raise_error(GenerationError("the endpoint llm.vaulted refused with 404: no model at http://10.11.12.13/v1")),
    raise_error(GenerationError("the endpoint vaulted cannot be reached: ConnectError: to 10.11.12.13")),
    raise_error(UnavailableError("~/private/models is not readable")),
    raise_error(ListingError("'/opt/private/docs' cannot be listed completely")),
    raise_error(RagError(f"{FOLDER} is full")),
    raise_error(OSError(2, "No such file", str(FOLDER))),
]


def fail_once(failure: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 each is another kind
        failure()
    return raised.value


def replies(graph: Services, *requests: tuple[str, str, Any]) -> list[httpx2.Response]:
    async def send() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=build_fastapi(ServedProfiles(graph)), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.request(method, path, json=body) for method, path, body in requests]

    return asyncio.run(send())


@pytest.mark.parametrize("failure", FAILURES)
def test_no_reply_to_a_failure_names_a_path_or_an_address(failure: Callable[[], object]) -> None:
    error = fail_once(failure)
    assert PRIVATE.search(str(error)) or "test_public_errors" in str(error)
    question = {"question": "?", "stream": False}
    chat = {"model": "default", "messages": [{"role": "user", "content": "?"}], "rag": {"explain": True}}
    requests = [("POST", "/v1/answer", {**question, "stream": stream}) for stream in (False, True)]
    requests += [("POST", "/v1/chat/completions", {**chat, "stream": stream}) for stream in (False, True)]
    hits = [passage(1, "Keys are replaced every 45 days.").hit]
    broken_generator = ScriptedGenerator(answers=[[]] * 9, error=error)
    broken_retriever = ScriptedRetriever(hits=[], error=error)

    async def check() -> None:
        raise error

    graphs = [
        (scripted_graph(ScriptedRetriever(hits=hits), broken_generator), requests),
        (scripted_graph(broken_retriever), [*requests, ("POST", "/v1/retrieve", {"query": "?"})]),
    ]
    if isinstance(error, RagError):
        dependencies = {"part": Dependency(check, required=True)}
        graphs.append((replace(scripted_graph(), dependencies=dependencies), [("GET", "/readyz", None)]))
    bodies = [response.text for graph, sent in graphs for response in replies(graph, *sent)]
    assert len(bodies) >= 9
    assert [body for body in bodies if PRIVATE.search(body) or "test_public_errors" in body] == []


def test_an_error_that_quotes_the_client_keeps_its_words() -> None:
    error = NotFoundError("no document 'https://example.org/a' and no file:///srv/docs/a.md")
    (response,) = replies(
        scripted_graph(ScriptedRetriever(hits=[], error=error)), ("POST", "/v1/retrieve", {"query": "?"})
    )
    assert response.json()["detail"] == str(error)


def test_places_that_the_client_has_sent_are_kept() -> None:
    text = "https://docs.example/a cannot be used: '/srv/docs/b' and http://10.11.12.13:9000/bucket failed"
    places = ["https://docs.example/a", "file:///srv/docs/b"]
    assert hide_places(text, places) == f"https://docs.example/a cannot be used: '/srv/docs/b' and {HIDDEN} failed"


@pytest.mark.parametrize(
    "text",
    [
        "retrieve did not finish within 1 s",
        "top_k must be in 1 to 100, got 3/4 and a/b/c at #/filters/0/key",
        "use POST to ask, see API 3.8; 12:30 on 2026-05-02T00:00:00Z; 1.2.3 and and/or",
        "the endpoint is busy; the endpoint's content filter ended the answer",
    ],
)
def test_other_words_are_kept(text: str) -> None:
    assert public_message(text) == text


def test_a_driver_of_a_requests_location_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError('Could not connect to the endpoint URL: "http://minio.internal:9000/bucket"')

    monkeypatch.setattr("rag_core.ingestion.sources.remote._open_file_system", fail)
    rules = LocationRules(("s3://bucket",))
    assert str(fail_once(lambda: remote_uri("s3://bucket/a", rules))) == (
        "s3://bucket/a cannot be used as a source: ConnectionError"
    )
    assert "minio.internal" in str(fail_once(lambda: remote_uri("s3://bucket/a")))
