"""A user's own chunker: a broken promise or an error fails the document, and names the object."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from rag_core.chunking.checked import CheckedChunker
from rag_core.errors import DocumentError
from rag_core.types import Chunk, Document, chunk_id

ID, OTHER_ID = UUID(int=1), UUID(int=2)
DOCUMENT = Document(uri="file:///keys.md", text="Keys are rotated. Locks are oiled.")
KEYS, LOCKS = "Keys are rotated.", "Locks are oiled."


def chunk(text: str, start: int, ordinal: int) -> Chunk:
    return Chunk(
        id=chunk_id(ID, text, 0), document_id=ID, ordinal=ordinal, text=text, start=start, end=start + len(text)
    )


RIGHT = (chunk(KEYS, 0, 0), chunk(LOCKS, 18, 1))


@dataclass
class Returning:
    chunks: Callable[[], object]

    def split(self, *_: object) -> tuple[Chunk, ...]:
        return self.chunks()  # type: ignore[return-value]  # what a user's chunker can return


def fail() -> object:
    raise ValueError("my bug")


def split(chunks: Callable[[], object]) -> tuple[Chunk, ...]:
    return CheckedChunker(Returning(chunks), "acme:Mine").split(ID, DOCUMENT)


@pytest.mark.parametrize("chunks", [RIGHT, [*RIGHT], ()])
def test_right_chunks_pass(chunks: object) -> None:
    assert split(lambda: chunks) == tuple(chunks)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        (None, "split must return a tuple of chunks, got NoneType"),
        ((KEYS,), "split must return chunks, got str"),
        ((chunk("hello", 0, 0),), "chunk 0 must be document.text[0:5], 'Keys ', got 'hello'"),
        ((chunk(KEYS, 3, 0),), f"chunk 0 must be document.text[3:20], 's are rotated. Lo', got '{KEYS}'"),
        ((chunk(f"{KEYS} ", 0, 0),), f"must have text without white space at both ends, got '{KEYS} '"),
        ((chunk("", 0, 0),), "must have text without white space at both ends, got ''"),
        ((chunk(KEYS, 0, 1),), "ordinals must count from 0: that of chunk 0 is 1"),
        ((replace(RIGHT[0], document_id=OTHER_ID),), f"must have the document_id {ID}, got {OTHER_ID}"),
        ((RIGHT[0], replace(RIGHT[1], id=RIGHT[0].id)), "ids must differ; chunk 1 has the id of an earlier one"),
    ],
)
def test_a_broken_promise_fails_the_document(chunks: object, reason: str) -> None:
    with pytest.raises(DocumentError) as failure:
        split(lambda: chunks)
    assert str(failure.value).startswith("split: acme:Mine: ")
    assert reason in failure.value.reason


def test_an_error_fails_the_document_and_is_named() -> None:
    with pytest.raises(DocumentError, match="split: acme:Mine: ValueError: my bug"):
        split(fail)
