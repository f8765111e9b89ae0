import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.detection import choose_profile, detect_document_profile, detect_profile
from rag_core.errors import ConfigError
from rag_core.settings import read_detection
from rag_core.types import Document, Metadata

SIGNS = {
    "papers": {"source": ["pmc", "openalex"], "uri": ["*.nxml"]},
    "labels": {"source": ["daily*"], "year": ["20?4"]},
}


@pytest.mark.parametrize(
    ("metadata", "profile"),
    [
        ({"source": "pmc"}, "papers"),
        ({"source": "PMC"}, "papers"),
        ({"source": ["other", "openalex"]}, "papers"),
        ({"uri": "file:///a/b.nxml"}, "papers"),
        ({"source": "dailymed"}, "labels"),
        ({"year": 2024}, "labels"),
        ({"source": "pmc", "year": 2024}, "papers"),
        ({"source": "pmc2"}, ""),
        ({"kind": "pmc"}, ""),
        ({}, ""),
    ],
)
def test_a_profile_is_detected_by_any_of_its_signs(metadata: Metadata, profile: str) -> None:
    assert detect_profile(metadata, SIGNS) == profile


@pytest.mark.parametrize(
    ("explicit", "sources", "profile", "reason"),
    [
        ("mine", [{"source": "pmc"}], "mine", "explicit"),
        ("", [{"source": "pmc"}, {"uri": "x.nxml"}], "papers", "detected"),
        ("", [{"source": "pmc"}, {"source": "dailymed"}], "default", "different profiles: labels, papers"),
        ("", [{"source": "pmc"}, {"uri": "file:///x"}], "default", "different profiles: , papers"),
        ("", [{"uri": "file:///x"}], "default", "none detected"),
        ("", [], "default", "none detected"),
    ],
)
def test_the_explicit_profile_comes_before_the_detected_and_that_before_the_default(
    explicit: str, sources: list[Metadata], profile: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rag_core.detection"):
        assert choose_profile(explicit, sources, SIGNS) == profile
    [record] = caplog.records
    assert record.getMessage().startswith(f"profile {profile}: ")
    assert record.getMessage().endswith(reason)


@pytest.mark.parametrize(
    ("metadata", "profile"),
    [
        ({"source": "pmc"}, "pmc"),
        ({"source": "OpenAlex"}, "pmc"),
        ({"media_type": "application/jats+xml"}, "pmc"),
        ({"uri": "file:///data/PMC123.nxml"}, "pmc"),
        ({"source": "dailymed"}, "dailymed"),
        ({"uri": "file:///data/clinicaltrials"}, "clinicaltrials"),
        ({"uri": "https://clinicaltrials.gov/study/NCT1"}, "clinicaltrials"),
        ({"uri": "file:///data/all/NCT01234567.xml"}, "clinicaltrials"),
        ({"uri": "file:///data/all/nct-notes.md"}, ""),
        ({"uri": "file:///data/dm_spl_daily_update_11252026.zip!/a.zip!/a.xml"}, "dailymed"),
        ({"uri": "file:///home/pmc/docs"}, ""),
        ({"uri": "file:///srv/docs"}, ""),
    ],
)
def test_the_shipped_profiles_know_their_sources(metadata: Metadata, profile: str) -> None:
    assert detect_profile(metadata, read_detection().patterns) == profile


def test_with_a_file_only_its_profiles_are_detected(tmp_path: Path) -> None:
    """A shipped profile would override the settings of the file."""
    file = tmp_path / "rag.yaml"
    file.write_text("profiles: {mine: {detect: {source: [pmc]}}, dailymed: {chunking: {tokens: 100}}}")
    signs = read_detection(file).patterns
    assert list(signs) == ["mine"]
    assert detect_profile({"source": "pmc"}, signs) == "mine"
    assert detect_profile({"source": "clinicaltrials"}, signs) == ""


@pytest.mark.parametrize("detect", ["pmc", "{source: pmc}", "{source: [1]}"])
def test_signs_of_another_shape_are_refused_by_name(tmp_path: Path, detect: str) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(f"profiles: {{mine: {{detect: {detect}}}}}")
    with pytest.raises(ConfigError, match=r"detect.* of profile mine must be a (list|mapping) of patterns, got"):
        read_detection(file)


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.text()))))
def test_any_metadata_is_looked_at(metadata: Metadata) -> None:
    assert detect_profile(metadata, SIGNS) in ("", "papers", "labels")


@pytest.mark.parametrize(
    ("document", "profile"),
    [
        (Document(uri="file:///a.xml", text="a", media_type="application/jats+xml"), "pmc"),
        (
            Document(uri="push:///7", text="a", metadata={"url": "https://clinicaltrials.gov/study/NCT1"}),
            "clinicaltrials",
        ),
        (Document(uri="file:///a.md", text="a", metadata={"source": "dailymed"}), "dailymed"),
        (Document(uri="file:///a.md", text="a"), ""),
    ],
)
def test_a_document_shows_its_profile_by_media_type_metadata_or_url(document: Document, profile: str) -> None:
    assert detect_document_profile(document, read_detection().patterns) == profile


@pytest.mark.parametrize(("value", "profile"), [(None, ""), ([None, 2024], "labels"), ({"a": 1}, ""), (0, "")])
def test_metadata_that_a_client_sends_can_hold_null_and_lists_of_anything(value: Any, profile: str) -> None:
    assert detect_document_profile(Document(uri="", text="", metadata={"year": value}), SIGNS) == profile
