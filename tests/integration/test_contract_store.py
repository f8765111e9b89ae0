from pathlib import Path
from typing import Any

import pytest
from pdfs import pdf
from trees import read_tree, violations

from rag_core.contract import embed_chunks, graph_search, index_document, store_document
from rag_core.knowledge_base import open_knowledge_base
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT, document_id

pytestmark = pytest.mark.postgres

TEXTS = ["Keys are rotated every week.", "Locks are oiled in spring.", "Keys are rotated every week."]
ABOUT = {"filename": "keys.pdf", "file_path": "/nowhere/keys.pdf", "file_size": 10, "kind": "memo"}
HASHING = ["embedding.type=hashing", "embedding.dimension=64"]


@pytest.fixture
def hashing_store(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    environment = {"STORE__URL": store.dsn, "EMBEDDING__TYPE": "hashing", "EMBEDDING__DIMENSION": "64"}
    for name, value in environment.items():
        monkeypatch.setenv(f"RAG_{name}", value)
    return store


def hits(store: Postgres, collection: str, question: str, filters: dict[str, Any] | None = None) -> list[Any]:
    with open_knowledge_base(store.dsn, settings=HASHING) as knowledge:
        return list(knowledge.search(question, 3, collection, filters))


def test_a_stored_document_is_found(hashing_store: Postgres) -> None:
    id = store_document("shop", embed_chunks(TEXTS), ABOUT)
    assert id == document_id(DEFAULT_TENANT, "docs_shop", "file:///nowhere/keys.pdf")
    best, *_ = hits(hashing_store, "docs_shop", "When are locks oiled?")
    assert (best.chunk.text, best.chunk.document_id, best.origin.title) == (TEXTS[1], id, "keys")
    assert best.origin.metadata == ABOUT
    assert violations(hashing_store) == []


def test_storing_again_replaces_the_document(hashing_store: Postgres) -> None:
    first = store_document("shop", embed_chunks(TEXTS), ABOUT)
    assert store_document("shop", embed_chunks(["Doors are painted."]), {**ABOUT, "kind": "note"}) == first
    tree = read_tree(hashing_store, "docs_shop")
    assert tree.texts("keys.pdf") == ["Doors are painted."]
    assert tree.documents["file:///nowhere/keys.pdf"]["metadata"]["kind"] == "note"
    assert violations(hashing_store) == []


def test_documents_of_one_collection_stand_side_by_side(hashing_store: Postgres) -> None:
    store_document("shop", embed_chunks(TEXTS), ABOUT)
    store_document("shop", embed_chunks(["Doors are painted."]), {**ABOUT, "file_path": "https://x.org/doors.pdf"})
    assert sorted(read_tree(hashing_store, "docs_shop").documents) == [
        "file:///nowhere/keys.pdf",
        "https://x.org/doors.pdf",
    ]


def test_vectors_of_another_dimension_are_refused(hashing_store: Postgres) -> None:
    with pytest.raises(ValueError, match=r"vectors must have the model's dimension 64, got \[3\]"):
        store_document("shop", [("text", [1.0, 0.0, 0.0])], ABOUT)
    with pytest.raises(ValueError, match="at least one chunk"):
        store_document("shop", [], ABOUT)


def test_a_text_that_no_column_can_hold_is_refused_with_the_reason(hashing_store: Postgres) -> None:
    with pytest.raises(RuntimeError, match=r"docs_shop cannot store file:///nowhere/keys.pdf: .*0x00"):
        store_document("shop", embed_chunks(["a\0b"]), ABOUT)


def test_a_store_that_is_not_there_is_a_runtime_error(monkeypatch: pytest.MonkeyPatch, hashing_store: Postgres) -> None:
    pairs = embed_chunks(TEXTS)
    monkeypatch.setenv("RAG_STORE__URL", "host=/nonexistent user=nobody dbname=none")
    with pytest.raises(RuntimeError, match=r"docs_shop cannot store .*cannot use the store at"):
        store_document("shop", pairs, ABOUT)


def test_a_pdf_is_indexed_with_its_pages(hashing_store: Postgres, tmp_path: Path) -> None:
    path = tmp_path / "keys.pdf"
    lines = [f"The key number {n} is rotated in the week {n}." for n in range(12)]
    path.write_bytes(pdf(lines[:6], lines[6:]))
    id = index_document("shop", path, {"chunk_size": 120, "overlap": 20})
    chunks = read_tree(hashing_store, "docs_shop").chunks[path.as_uri()]
    assert len(chunks) > 3
    assert all(len(chunk["text"]) <= 120 for chunk in chunks)
    assert {chunk["metadata"]["page"] for chunk in chunks} == {1, 2}
    on_page_2 = hits(hashing_store, "docs_shop", "key 3", {"key": "page", "type": "gte", "value": 2})
    assert on_page_2
    assert all(hit.chunk.metadata["page"] == 2 and hit.chunk.document_id == id for hit in on_page_2)
    assert violations(hashing_store) == []


def test_the_entities_of_an_indexed_pdf_are_found_by_graph_search(hashing_store: Postgres, tmp_path: Path) -> None:
    path = tmp_path / "crew.pdf"
    path.write_bytes(
        pdf(
            ["The pumps at the northern gate are oiled by Ada Byron."],
            ["In winter Ada Byron and Grace Hopper paint doors."],
        )
    )
    id = index_document("shop", path, {"chunk_size": 100, "overlap": 0})
    chunks = graph_search("shop", "What does Grace Hopper do?")
    assert ["Grace Hopper" in chunk["text"] for chunk in chunks] == [True, False]  # the second by Ada Byron
    assert {chunk["source"] for chunk in chunks} == {"graph"}
    assert {hit.chunk.document_id for hit in hits(hashing_store, "docs_shop", "pumps")} == {id}
    assert graph_search("shop", "Who is Alan Turing?") == []
    assert violations(hashing_store) == []


def test_a_pdf_that_is_not_there_makes_no_collection(hashing_store: Postgres, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        index_document("shop", tmp_path / "none.pdf")
    assert read_tree(hashing_store, "docs_shop").documents == {}
