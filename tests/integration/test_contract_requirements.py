"""The contract as its document lists it, D-001 to D-023: names, defaults, results and errors of every function.

Written from the document alone. Where the table of conflicts decides otherwise, the row says so (C...).
"""

import io
import json
import logging
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest
import stamina
from fakes.openai_endpoint import error_response, run_endpoint, stream_response
from pdfs import pdf

from rag_core import contract
from rag_core.contract import Citation, GeneratedResponse, QueryOptions, RetrievalResult, indexing
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import configure_logs
from rag_core.types import Matrix

pytestmark = pytest.mark.postgres

PAGES = (
    [f"Key number {n} of Grace Hopper is rotated in week {n}." for n in range(20)],
    [f"Lock number {n} is oiled by Ada Byron in week {n}." for n in range(20)],
)
QUESTION = "When is lock number 7 oiled by Ada Byron?"
KEYS = {"chunk_id", "text", "similarity_score", "source", "metadata"}
ABOUT = {"filename": "keys.pdf", "file_path": "/nowhere/keys.pdf", "file_size": 10}
NO_METHOD = QueryOptions(enable_vector_search=False, enable_keyword_search=False)

World: TypeAlias = "tuple[Path, pytest.MonkeyPatch]"
Call: TypeAlias = Callable[[World], Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A function of the contract. `fits` tells if the result of `call` has the documented shape."""

    number: str
    function: str
    parameters: str
    call: Call
    fits: Callable[[Any], bool]
    errors: Sequence[tuple[type[Exception], Call]] = field(default_factory=tuple)


def file(world: World, body: bytes | None = None) -> Path:
    """The PDF of the store, or a file with this content."""
    if body is None:
        return world[0] / "crew.pdf"
    (world[0] / "other.pdf").write_bytes(body)
    return world[0] / "other.pdf"


def set_section(world: World, name: str, values: Mapping[str, object]) -> None:
    for key, value in values.items():
        world[1].setenv(f"RAG_{name}__{key}".upper(), json.dumps(value))


def without_model(world: World) -> None:
    world[1].delenv("RAG_EMBEDDING__DIMENSION")
    world[1].setenv("RAG_EMBEDDING__TYPE", "bert")
    world[1].setenv("RAG_EMBEDDING__MODEL", "/nowhere/model")


def without_store(world: World) -> None:
    world[1].setenv("RAG_STORE__URL", "host=/nonexistent user=nobody dbname=none")


def with_language_model(world: World, url: str) -> None:
    generator = {"type": "openai", "model": "llama", "base_url": url, "attempts": 1, "fallback": "none"}
    set_section(world, "generation", generator)


def vector(question: str = QUESTION) -> list[float]:
    return contract.get_query_embedding(question)


def find_chunks(count: int = 2) -> list[dict[str, Any]]:
    """Chunks as a caller writes them."""
    return [dict(chunk) for chunk in contract.keyword_search("crew", QUESTION, top_k=count)]


def are_hits(source: str, limit: int) -> Callable[[Any], bool]:
    """True for 1 to `limit` dictionaries of D-008, best first."""

    def fits(hits: Any) -> bool:
        scores = [hit["similarity_score"] for hit in hits]
        return (
            isinstance(hits, list)
            and 0 < len(hits) <= limit
            and all(isinstance(hit, dict) and set(hit) == KEYS and isinstance(hit["chunk_id"], UUID) for hit in hits)
            and {hit["source"] for hit in hits} == {source}
            and all(0 <= score <= 1 for score in scores)
            and scores == sorted(scores, reverse=True)
        )

    return fits


def is_rescored(chunk: Mapping[str, Any]) -> bool:
    """True if a chunk of `find_chunks` has another score, and its metadata."""
    before = {hit["chunk_id"]: hit for hit in find_chunks(20)}[chunk["chunk_id"]]
    return before["similarity_score"] != chunk["similarity_score"] and before["metadata"] == chunk["metadata"]


def is_response(response: Any) -> bool:
    return (
        isinstance(response, GeneratedResponse)
        and "[1]" in response.answer_text
        and 0 < response.confidence <= 1
        and {citation.filename for citation in response.citations} == {"crew.pdf"}
    )


def answer_without_endpoint(world: World) -> Any:
    with run_endpoint(error_response(500, "no memory")) as endpoint:
        with_language_model(world, endpoint.url)
        return contract.generate_answer(QUESTION, find_chunks())


def expand_with_model(world: World) -> str:
    with run_endpoint(stream_response("bolts, lubricated")) as endpoint:
        with_language_model(world, endpoint.url)
        expanded = contract.expand_query(QUESTION)
    assert [request.body["temperature"] for request in endpoint.requests] == [0.1]
    return expanded


NO_NAMESPACE: Mapping[str, Call] = {
    "vector_search": lambda _: contract.vector_search("none", vector()),
    "keyword_search": lambda _: contract.keyword_search("none", QUESTION),
    "graph_search": lambda _: contract.graph_search("none", QUESTION),
    "hybrid_search": lambda _: contract.hybrid_search("none", QUESTION, QueryOptions()),
    "search_documents": lambda _: contract.search_documents("none", QUESTION, QueryOptions()),
    "chat_with_documents": lambda _: contract.chat_with_documents("none", QUESTION, QueryOptions()),
}
CONTRACT = [
    Row(
        number="D-001",
        function="parse_pdf",
        parameters="file_path",
        call=lambda world: contract.parse_pdf(str(file(world))),
        fits=lambda text: isinstance(text, str) and PAGES[0][0] in text,
        errors=[
            (FileNotFoundError, lambda world: contract.parse_pdf(str(world[0] / "none.pdf"))),
            (ValueError, lambda world: contract.parse_pdf(str(file(world, b"# Keys")))),
            (RuntimeError, lambda world: contract.parse_pdf(str(file(world, b"%PDF-1.7\nnothing more")))),
        ],
    ),
    Row(
        number="D-002",
        function="chunk_text",
        parameters="markdown, chunk_size=512, overlap=50",
        call=lambda _: contract.chunk_text(" ".join(PAGES[0])),
        fits=lambda chunks: len(chunks) > 1 and all(isinstance(text, str) and len(text) <= 512 for text in chunks),
        errors=[
            (ValueError, lambda _: contract.chunk_text("text", chunk_size=99)),
            (ValueError, lambda _: contract.chunk_text("text", chunk_size=100, overlap=100)),
        ],
    ),
    Row(
        number="D-003",
        function="embed_chunks",
        parameters="chunks",
        call=lambda _: contract.embed_chunks(["one", "two"]),
        fits=lambda pairs: [(text, len(values)) for text, values in pairs] == [("one", 64), ("two", 64)],  # C7
        errors=[
            (ValueError, lambda _: contract.embed_chunks([])),
            (RuntimeError, lambda world: [without_model(world), contract.embed_chunks(["one"])]),
        ],
    ),
    Row(
        number="D-004",
        function="store_document",
        parameters="name, embeddings, metadata",
        call=lambda _: contract.store_document("stored", contract.embed_chunks([QUESTION]), ABOUT),
        fits=lambda id: isinstance(id, UUID) and len(contract.graph_search("stored", "Ada Byron")) == 1,
        errors=[
            (ValueError, lambda _: contract.store_document("two words", [("text", vector())], ABOUT)),
            (ValueError, lambda _: contract.store_document("stored", [("text", vector())], {"filename": "keys.pdf"})),
            (
                RuntimeError,
                lambda world: [without_store(world), contract.store_document("a", [("b", vector())], ABOUT)],
            ),
        ],
    ),
    Row(
        number="D-005",
        function="expand_query",
        parameters="question",
        call=expand_with_model,
        fits=lambda question: question == f"{QUESTION} bolts lubricated",
    ),
    Row(
        number="D-006",
        function="preprocess_query",
        parameters="question, enable_expansion=False",
        call=lambda _: [contract.preprocess_query(f" {QUESTION}\n"), contract.preprocess_query(QUESTION, True)],
        fits=lambda questions: questions == [QUESTION, QUESTION],
    ),
    Row(
        number="D-007",
        function="get_query_embedding",
        parameters="question",
        call=lambda _: contract.get_query_embedding(QUESTION),
        fits=lambda values: len(values) == 64 and all(isinstance(value, float) for value in values),  # C7
        errors=[(RuntimeError, lambda world: [without_model(world), contract.get_query_embedding(QUESTION)])],
    ),
    Row(
        number="D-008",
        function="vector_search",
        parameters="name, query_embedding, top_k=20",
        call=lambda _: contract.vector_search("crew", vector()),
        fits=are_hits("vector", 20),
        errors=[
            (ValueError, NO_NAMESPACE["vector_search"]),
            (RuntimeError, lambda world: [without_store(world), contract.vector_search("crew", vector())]),
        ],
    ),
    Row(
        number="D-009",
        function="keyword_search",
        parameters="name, question, top_k=20",
        call=lambda _: contract.keyword_search("crew", QUESTION),
        fits=are_hits("keyword", 20),
        errors=[
            (ValueError, NO_NAMESPACE["keyword_search"]),
            (RuntimeError, lambda world: [without_store(world), contract.keyword_search("crew", QUESTION)]),
        ],
    ),
    Row(
        number="D-010",
        function="graph_search",
        parameters="name, question, top_k=10",
        call=lambda _: contract.graph_search("crew", QUESTION),
        fits=lambda hits: are_hits("graph", 10)(hits) and contract.graph_search("crew", "what is it?") == [],
        errors=[(ValueError, NO_NAMESPACE["graph_search"])],
    ),
    Row(
        number="D-011",
        function="hybrid_search",
        parameters="name, question, options",
        call=lambda _: contract.hybrid_search("crew", QUESTION, QueryOptions(enable_graph_search=True)),
        fits=lambda result: isinstance(result, RetrievalResult) and are_hits("hybrid", 40)(result.chunks),
        errors=[
            (ValueError, NO_NAMESPACE["hybrid_search"]),
            (ValueError, lambda _: contract.hybrid_search("crew", QUESTION, NO_METHOD)),
        ],
    ),
    Row(
        number="D-012",
        function="rerank_chunks",
        parameters="query, chunks, top_k=5",
        call=lambda world: [use_lexical_reranker(world), contract.rerank_chunks(QUESTION, find_chunks(20))][1],
        fits=lambda hits: are_hits("keyword", 5)(hits) and is_rescored(hits[0]),
        errors=[(ValueError, lambda _: contract.rerank_chunks(QUESTION, [{"text": "a chunk without its other keys"}]))],
    ),
    Row(
        number="D-013",
        function="generate_answer",
        parameters="question, chunks",
        call=lambda _: contract.generate_answer(QUESTION, find_chunks()),
        fits=is_response,
        errors=[
            (ValueError, lambda _: contract.generate_answer(QUESTION, [])),
            (RuntimeError, answer_without_endpoint),
        ],
    ),
    Row(
        number="D-014",
        function="index_document",
        parameters="name, file_path, options=None",
        call=lambda world: contract.index_document("again", str(file(world)), {"chunk_size": 200, "overlap": 20}),
        fits=lambda id: isinstance(id, UUID) and len(contract.graph_search("again", "Ada Byron", 100)) > 4,
        errors=[(FileNotFoundError, lambda world: contract.index_document("again", str(world[0] / "none.pdf")))],
    ),
    Row(
        number="D-015",
        function="search_documents",
        parameters="name, question, options",
        call=lambda _: contract.search_documents("crew", QUESTION, QueryOptions()),
        fits=are_hits("hybrid", 5),
        errors=[(ValueError, NO_NAMESPACE["search_documents"])],
    ),
    Row(
        number="D-016",
        function="chat_with_documents",
        parameters="name, question, options",
        call=lambda _: contract.chat_with_documents("crew", QUESTION, QueryOptions()),
        fits=is_response,
        errors=[(ValueError, NO_NAMESPACE["chat_with_documents"])],
    ),
]
MODULES = {
    "indexing": "parse_pdf chunk_text embed_chunks store_document",
    "pre_retrieval": "expand_query preprocess_query get_query_embedding",
    "retrieval": "vector_search keyword_search graph_search hybrid_search",
    "post_retrieval": "rerank_chunks",
    "generation": "generate_answer",
    "orchestration": "index_document search_documents chat_with_documents",
}


def use_lexical_reranker(world: World) -> None:
    reranked = {"type": "reranked", "retriever": {"type": "dense"}, "reranker": {"type": "lexical"}}
    set_section(world, "retrieval", reranked)


@pytest.fixture(scope="module")
def crew(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a PDF, which is indexed under the name `crew`."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "crew.pdf").write_bytes(pdf(*PAGES))
    environment = {"STORE__URL": module_store.dsn, "EMBEDDING__TYPE": "hashing", "EMBEDDING__DIMENSION": "64"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(f"RAG_{name}", value)
        for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            patch.delenv(name, raising=False)
        contract.index_document("crew", str(folder / "crew.pdf"), {"chunk_size": 100, "overlap": 0})
        yield folder


@pytest.fixture
def world(crew: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return crew, monkeypatch


def default_of(parameter: str) -> tuple[str, object]:
    """The name and the default of a parameter as it is written."""
    name, _, default = parameter.partition("=")
    return name, literal_eval(default) if default else Parameter.empty


@pytest.mark.parametrize("row", CONTRACT, ids=lambda row: row.number)
def test_parameters_have_the_documented_names_order_and_defaults(row: Row) -> None:
    documented = [default_of(parameter) for parameter in row.parameters.split(", ")]
    ours = [
        (name, parameter.default) for name, parameter in signature(getattr(contract, row.function)).parameters.items()
    ]
    first, others = ours[: len(documented)], ours[len(documented) :]
    assert [name for name, _ in first] == [name for name, _ in documented]
    assert [default for (_, default), (name, _) in zip(first, documented, strict=True) if name != "options"] == [
        default for name, default in documented if name != "options"
    ]
    assert [name for name, _ in others] in ([], ["strict"])  # C27
    assert all(default is False for _, default in others)


@pytest.mark.parametrize("row", CONTRACT, ids=lambda row: row.number)
def test_results_have_the_documented_shape(row: Row, world: World) -> None:
    assert row.fits(row.call(world))


@pytest.mark.parametrize(
    ("error", "call"),
    [pytest.param(error, call, id=row.number) for row in CONTRACT for error, call in row.errors],
)
def test_errors_have_the_documented_class(world: World, error: type[Exception], call: Call) -> None:
    with pytest.raises(error) as raised:
        call(world)
    assert type(raised.value) is error


def test_d_017_options_have_the_documented_defaults() -> None:
    assert {option.name: option.default for option in fields(QueryOptions)} == {
        "top_k": 5,
        "expand_query": False,
        "enable_reranking": True,
        "enable_vector_search": True,
        "enable_keyword_search": True,
        "enable_graph_search": False,
    }


def test_d_018_responses_have_the_documented_fields() -> None:
    assert [name.name for name in fields(GeneratedResponse)] == ["answer_text", "citations", "confidence"]
    assert {"chunk_id", "text_excerpt", "filename"} <= {name.name for name in fields(Citation)}
    required = [name.name for name in fields(RetrievalResult) if name.default is MISSING]
    assert required == ["chunks"]


def test_d_019_a_rate_limit_is_retried(world: World) -> None:
    class RateLimitError(Exception):
        status_code = 429

    class Busy:
        def __init__(self) -> None:
            self.batches: list[int] = []

        def embed(self, texts: Sequence[str]) -> Matrix:
            self.batches.append(len(texts))
            if len(self.batches) == 1:
                raise RateLimitError
            return Matrix((len(texts), 64))

    busy = Busy()
    world[1].setattr(indexing, "load_shared_encoder", lambda _: busy)
    with stamina.set_testing(True, attempts=4):
        assert len(contract.embed_chunks(["text"] * 30)) == 30
    assert busy.batches == [25, 25, 5]  # D-003: at most 25 a call


def test_d_020_permanent_errors_are_raised_at_once(world: World) -> None:
    world[1].setenv("RAG_CHUNKING__TOKENS", "many")
    with pytest.raises(RuntimeError, match=r"chunking\.tokens"):
        contract.keyword_search("crew", QUESTION)


def test_d_021_parts_that_fail_are_left_out_with_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    chunks = find_chunks(7)
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        assert contract.expand_query(QUESTION) == QUESTION
        assert contract.rerank_chunks(QUESTION, chunks) == chunks[:5]
        without_model(world)
        words_only = contract.hybrid_search("crew", QUESTION, QueryOptions()).chunks
    assert {chunk["chunk_id"] for chunk in chunks} <= {chunk["chunk_id"] for chunk in words_only}
    for part in ("the question is not expanded", "the chunks are not reranked", "searched crew without dense"):
        assert part in caplog.text


def test_d_022_a_stage_is_one_json_line_with_the_documented_keys(world: World) -> None:
    stream = io.StringIO()
    configure_logs("notebook", stream=stream)
    contract.hybrid_search("crew", QUESTION, QueryOptions(enable_graph_search=True))
    [line] = [line for line in map(json.loads, stream.getvalue().splitlines()) if line.get("stage") == "hybrid_search"]
    assert {
        *("timestamp", "stage", "query_id", "document_name", "duration_ms"),
        *("vector_results", "keyword_results", "graph_results", "merged_results"),
    } <= line.keys()


@pytest.mark.parametrize(("module", "names"), MODULES.items(), ids=MODULES)
def test_d_023_functions_are_in_the_documented_modules(module: str, names: str) -> None:
    for name in names.split():
        assert getattr(contract, name).__module__ == f"rag_core.contract.{module}"
        assert name in contract.__all__
