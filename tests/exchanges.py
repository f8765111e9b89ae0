"""A recording of the gateway's HTTP exchanges, to compare before and after a change that must not alter them.

    python tests/exchanges.py record before.json
    python tests/exchanges.py record after.json
    python tests/exchanges.py compare before.json after.json

To record another version, run its copy of this file in its folder with `PYTHONPATH=.`, and all records with the same
`PYTHONHASHSEED`: answers of earlier versions depend on it.

Bodies are recorded byte for byte, except for random ids, times and durations, which are replaced by placeholders.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import gateways
import httpx2
from trees import hashing_settings, ingest
from workers import run_worker

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from serve.services import open_shared_resources

FOLDER = Path("/tmp/rag-exchanges")  # noqa: S108 - only what this script writes is in it
"""A fixed place, because addresses and ids of documents depend on it."""

CORPUS = Path(__file__).parent.parent / "demo" / "corpus"
QUESTIONS = ("What does a pilot cost for a ship of 40 metres?", "How often are the signing keys replaced?", "zebra")
DOCUMENT_ID, CHUNK_ID, JOB_ID, CURSOR = "{document_id}", "{chunk_id}", "{job_id}", "{cursor}"
"""Placeholders in paths, filled in from earlier responses."""

_VOLATILE = (
    (re.compile(r"\b(ret|ans|chatcmpl-|chatcmpl_)_?[0-9a-f]{32}"), r"\1<id>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "<uuid4>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"), "<uuid7>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r'("(?:ms|began_ms|limit_ms|total|seconds|docs_per_s|eta_s)":)(?:[0-9.e-]+|null)'), r"\1<duration>"),
    (re.compile(r'("created":)\d+'), r"\1<created>"),
    (re.compile(r'("version":)\d+'), r"\1<version>"),
    (re.compile(r'("age_days":)\d+'), r"\1<days>"),
    (re.compile(r'("next_cursor":)"[^"]*"'), r'\1"<cursor>"'),
)
_TIMINGS = re.compile(r'(?<="timings_ms":\{)[^}]*')
_SERVER_TIMING = re.compile(r"\w+;dur=.*")
_NUMBER = re.compile(r"(?<=[:=])[0-9.e-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request. `remember` names the placeholder that the response fills, and the path of its value in the body."""

    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] | None = None
    files: Any = None
    remember: tuple[str, tuple[str | int, ...]] | None = None


def exchanges() -> Iterator[Exchange]:
    yield from _list_reads()
    yield from _list_searches()
    yield from _list_answers()
    yield from _list_jobs()
    yield from _list_errors()


def _get(path: str, **headers: str) -> Exchange:
    return Exchange(method="GET", path=path, headers={name.replace("_", "-"): text for name, text in headers.items()})


def _post(path: str, body: Any, **headers: str) -> Exchange:
    renamed = {name.replace("_", "-"): text for name, text in headers.items()}
    return Exchange(method="POST", path=path, body=body, headers=renamed)


def _list_reads() -> Iterator[Exchange]:
    for path in ("/openapi.json", "/healthz", "/readyz", "/v1/collections", "/v1/profiles", "/v1/models", "/v1/jobs"):
        yield _get(path)
    first = ("data", 0, "id")
    yield Exchange(method="GET", path="/v1/documents?limit=3", remember=(DOCUMENT_ID, first))
    yield Exchange(method="GET", path="/v1/documents?limit=5", remember=(CURSOR, ("next_cursor",)))
    yield _get(f"/v1/documents?limit=5&cursor={CURSOR}")
    for status in ("completed", "failed", "skipped", "quarantined"):
        yield _get(f"/v1/documents?limit=50&status={status}")
    yield _get("/v1/documents?collection=nowhere")
    yield _get(f"/v1/documents/{DOCUMENT_ID}")
    yield _get(f"/v1/documents/{DOCUMENT_ID}/content")
    yield Exchange(method="GET", path=f"/v1/documents/{DOCUMENT_ID}/chunks", remember=(CHUNK_ID, first))
    yield _get(f"/v1/documents/{DOCUMENT_ID}/chunks?limit=1")
    for accept in ("application/json", "text/html"):
        yield _get(f"/v1/sources/{CHUNK_ID}", Accept=accept)
        yield _get(f"/v1/sources/{CHUNK_ID}?start=0&end=20", Accept=accept)
    yield _get("/v1/collections", Accept="application/vnd.medkg.orchestration.v1+json")
    yield _get("/v1/collections", X_Request_ID="mine")


def _list_searches() -> Iterator[Exchange]:
    options: tuple[dict[str, Any], ...] = (
        {},
        {"explain": True},
        {"top_k": 2},
        {"strategies": ["bm25"]},
        {"strategies": ["dense"], "explain": True},
        {"fusion_method": "rrf", "explain": True},
        {"fusion_method": "weighted", "weights": {"dense": 0.3, "bm25": 0.7}},
        {"fusion_method": "distribution"},
        {"candidates": 20, "top_k": 5},
        {"max_chunks_per_document": 1, "explain": True},
        {"filters": {"key": "language", "type": "eq", "value": "en"}},
        {"profile": "default"},
        {"conversation_id": "c1"},
        {"timeout_ms": 30000},
        {"collection": "empty"},
    )
    for question, more in product(QUESTIONS, options):
        yield _post("/v1/retrieve", {"query": question, **more})
    query = {"query": QUESTIONS[0], "top_k": 2}
    yield Exchange(method="POST", path="/v1/retrieve", body=query, remember=(CURSOR, ("next_cursor",)))
    yield _post("/v1/retrieve", {**query, "cursor": CURSOR})
    yield _post("/v1/query", query)
    for question in QUESTIONS:
        yield _post("/v1/vector_stores/default/search", {"query": question, "max_num_results": 3})
        yield _post("/v1/vector_stores/default/search", {"query": [question], "ranking_options": {"ranker": "auto"}})
    filters = {"type": "and", "filters": [{"key": "language", "type": "eq", "value": "de"}]}
    yield _post("/v1/vector_stores/default/search", {"query": QUESTIONS[0], "filters": filters})


def _list_answers() -> Iterator[Exchange]:
    options: tuple[dict[str, Any], ...] = (
        {},
        {"top_k": 2},
        {"guard": "off"},
        {"guard": "block"},
        {"guard": "regenerate", "conversation_id": "c2"},
        {"collection": "empty"},
    )
    for question, more, stream in product(QUESTIONS, options, (False, True)):
        yield _post("/v1/answer", {"question": question, "stream": stream, **more})
    rags: tuple[dict[str, Any], ...] = (
        {},
        {"citations": "markdown"},
        {"citations": "none", "explain": True},
        {"guard": "block", "top_k": 3},
    )
    for question, rag, stream in product(QUESTIONS[:2], rags, (False, True)):
        messages = [{"role": "system", "content": "x"}, {"role": "user", "content": question}]
        body = {"model": "default", "messages": messages, "stream": stream, "rag": rag}
        yield _post("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}} if stream else body)
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    yield _post("/v1/chat/completions", {"model": "default:default", "messages": [*turns, turns[0]]})


def _list_jobs() -> Iterator[Exchange]:
    documents = [
        {"id": "a", "title": "Oysters", "text": "Oysters are counted in May.", "metadata": {"team": "shore"}},
        {"id": "b", "uri": "https://example.org/b", "text": "Seals are counted in June."},
    ]
    bad = {"id": "c", "text": "a\u0000b"}
    wait = {"Prefer": "wait=20"}
    yield _post("/v1/ingest", {"collection": "pushed", "documents": documents}, **wait)
    yield _post("/v1/ingest", {"collection": "pushed", "documents": documents}, **wait)
    yield _post("/v1/ingest", {"collection": "pushed", "documents": [*documents, bad]}, **wait)
    yield _post("/v1/ingest", {"collection": "pushed", "documents": [bad, {"text": " "}]})
    remembered = (JOB_ID, ("job_id",))
    body = {"collection": "pushed", "documents": documents[:1]}
    yield Exchange(method="POST", path="/v1/ingest", body=body, headers=wait, remember=remembered)
    yield _get(f"/v1/jobs/{JOB_ID}")
    yield _get(f"/v1/jobs/{JOB_ID}/events")
    yield _post(f"/v1/jobs/{JOB_ID}/cancel", None)
    yield _post(f"/v1/jobs/{JOB_ID}/retry", None)
    source = {"type": "files", "locations": [f"file://{FOLDER}/missing"]}
    yield _post("/v1/ingest", {"collection": "pushed", "source": source}, **wait)
    files = [("files", ("note.md", b"# Note\n\nEels swim up in autumn.", "text/markdown"))]
    for sent in (files, [("files", ("broken.pdf", b"%PDF-1.7 nothing", "application/pdf"))]):
        yield Exchange(method="POST", path="/v1/ingest", files=sent, headers=wait, remember=remembered)
        yield _get(f"/v1/jobs/{JOB_ID}")
        yield _get(f"/v1/jobs/{JOB_ID}/events")
    yield _get("/v1/documents?collection=pushed")
    yield _get("/v1/collections")


def _list_errors() -> Iterator[Exchange]:
    nobody = "00000000-0000-5000-8000-000000000000"
    for path in ("documents", "jobs", "sources"):
        yield _get(f"/v1/{path}/{nobody}")
        yield _get(f"/v1/{path}/not-a-uuid")
    for path in (
        "/nowhere",
        "/v1/documents?limit=0",
        "/v1/documents?limit=9999",
        "/v1/documents?cursor=x",
        "/v1/jobs?x=1",
    ):
        yield _get(path)
    bodies: tuple[dict[str, Any], ...] = (
        *({}, {"query": ""}, {"query": "x" * 1001}, {"query": "a\u0000"}, {"query": "a", "nonsense": 1}),
        *({"query": "a", "top_k": 0}, {"query": "a", "top_k": "2"}, {"query": "a", "top_k": 9, "candidates": 3}),
        *({"query": "a", "strategies": ["splade"]}, {"query": "a", "rerank": True}, {"query": "a", "profile": "gpu"}),
        *({"query": "a", "weights": {"dense": 1}}, {"query": "a", "fusion_method": "ltr"}),
        *({"query": "a", "cursor": "x"}, {"query": "a", "filters": {"type": "near"}}, {"query": "a", "filters": {}}),
        {"query": "a", "filters": {"key": "page", "type": "gte", "value": "five"}},
    )
    for body in bodies:
        yield _post("/v1/retrieve", body)
    for body in ({"question": " "}, {"question": "a", "top_k": 0}, {"question": "a", "guard": "no"}, {"stream": True}):
        yield _post("/v1/answer", body)
    user = {"role": "user", "content": "a"}
    chats: tuple[dict[str, Any], ...] = (
        *({"model": "default", "messages": []}, {"model": "default", "messages": [{"role": "user", "content": " "}]}),
        *({"messages": [user]}, {"model": "default:gpu", "messages": [user]}, {"model": "default", "messages": [1]}),
        *({"model": "default", "messages": [user], "n": 2}, {"model": "default", "messages": [user], "rag": {"x": 1}}),
    )
    for body in chats:
        yield _post("/v1/chat/completions", body)
    for body in ({}, {"documents": []}, {"documents": [1]}, {"source": {"type": "web", "locations": ["a"]}}):
        yield _post("/v1/ingest", body)
    for content, media_type in ((b"{", "application/json"), (b"x", "text/plain"), (b"", "application/json")):
        headers = {"Content-Type": media_type}
        yield Exchange(method="POST", path="/v1/retrieve", content=content, headers=headers)
    yield Exchange(method="POST", path="/v1/retrieve", content=b" " * ((1 << 20) + 1))
    yield _post("/v1/retrieve", {"query": "a"}, Origin="https://evil.example")
    yield _post("/v1/retrieve", {"query": "a"}, Sec_Fetch_Site="cross-site")
    yield _get("/v1/collections", Accept="application/vnd.medkg.orchestration.v9+json")
    for method in ("PUT", "DELETE", "PATCH"):
        yield Exchange(method=method, path="/v1/retrieve")
        yield Exchange(method=method, path="/v1/collections")


async def run_exchanges(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    values: dict[str, str] = {}
    return [await _run_exchange(client, exchange, values) for exchange in exchanges()]


async def _run_exchange(client: httpx2.AsyncClient, exchange: Exchange, values: dict[str, str]) -> dict[str, Any]:
    path = _fill_in(exchange.path, values)
    body = json.loads(_fill_in(json.dumps(exchange.body), values))
    sent: dict[str, Any] = {} if body is None else {"json": body}
    if exchange.content is not None:
        sent["content"] = exchange.content
    response = await client.request(exchange.method, path, headers=exchange.headers, files=exchange.files, **sent)
    if exchange.remember:
        name, keys = exchange.remember
        value: Any = response.json()
        for key in keys:
            value = value[key]
        values[name] = value
    headers = [(name, _stabilize(value)) for name, value in response.headers.items() if name != "content-length"]
    request = f"{exchange.method} {exchange.path} {json.dumps(exchange.body)[:200]}"
    return {"request": request, "status": response.status_code, "headers": headers, "body": _stabilize(response.text)}


def _fill_in(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _stabilize(text: str) -> str:
    for timings in (_TIMINGS, _SERVER_TIMING):
        text = timings.sub(_sort_timings, text)
    for pattern, placeholder in _VOLATILE:
        text = pattern.sub(placeholder, text)
    return text


def _sort_timings(timings: re.Match[str]) -> str:
    """Sorts stages by name, because legs of a hybrid search can start in any order."""
    return ",".join(sorted(_NUMBER.sub("<duration>", part.strip()) for part in timings[0].split(",")))


def record(out: Path) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(CORPUS, FOLDER / "corpus")
    server = FOLDER / "postgres"
    try:
        store = Postgres.open(embedded.start(server))
        settings = hashing_settings(
            f"store.url={store.dsn}", "answering.budget=none", f'ingestion.allowed_locations=["{FOLDER}"]'
        )
        ingest(store, FOLDER / "corpus", settings=settings)
        with run_worker(settings):
            recorded = gateways.run_with_gateway(
                open_shared_resources(settings).build_services(settings), run_exchanges
            )
    finally:
        embedded.stop(server)
    out.write_text(json.dumps(recorded, indent=1, ensure_ascii=False))
    print(f"{len(recorded)} exchanges in {out}")


def compare(before: Path, after: Path) -> int:
    """The number of differences, which are printed."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    differences = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    for a, b in differences:
        print(f"{a['request']}\n- {a['status']} {a['headers']}\n- {a['body']}")
        print(f"+ {b['status']} {b['headers']}\n+ {b['body']}\n")
    print(f"{len(old)} exchanges, {len(differences)} differ")
    return len(differences)


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    if command == "record":
        record(Path(paths[0]))
    else:
        sys.exit(1 if compare(Path(paths[0]), Path(paths[1])) else 0)
