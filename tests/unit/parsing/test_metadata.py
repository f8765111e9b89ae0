from dataclasses import replace

import pytest

from rag_core.parsing.metadata import Rules, described, mapped
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


GIVEN = {"kind": "memo", "dept": "sea", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("rules", "metadata"),
    [
        (Rules(), GIVEN),
        (Rules(set={"source": "pmc", "kind": "note"}), {**GIVEN, "kind": "note", "source": "pmc"}),
        (Rules(rename={"dept": "department"}), {"kind": "memo", "tags": ["a", "b"], "department": "sea"}),
        (Rules(rename={"dept": "kind"}), {"kind": "sea", "tags": ["a", "b"]}),
        (Rules(rename={"kind": "dept"}), {"dept": "memo", "tags": ["a", "b"]}),
        (Rules(rename={"none": "kind"}), GIVEN),
        (Rules(drop=("kind", "none")), {"dept": "sea", "tags": ["a", "b"]}),
        (Rules(rename={"dept": "kind"}, drop=("kind",)), {"tags": ["a", "b"]}),
        (Rules(from_path=r"/(?P<folder>\w+)/(?P<kind>\w+) (?P<none>x)?"), {**GIVEN, "folder": "x", "kind": "My"}),
        (Rules(from_path=r"/(?P<folder>nowhere)/"), GIVEN),
        (Rules(from_path=r"/(?P<kind>\w+)/", set={"kind": "note"}), {**GIVEN, "kind": "note"}),
    ],
)
def test_rules_map_metadata(rules: Rules, metadata: Metadata) -> None:
    assert mapped(document(metadata=GIVEN), rules).metadata == metadata


@pytest.mark.parametrize(
    ("rules", "language"),
    [
        (Rules(), "fr"),
        (Rules(set={"language": "de-AT"}), "de"),
        (Rules(set={"language": "none of them"}), "fr"),
        (Rules(from_path=r"/(?P<language>\w)/"), "fr"),
        (Rules(rename={"kind": "language"}), "fr"),
        (Rules(rename={"tongue": "language"}), "it"),
    ],
)
def test_rules_tell_the_language(rules: Rules, language: str) -> None:
    detected = replace(document(metadata={"tongue": "it", "kind": "memo"}), language="fr")
    assert mapped(detected, rules).language == language
