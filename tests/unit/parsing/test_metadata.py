from dataclasses import replace

import pytest

from rag_core.parsing.metadata import MetadataRules, apply_rules, complete_metadata
from rag_core.types import Document, Metadata, Section

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
def test_the_language_is_the_declared_one_or_else_identified_from_the_text(
    named: str, text: str, language: str
) -> None:
    assert complete_metadata(document(text, language=named)).language == language


def test_no_language_is_identified_if_that_is_switched_off() -> None:
    assert complete_metadata(document(GERMAN), detect_language=False).language == ""


@pytest.mark.parametrize(
    ("title", "headings", "media_type", "expected"),
    [
        ("Own", ("Heading",), "text/plain", "Own"),
        ("0000320193-23-000106", ("Heading", "Second"), "text/plain", "Heading"),
        ("Slide 1", ("Sheet1",), "text/plain", "My notes.v2"),
        ("Form 10-K", (), "text/plain", "My notes.v2"),
        ("", ("key",), "application/json", "My notes.v2"),
    ],
)
def test_a_title_without_words_becomes_the_first_heading_or_the_files_name(
    title: str, headings: tuple[str, ...], media_type: str, expected: str
) -> None:
    sections = tuple(Section(path=(heading,), start=i) for i, heading in enumerate(headings))
    assert complete_metadata(document(title=title, sections=sections, media_type=media_type)).title == expected


def test_a_title_without_words_stays_if_nothing_has_words() -> None:
    assert complete_metadata(document(uri="file:///x/31715818.md", title="-")).title == "-"
    assert complete_metadata(document(uri="file:///x/31715818.md")).title == "31715818"


def test_titles_and_headings_have_a_maximum_length() -> None:
    sections = (Section(path=("Short", "heading " * 100), start=0),)
    completed = complete_metadata(document(title="title " * 100, sections=sections))
    assert [len(text) for text in (completed.title, *completed.sections[0].path)] == [500, 5, 500]


def test_the_path_can_set_the_title() -> None:
    rules = MetadataRules(from_path=r"/(?P<folder>\w+)/(?P<title>[^/]+)\.md$")
    ruled = apply_rules(document(title="Own", uri="file:///x/tide_gates.md"), rules)
    assert (ruled.title, ruled.metadata) == ("tide gates", {"folder": "x"})


def test_the_files_name_replaces_a_missing_title() -> None:
    assert complete_metadata(document()).title == "My notes.v2"
    assert complete_metadata(document(title="Own")).title == "Own"
    assert complete_metadata(document(uri="file:///x/a%0Ab")).title == "a b"


@pytest.mark.parametrize(
    ("raw", "metadata"),
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
def test_metadata_has_one_shape(raw: Metadata, metadata: Metadata) -> None:
    assert complete_metadata(document(metadata=raw)).metadata == metadata


GIVEN = {"kind": "memo", "dept": "sea", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("rules", "metadata"),
    [
        (MetadataRules(), GIVEN),
        (MetadataRules(set={"source": "pmc", "kind": "note"}), {**GIVEN, "kind": "note", "source": "pmc"}),
        (MetadataRules(rename={"dept": "department"}), {"kind": "memo", "tags": ["a", "b"], "department": "sea"}),
        (MetadataRules(rename={"dept": "kind"}), {"kind": "sea", "tags": ["a", "b"]}),
        (MetadataRules(rename={"kind": "dept"}), {"dept": "memo", "tags": ["a", "b"]}),
        (MetadataRules(rename={"none": "kind"}), GIVEN),
        (MetadataRules(drop=("kind", "none")), {"dept": "sea", "tags": ["a", "b"]}),
        (MetadataRules(rename={"dept": "kind"}, drop=("kind",)), {"tags": ["a", "b"]}),
        (
            MetadataRules(from_path=r"/(?P<folder>\w+)/(?P<kind>\w+) (?P<none>x)?"),
            {**GIVEN, "folder": "x", "kind": "My"},
        ),
        (MetadataRules(from_path=r"/(?P<folder>nowhere)/"), GIVEN),
        (MetadataRules(from_path=r"/(?P<kind>\w+)/", set={"kind": "note"}), {**GIVEN, "kind": "note"}),
    ],
)
def test_rules_map_metadata(rules: MetadataRules, metadata: Metadata) -> None:
    assert apply_rules(document(metadata=GIVEN), rules).metadata == metadata


@pytest.mark.parametrize(
    ("rules", "language"),
    [
        (MetadataRules(), "fr"),
        (MetadataRules(set={"language": "de-AT"}), "de"),
        (MetadataRules(set={"language": "none of them"}), "fr"),
        (MetadataRules(from_path=r"/(?P<language>\w)/"), "fr"),
        (MetadataRules(rename={"kind": "language"}), "fr"),
        (MetadataRules(rename={"tongue": "language"}), "it"),
    ],
)
def test_rules_set_the_language(rules: MetadataRules, language: str) -> None:
    detected = replace(document(metadata={"tongue": "it", "kind": "memo"}), language="fr")
    assert apply_rules(detected, rules).language == language
