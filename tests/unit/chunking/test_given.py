"""The checks of chunks and vectors that documents bring."""

from uuid import UUID

import numpy as np
import pytest

from rag_core.chunking.given import GivenChunker, stack_given_vectors
from rag_core.errors import DocumentError
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Chunk, Document, GivenChunk

TEXT = "The gate is open.  The lock is shut. The gate is open."
ID = UUID(int=7)


class NoChunker:
    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        raise AssertionError((document_id, document))


def document(*chunks: GivenChunk) -> Document:
    return Document(uri="a", text=TEXT, given=chunks)


def split(*chunks: GivenChunk, max_tokens: int = 8) -> tuple[Chunk, ...]:
    return GivenChunker(NoChunker(), WordTokenizer(), max_tokens).split(ID, document(*chunks))


def test_given_chunks_are_kept_without_the_white_space_around_them() -> None:
    chunks = split(GivenChunk(start=0, end=18), GivenChunk(start=17, end=36, prefix="Locks", metadata={"page": 1}))
    assert [(chunk.text, chunk.start, chunk.end) for chunk in chunks] == [
        ("The gate is open.", 0, 17),
        ("The lock is shut.", 19, 36),
    ]
    assert [chunk.ordinal for chunk in chunks] == [0, 1]
    assert (chunks[1].prefix, chunks[1].metadata) == ("Locks", {"page": 1})


def test_equal_texts_have_different_ids() -> None:
    first, second = split(GivenChunk(start=0, end=17), GivenChunk(start=37, end=54))
    assert first.text == second.text
    assert first.id != second.id


def test_only_a_chunk_with_a_vector_can_be_longer_than_the_window() -> None:
    assert split(GivenChunk(start=0, end=54, vector=(1.0,)), max_tokens=8)
    with pytest.raises(DocumentError) as raised:
        split(GivenChunk(start=0, end=54), max_tokens=8)
    assert "chunk 0 must have at most 8 tokens" in raised.value.reason


@pytest.mark.parametrize("span", [(-1, 4), (4, 4), (9, 3), (0, 55)])
def test_a_chunk_must_be_a_span_of_the_text(span: tuple[int, int]) -> None:
    with pytest.raises(DocumentError) as raised:
        split(GivenChunk(start=span[0], end=span[1]))
    assert f"chunk 0 must be a span of the 54 characters of the text, got [{span[0]}, {span[1]})" in raised.value.reason


def test_a_blank_chunk_is_refused() -> None:
    with pytest.raises(DocumentError) as raised:
        split(GivenChunk(start=17, end=19))
    assert "must not be blank" in raised.value.reason


def test_vectors_are_stacked_in_the_order_of_the_chunks() -> None:
    matrix = stack_given_vectors(
        document(GivenChunk(start=0, end=3, vector=(0.6, 0.8)), GivenChunk(start=4, end=8, vector=(1.0, 0.0))), 2
    )
    assert matrix is not None
    np.testing.assert_array_equal(matrix, np.array([[0.6, 0.8], [1, 0]], np.float32))
    assert stack_given_vectors(document(GivenChunk(start=0, end=3)), 2) is None


@pytest.mark.parametrize(
    ("vectors", "rule"),
    [
        ([(1.0, 0.0), ()], "all chunks or none must have a vector, got 1 of 2"),
        ([(1.0, 0.0), (1.0,)], "the vector of chunk 1 must have the 2 dimensions"),
        ([(1.0, 0.0), (3.0, 4.0)], "the vector of chunk 1 must have length 1 (at most 0.01 more or less), got 5"),
        ([(0.0, 0.0), (1.0, 0.0)], "the vector of chunk 0 must have length 1"),
        ([(float("nan"), 0.0), (1.0, 0.0)], "the vector of chunk 0 must have length 1"),
    ],
)
def test_a_vector_that_does_not_fit_the_space_is_refused(vectors: list[tuple[float, ...]], rule: str) -> None:
    chunks = [GivenChunk(start=n, end=n + 3, vector=vector) for n, vector in enumerate(vectors)]
    with pytest.raises(DocumentError) as raised:
        stack_given_vectors(document(*chunks), 2)
    assert rule in raised.value.reason
