"""The log lines of the contract's stages."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest
from pdfs import pdf

from rag_core.contract import (
    QueryOptions,
    chat_with_documents,
    expand_query,
    graph_search,
    hybrid_search,
    index_document,
    keyword_search,
    rerank_chunks,
    vector_search,
)
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import configure_logs, query_hash

pytestmark = pytest.mark.postgres

QUESTION = "Who oils the locks of ann@example.org?"
ALL_METHODS = QueryOptions(enable_graph_search=True)

Lines: TypeAlias = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def shop(store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UUID:
    environment = {"STORE__URL": store.dsn, "EMBEDDING__TYPE": "hashing", "EMBEDDING__DIMENSION": "64"}
    for name, value in environment.items():
        monkeypatch.setenv(f"RAG_{name}", value)
    path = tmp_path / "keys.pdf"
    pages = (
        ["Keys are rotated every week by the crew of the northern gate."],
        ["In spring and in autumn the locks are oiled by Ada."],
    )
    path.write_bytes(pdf(*pages))
    return index_document("shop", path, {"chunk_size": 100, "overlap": 0})


@pytest.fixture
def lines() -> Lines:
    """Returns the lines of stages that were written since its last call."""
    stream = io.StringIO()
    configure_logs("notebook", stream=stream)

    def read() -> list[dict[str, Any]]:
        written = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
        return [line for line in written if line["event"] == "contract stage"]

    return read


def test_every_stage_of_an_answer_is_one_line_with_the_same_query_id(shop: UUID, lines: Lines) -> None:
    chat_with_documents("shop", QUESTION, ALL_METHODS)
    written = lines()
    assert [line["stage"] for line in written] == [
        *("preprocess_query", "get_query_embedding", "hybrid_search", "search_documents", "generate_answer"),
        "chat_with_documents",
    ]
    assert {line["level"] for line in written} == {"info"}
    assert len({UUID(line["query_id"]) for line in written}) == 1
    assert all(line["timestamp"].endswith("+00:00") and line["duration_ms"] >= 0 for line in written)
    by_stage = {line["stage"]: line for line in written}
    hybrid = by_stage["hybrid_search"]
    counts = {key: hybrid[key] for key in hybrid if key.endswith("_results")}
    assert counts == {"vector_results": 2, "keyword_results": 1, "graph_results": 0, "merged_results": 2}
    assert (hybrid["document_name"], by_stage["search_documents"]["results"]) == ("shop", 2)


def test_a_question_is_logged_as_its_hash_or_in_full_without_addresses(
    shop: UUID, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyword_search("shop", QUESTION)
    assert [line["question"] for line in lines()] == [query_hash(QUESTION)]
    monkeypatch.setenv("RAG_TELEMETRY__LOG_QUERIES", "full")
    keyword_search("shop", QUESTION)
    assert [line["question"] for line in lines()] == ["Who oils the locks of [e-mail]?"]


def test_each_method_counts_its_results(shop: UUID, lines: Lines) -> None:
    vector_search("shop", [1.0] * 64)
    keyword_search("shop", "locks")
    graph_search("shop", "Grace Hopper")
    first, second, third = lines()
    assert (first["stage"], first["vector_results"]) == ("vector_search", 2)
    assert (second["stage"], second["keyword_results"]) == ("keyword_search", 1)
    assert (third["stage"], third["graph_results"]) == ("graph_search", 0)
    assert len({line["query_id"] for line in (first, second, third)}) == 3


def test_warnings_and_errors_are_in_the_line_of_their_stage(shop: UUID, lines: Lines) -> None:
    chunks = hybrid_search("shop", "locks").chunks
    lines()
    rerank_chunks("locks", chunks)
    expand_query("locks")
    with pytest.raises(ValueError, match="docs_none"):
        keyword_search("none", "locks")
    reranked, expanded, searched = lines()
    assert reranked["warnings"] == ["the chunks are not reranked: the profile has no reranker"]
    assert reranked["reranked_results"] == 2
    assert [warning.partition(":")[0] for warning in expanded["warnings"]] == ["the question is not expanded"]
    assert searched["error"].startswith("ValueError: none cannot be searched: no collection 'docs_none'")
    assert searched["level"] == "info"


def test_the_stages_of_an_indexed_file_are_lines_without_a_query(shop: UUID, lines: Lines, tmp_path: Path) -> None:
    index_document("shop", tmp_path / "keys.pdf", {"chunk_size": 100, "overlap": 0})
    written = lines()
    assert [(line["stage"], line.get("document_name")) for line in written] == [
        ("parse_pdf", "keys.pdf"),
        ("chunk_text", None),
        ("embed_chunks", None),
        ("store_document", "shop"),
        ("index_document", "shop"),
    ]
    assert [line.get("chunks") for line in written] == [None, 2, 2, 2, 2]
    assert not any("query_id" in line for line in written)
