"""Documents that bring their chunks, as JSON."""

import json
from typing import Any

import pytest

from rag_core.errors import DocumentError
from rag_core.ingestion.given_documents import parse_given
from rag_core.types import Document, GivenChunk

TEXT = "The gate is open. The lock is shut. The gate is open."


def parse(**fields: Any) -> Document:
    def parse_body(uri: str, body: bytes) -> Document:
        return Document(uri=uri, text=body.decode(), title="parsed", metadata={"format": "text"})

    return parse_given("jsonl:file:///docs.jsonl#a", json.dumps(fields).encode(), "encoder", False, parse_body)


def test_chunks_are_spans_of_the_text_with_their_vectors() -> None:
    chunk = {"start": 0, "end": 17, "prefix": "Gates", "metadata": {"page": 2}, "vector": [0.6, 0.8]}
    document = parse(
        id="a", uri="https://example.org/a", title="Gates", text=TEXT, metadata={"year": 2026}, chunks=[chunk]
    )
    assert document.given == (GivenChunk(start=0, end=17, prefix="Gates", metadata={"page": 2}, vector=(0.6, 0.8)),)
    assert (document.title, document.text) == ("Gates", TEXT)
    assert document.metadata == {"year": 2026, "url": "https://example.org/a"}


def test_the_names_of_other_programs_are_read_too() -> None:
    chunk = {"content": "The lock is shut.", "start_index": 18, "end_index": 35, "embedding": [1.0]}
    assert parse(_id="a", content=TEXT, chunks=[chunk]).given == (GivenChunk(start=18, end=35, vector=(1.0,)),)


def test_chunks_with_texts_are_found_in_order() -> None:
    texts = ["The gate is open.", "The lock is shut.", "The gate is open."]
    document = parse(text=TEXT, chunks=[{"text": text} for text in texts])
    assert [(chunk.start, chunk.end) for chunk in document.given] == [(0, 17), (18, 35), (36, 53)]


def test_the_text_of_a_document_without_one_is_that_of_its_chunks() -> None:
    document = parse(chunks=[{"text": "One."}, {"text": "Two."}])
    assert document.text == "One.\n\nTwo."
    assert [document.text[chunk.start : chunk.end] for chunk in document.given] == ["One.", "Two."]


def test_a_vector_of_the_document_is_that_of_its_whole_text() -> None:
    assert parse(text=TEXT, embedding=[1.0]).given == (GivenChunk(start=0, end=len(TEXT), vector=(1.0,)),)


def test_a_document_without_chunks_is_parsed_by_its_media_type() -> None:
    document = parse(text="# Gates", media_type="text/markdown")
    assert (document.uri, document.given) == ("jsonl:file:///docs.jsonl#a", ())
    assert document.title == "parsed"
    assert document.metadata == {"format": "text"}


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"id": "a"}, "a document must have a text, or chunks with texts"),
        ({"text": " "}, "a document must have a text, or chunks with texts"),
        ({"text": TEXT, "vector": [1.0], "chunks": [{"start": 0, "end": 3}]}, "a vector or chunks, not both"),
        ({"text": TEXT, "chunks": [{"start": 0}]}, "a chunk must have start and end, or a text"),
        ({"text": TEXT, "chunks": [{"text": "The sluice"}]}, "chunk 0 must be a part of the text"),
        ({"text": TEXT, "chunks": [{"text": "The lock", "start": 0, "end": 8}]}, "chunk 0 must be a part of the text"),
        ({"text": TEXT, "colour": "red"}, "document.colour: unknown key"),
        ({"text": "NUL \0"}, "text must not contain NUL"),
        ({"text": TEXT, "media_type": "application/x-tar"}, "media_type must be one of text/plain"),
        ({"text": TEXT, "model": "other", "vector": [1.0]}, "the collection's model encoder, got other"),
    ],
)
def test_a_broken_rule_is_named(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(DocumentError, match="parse") as raised:
        parse(**fields)
    assert rule in raised.value.reason


def test_infinite_numbers_and_other_json_are_refused() -> None:
    for body in (b'{"text": "a", "vector": [1e999]}', b"[1]", b"{"):
        with pytest.raises(DocumentError):
            parse_given("a", body, "encoder", False, lambda uri, _: Document(uri=uri, text=""))
