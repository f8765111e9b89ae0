"""The groups of a document: its own list, or else the rules."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from trees import hashing_settings, write
from zips import zip_bytes

from rag_core.errors import ConfigError, ListingError
from rag_core.ingestion.access import AccessRules
from rag_core.ingestion.sources.access_files import MAX_BYTES, parse_access_file
from rag_core.types import DocumentStatus, Entry, StoredDocument
from rag_core.wiring.ingestion import (
    build_access_rules,
    build_recipe,
    open_files_source,
    open_source,
    record_settings,
    settings_from_job,
)

HR = "{uri: 'file:///srv/hr/**', groups: [hr]}"
DEPARTMENT = "{key: department}"


def rules(*access: str, default: str = "[]") -> AccessRules:
    return build_access_rules(
        hashing_settings(f"metadata.access=[{', '.join(access)}]", f"metadata.access_default={default}")
    )


def groups(rules: AccessRules, uri: str, access: tuple[str, ...] | None = None, **metadata: Any) -> tuple[str, ...]:
    return rules.find_groups(Entry(uri=uri, size=1, modified_ns=1, access=access), metadata)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///srv/hr/pay.md", ("hr",)),
        ("file:///srv/hr/2026/pay.md", ("hr",)),
        ("file:///srv/hr/archive.zip!/pay.md", ("hr",)),
        ("file:///srv/%68r/pay.md", ("hr",)),
        ("jsonl:file:///srv/hr/people.jsonl#ada", ("hr",)),
        ("file:///srv/hr.md", ()),
        ("file:///srv/hrx/pay.md", ()),
        ("file:///other/srv/hr/pay.md", ()),
    ],
)
def test_a_rule_matches_decoded_uris(uri: str, expected: tuple[str, ...]) -> None:
    assert groups(rules(HR), uri) == expected


def test_a_pattern_can_be_encoded_like_the_uri() -> None:
    for pattern in ("file:///srv/HR Team/**", "file:///srv/HR%20Team/**"):
        assert groups(rules(f"{{uri: '{pattern}', groups: [hr]}}"), "file:///srv/HR%20Team/pay.md") == ("hr",)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"department": "legal"}, ("legal",)),
        ({"department": ["legal", "board", "legal"]}, ("board", "legal")),
        ({"department": True}, ("true",)),
        ({"department": 7}, ("7",)),
        ({"department": " "}, ()),
        ({"author": "legal"}, ()),
    ],
)
def test_the_values_of_a_key_are_the_groups(metadata: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert groups(rules(DEPARTMENT), "file:///a.md", **metadata) == expected


def test_a_rule_with_a_uri_and_a_key_needs_both() -> None:
    both = rules("{uri: 'file:///srv/**', key: private, groups: [board]}")
    assert groups(both, "file:///srv/a.md", private="yes") == ("board",)
    assert groups(both, "file:///srv/a.md") == groups(both, "file:///a.md", private="yes") == ()


def test_the_groups_of_all_matching_rules_are_joined() -> None:
    assert groups(rules(HR, DEPARTMENT), "file:///srv/hr/a.md", department="legal") == ("hr", "legal")


def test_the_default_is_for_documents_that_match_no_rule() -> None:
    closed = rules(HR, default="[operators]")
    assert groups(closed, "file:///a.md") == ("operators",)
    assert groups(closed, "file:///srv/hr/a.md") == ("hr",)


@pytest.mark.parametrize(
    ("status", "retryable", "expected"),
    [
        ("completed", False, ()),
        ("failed", True, ()),  # its earlier contents and their metadata are still stored
        ("failed", False, ("payroll",)),
        ("quarantined", False, ("payroll",)),
    ],
)
def test_a_document_without_stored_metadata_keeps_the_groups_that_it_gave(
    status: DocumentStatus, retryable: bool, expected: tuple[str, ...]
) -> None:
    entry = Entry(uri="file:///a.md", size=1, modified_ns=1)
    stored = StoredDocument(
        id=uuid4(),
        entry=entry,
        sha256=b"",
        recipe="",
        status=status,
        retryable=retryable,
        listed_ns=0,
        access=("payroll",),
    )
    assert rules(DEPARTMENT).find_stored_groups(entry, stored) == expected
    assert rules(DEPARTMENT).find_stored_groups(replace(entry, access=("hr",)), stored) == ("hr",)
    assert rules(HR).find_stored_groups(entry, stored) == ()


def test_the_own_list_of_a_document_replaces_the_rules() -> None:
    assert groups(rules(HR, default="[operators]"), "file:///srv/hr/a.md", ("legal", "board")) == ("board", "legal")
    assert groups(rules(HR, default="[operators]"), "file:///srv/hr/a.md", ()) == ()


@pytest.mark.parametrize("rule", ["{groups: [hr]}", "{uri: 'file:///srv/**'}", "{uri: a, groups: ['']}"])
def test_a_rule_that_would_say_nothing_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError):
        rules(rule)


def test_rules_change_no_recipe_and_no_pipeline_and_outlive_disabled_metadata() -> None:
    plain, ruled = hashing_settings(), hashing_settings(f"metadata.access=[{HR}]", "metadata.access_default=[a]")
    assert build_recipe(plain).fingerprint("a.md") == build_recipe(ruled).fingerprint("a.md")
    assert plain.pipeline_version == ruled.pipeline_version
    disabled = hashing_settings(f"metadata.access=[{HR}]", "metadata.enabled=false")
    assert groups(build_access_rules(disabled), "file:///srv/hr/a.md") == ("hr",)


def test_a_job_has_the_rules_of_now_and_those_of_another_profile_too() -> None:
    now = hashing_settings(f"metadata.access=[{HR}]", "metadata.access_default=[staff]")
    recorded = record_settings(hashing_settings("metadata.access=[{uri: 'file:///srv/**', groups: [all]}]"))
    access = []
    for profile in ("default", "other"):
        settings = settings_from_job({"id": uuid4(), "settings": {**recorded, "profile": profile}}, now)
        access.append(groups(build_access_rules(settings), "file:///srv/hr/a.md"))
    assert access == [("hr",), ("all", "hr")]
    without_rules = settings_from_job({"id": uuid4(), "settings": recorded}, hashing_settings())
    assert groups(build_access_rules(without_rules), "file:///srv/hr/a.md") == ("all",)
    del recorded["metadata"]["access"], recorded["metadata"]["access_default"]  # as an earlier version recorded them
    rules = build_access_rules(settings_from_job({"id": uuid4(), "settings": recorded}, now))
    assert (groups(rules, "file:///srv/hr/a.md"), groups(rules, "file:///a.md")) == (("hr",), ("staff",))


def list_access(folder: Path) -> dict[str, tuple[str, ...] | None]:
    source = open_files_source(hashing_settings("files.include=['**/*.md', '**/*.zip']"), str(folder))
    return {entry.uri.removeprefix(folder.as_uri() + "/"): entry.access for entry in source.listing()}


def test_the_nearest_access_file_counts_and_none_is_a_document(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.md": "A",
            "hr/.access.yaml": "groups: [hr]",
            "hr/-first.md": "F",
            "hr/deep/er/b.md": "B",
            "hr/open/.access.yaml": "groups: []",
            "hr/open/c.md": "C",
            "hr/pay.md": "P",
            "hr/pay.md.access.yaml": "groups: [payroll, board]",
        },
    )
    (tmp_path / "hr/old.zip").write_bytes(zip_bytes({"inner.md": b"I"}))
    (tmp_path / "hr/old.zip.access.yaml").write_text("groups: [archive]")
    assert list_access(tmp_path) == {
        "a.md": None,
        "hr/-first.md": ("hr",),
        "hr/deep/er/b.md": ("hr",),
        "hr/open/c.md": (),
        "hr/pay.md": ("payroll", "board"),
        "hr/old.zip!/inner.md": ("archive",),
    }


def test_a_single_file_has_the_access_file_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, {".access.yaml": "groups: [hr]", "a.md": "A", "b.jsonl": '{"id": "one", "text": "One"}\n'})
    (entry,) = open_files_source(hashing_settings(), str(tmp_path / "a.md")).listing()
    (line,) = open_source(hashing_settings(), f"jsonl:{tmp_path / 'b.jsonl'}").listing()
    assert entry.access == line.access == ("hr",)


def test_access_files_are_not_documents_in_folders_and_in_archives(tmp_path: Path) -> None:
    write(tmp_path, {".access.yaml": "groups: [hr]"})
    (tmp_path / "old.zip").write_bytes(zip_bytes({"hr/.access.yaml": b"groups: []", "hr/pay.md": b"P"}))
    settings = hashing_settings("files.include=['**']")
    assert [*open_files_source(settings, str(tmp_path / ".access.yaml")).listing()] == []
    (member,) = open_files_source(settings, str(tmp_path / "old.zip")).listing()
    assert (member.uri.rpartition("!")[2], member.access) == ("/hr/pay.md", ("hr",))


@pytest.mark.parametrize("name", [".access.yaml", "pay.md.access.yaml"])
def test_a_single_remote_file_has_the_access_file_next_to_it(name: str) -> None:
    system = fsspec.filesystem("memory")
    folder = f"/single/{name}"
    for path in ("pay.md", "other.md.access.yaml", name):
        system.pipe(f"{folder}/{path}", b"groups: [hr]")
    (entry,) = open_files_source(hashing_settings(), f"memory:/{folder}/pay.md").listing()
    assert entry.access == ("hr",)
    system.pipe(f"{folder}/{name}", b"groups: hr")
    with pytest.raises(ListingError, match="must be `groups"):
        list(open_files_source(hashing_settings(), f"memory:/{folder}/pay.md").listing())


def test_remote_folders_have_access_files_too() -> None:
    system = fsspec.filesystem("memory")
    for path, text in {"a.md": "A", "hr/pay.md": "P", "hr/.access.yaml": "groups: [hr]"}.items():
        system.pipe(f"/access/{path}", text.encode())
    source = open_files_source(hashing_settings(), "memory://access")
    assert {entry.uri.rpartition("/")[2]: entry.access for entry in source.listing()} == {
        "a.md": None,
        "pay.md": ("hr",),
    }


@pytest.mark.parametrize(
    "body", [b"", b"[hr]", b"groups: hr", b"groups: [1]", b"groups: ['']", b"group: [hr]", b"groups: [", b"\xff"]
)
def test_an_access_file_with_a_mistake_stops_the_listing(body: bytes) -> None:
    with pytest.raises(ListingError, match=r"the access file 'hr/\.access\.yaml'"):
        parse_access_file("hr/.access.yaml", body)


def test_an_access_file_that_is_too_large_or_leads_out_of_the_source_stops_the_listing(tmp_path: Path) -> None:
    write(tmp_path, {"secret.yaml": "groups: []", "docs/a.md": "A"})
    access = tmp_path / "docs/.access.yaml"
    access.symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(ListingError, match="cannot be read"):
        list_access(tmp_path / "docs")
    access.unlink()
    access.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(ListingError, match="at most"):
        list_access(tmp_path / "docs")
