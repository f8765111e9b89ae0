import pytest

from rag_core.ingestion.metadata import described
from rag_core.types import Document, Metadata

GERMAN = "Das Mädchen läuft über die Straße zum Bäcker, weil es dort frische Brötchen gibt."


def document(text: str = "short", **facts: object) -> Document:
    return Document(**{"uri": "file:///x/My%20notes.v2.md", "text": text} | facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "text", "language"),
    [
        ("", GERMAN, "de"),
        ("", "A sentence of some forty letters, which is English.", "en"),
        ("en-GB", GERMAN, "en"),
        ("zh_Hant", GERMAN, "zh"),
        ("not a tag", GERMAN, "de"),
        ("", "too short", ""),
    ],
)
def test_the_language_is_the_documents_own_else_told_from_its_text(named: str, text: str, language: str) -> None:
    assert described(document(text, language=named)).language == language


def test_no_language_is_guessed_where_that_is_switched_off() -> None:
    assert described(document(GERMAN), detect_language=False).language == ""


def test_the_files_name_stands_in_for_a_title() -> None:
    assert described(document()).title == "My notes.v2"
    assert described(document(title="Own")).title == "Own"
    assert described(document(uri="file:///x/a%0Ab")).title == "a b"


@pytest.mark.parametrize(
    ("given", "metadata"),
    [
        ({"author": "A. B; C"}, {"authors": ["A. B", "C"]}),
        ({"authors": ["A", "B"], "author": "C"}, {"authors": ["A", "B"]}),
        ({"keywords": "x, y ,"}, {"tags": ["x", "y"]}),
        ({"meta-keywords": "x", "tags": ["z"]}, {"tags": ["z"]}),
        ({"meta-date": "2020-01-02", "meta-viewport": "no"}, {"date": "2020-01-02"}),
        ({"date": 2020, "own": 3}, {"date": "2020", "own": 3}),
        ({"description": " d "}, {"description": "d"}),
    ],
)
def test_metadata_has_one_shape(given: Metadata, metadata: Metadata) -> None:
    assert described(document(metadata=given)).metadata == metadata
