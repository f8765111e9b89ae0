from uuid import UUID

import pytest

from rag_core.chunking.positions import PagedChunker, path_at
from rag_core.chunking.sections import SectionsChunker
from rag_core.chunking.sentences import SentencesChunker
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Document, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
TEXT = "One two three four five six. Seven eight nine ten eleven twelve. Thirteen fourteen fifteen."


def pages(*begins: int) -> list[object]:
    chunker = PagedChunker(SectionsChunker(WordTokenizer(), 16, 0, 12))
    document = Document(uri="x", text=TEXT, pages=begins)
    return [chunk.metadata.get("page") for chunk in chunker.split(DOCUMENT, document)]


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ((), [None, None]),
        ((0,), [1, 1]),
        ((0, 30), [1, 2]),
        ((0, 65), [1, 2]),
        ((0, 66), [1, 1]),
        ((0, 9, 9, 30), [1, 4]),
    ],
)
def test_a_chunk_is_on_the_page_on_which_it_begins(begins: tuple[int, ...], expected: list[object]) -> None:
    assert pages(*begins) == expected


def test_the_text_before_the_first_heading_has_no_section() -> None:
    document = Document(uri="x", text=TEXT, sections=(Section(path=("A",), start=5), Section(path=("B",), start=9)))
    assert [path_at(document, offset) for offset in (0, 4, 5, 8, 9, 50)] == [(), (), ("A",), ("A",), ("B",), ("B",)]


def test_sentences_are_packed_across_sections() -> None:
    sections = (Section(path=("A",), start=0), Section(path=("B",), start=29), Section(path=("C",), start=65))
    document = Document(uri="x", text=TEXT, title="Manual", sections=sections)
    chunks = SentencesChunker(WordTokenizer(), 16, 0, 12).split(DOCUMENT, document)
    assert [chunk.text for chunk in chunks] == [TEXT[:64], TEXT[65:]]
    assert [(chunk.prefix, chunk.metadata) for chunk in chunks] == [
        ("Manual", {"section": "A"}),
        ("Manual", {"section": "C"}),
    ]
