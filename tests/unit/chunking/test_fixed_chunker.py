from uuid import UUID

import pytest

from rag_core.chunking.fixed import FixedChunker
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Chunk, Document, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
WORDS = " ".join(f"w{i}" for i in range(20))


def split(document: Document, unit: str = "tokens", size: int = 8, overlap: int = 0) -> tuple[Chunk, ...]:
    return FixedChunker(WordTokenizer(), unit, size, overlap, 12, 100).split(DOCUMENT, document)  # type: ignore[arg-type]


def texts(text: str, unit: str = "tokens", size: int = 8, overlap: int = 0) -> list[str]:
    return [chunk.text for chunk in split(Document(uri="x", text=text), unit, size, overlap)]


def words(first: int, last: int) -> str:
    return " ".join(f"w{i}" for i in range(first, last))


def test_chunks_have_their_size_in_tokens() -> None:
    assert texts(f"  {WORDS}\n") == [words(0, 8), words(8, 16), words(16, 20)]


def test_the_last_tokens_are_repeated() -> None:
    assert texts(WORDS, overlap=3) == [words(0, 8), words(5, 13), words(10, 18), words(15, 20)]


def test_chunks_have_their_size_in_characters_and_whole_words() -> None:
    assert texts("one two three four five", unit="chars", size=16) == ["one two three", "four five"]
    assert texts("one two three four five", unit="chars", size=16, overlap=6) == ["one two three", "three four five"]


def test_a_word_that_is_too_long_is_cut() -> None:
    assert texts("x" * 40, unit="chars", size=16) == ["x" * 16, "x" * 16, "x" * 8]
    assert texts("東京都は" * 8, unit="chars", size=16, overlap=4) == ["東京都は" * 4, "東京都は" * 4, "東京都は" * 2]


def test_characters_end_where_the_embedders_window_does() -> None:
    chunker = FixedChunker(WordTokenizer(), "chars", 1000, 0, 0, 5)
    assert [chunk.text for chunk in chunker.split(DOCUMENT, Document(uri="x", text=WORDS))] == [
        words(first, first + 5) for first in (0, 5, 10, 15)
    ]


def test_no_table_row_is_cut_and_its_header_is_in_the_prefix() -> None:
    rows = [f"| k{i} | v{i} |" for i in range(4)]
    table = "\n".join(["| key | value |", "|---|---|", *rows])
    document = Document(uri="x", text=f"Before it.\n\n{table}\n\nAfter it.", title="T")
    chunks = split(document, size=20)
    assert [chunk.text.splitlines()[-1] for chunk in chunks] == ["|---|---|", rows[3], "After it."]
    assert [chunk.prefix for chunk in chunks] == ["T", "T\n| key | value |", "T"]


def test_no_row_of_a_table_within_a_quotation_is_cut() -> None:
    rows = [f"> | k{i} | v{i} |" for i in range(8)]
    chunks = split(Document(uri="x", text="\n".join(["> | key | value |", *rows])), size=20)
    assert [line for chunk in chunks for line in chunk.text.splitlines()] == ["> | key | value |", *rows]
    assert {chunk.prefix for chunk in chunks[1:]} == {"| key | value |"}


@pytest.mark.parametrize("overlap", [2, 7, 11])
def test_an_overlap_begins_with_a_whole_row(overlap: int) -> None:
    rows = [f"| k{i} | v{i} |" for i in range(8)]
    chunks = texts("\n".join(["| key | value |", *rows]), size=16, overlap=overlap)
    assert all(line in ["| key | value |", *rows] for text in chunks for line in text.splitlines())


def test_a_chunk_names_the_section_that_it_begins_in() -> None:
    document = Document(uri="x", text=WORDS, title="T", sections=(Section(path=("A", "B"), start=len(words(0, 8))),))
    chunks = split(document)
    assert [chunk.metadata for chunk in chunks] == [{}, {"section": "A > B"}, {"section": "A > B"}]
    assert [chunk.prefix for chunk in chunks] == ["T", "T\nA > B", "T\nA > B"]


def test_white_space_gives_no_chunk() -> None:
    assert texts(" \n ") == []
