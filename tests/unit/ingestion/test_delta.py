from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.ingestion.delta import RACY_NS, WHOLE_SECOND_NS, Delta, compute_delta
from rag_core.ingestion.recipe import LIMITS_SEPARATOR
from rag_core.types import DocumentStatus, Entry, StoredDocument

SECOND = WHOLE_SECOND_NS
LISTED = 1_000 * SECOND
OLD = 500 * SECOND + 7
RECIPE = "recipe 1"


def entry(uri: str = "a", size: int = 10, modified_ns: int = OLD, changed_ns: int = OLD, etag: str = "") -> Entry:
    return Entry(uri=uri, size=size, modified_ns=modified_ns, changed_ns=changed_ns, etag=etag)


def build_document(
    listed: Entry,
    recipe: str = RECIPE,
    status: DocumentStatus = "completed",
    retryable: bool = False,
    listed_ns: int = LISTED,
) -> StoredDocument:
    return StoredDocument(
        id=UUID(int=len(listed.uri)),
        entry=listed,
        sha256=b"\1" * 32,
        recipe=recipe,
        status=status,
        retryable=retryable,
        listed_ns=listed_ns,
    )


def of_one(listed: Entry, stored: StoredDocument, checksum: bool = False) -> Delta:
    return compute_delta([listed], {stored.entry.uri: stored}, lambda _: RECIPE, checksum)


def test_a_listed_entry_that_is_not_stored_is_added() -> None:
    change = compute_delta([entry("a"), entry("b")], {}, lambda _: RECIPE)
    assert [entry.uri for entry in change.added] == ["a", "b"]
    assert (change.changed, change.deleted, change.same) == ((), (), 0)


def test_a_stored_document_that_is_not_listed_is_deleted() -> None:
    gone = build_document(entry("gone"))
    change = compute_delta([entry("a")], {"a": build_document(entry("a")), "gone": gone}, lambda _: RECIPE)
    assert change.deleted == (gone,)
    assert change.same == 1


def test_an_unchanged_entry_is_the_same_and_needs_nothing() -> None:
    change = of_one(entry(), build_document(entry()))
    assert (change.added, change.changed, change.deleted) == ((), (), ())
    assert (change.same, change.bytes) == (1, 0)


def test_an_unchanged_document_that_failed_for_good_is_counted_as_failed() -> None:
    listed = [entry("good"), entry("broken"), entry("again")]
    manifest = {
        entry.uri: build_document(entry, status="failed" if entry.uri != "good" else "completed") for entry in listed
    }
    manifest["again"] = replace(manifest["again"], retryable=True)
    change = compute_delta(listed, manifest, lambda _: RECIPE)
    assert (change.same, change.failed, len(change.changed)) == (2, 1, 1)


@pytest.mark.parametrize(
    "different",
    [{"size": 11}, {"modified_ns": OLD - 1}, {"modified_ns": OLD + 1}, {"changed_ns": OLD + 1}, {"etag": '"2"'}],
)
def test_another_size_time_or_etag_is_a_change(different: dict[str, int | str]) -> None:
    now = replace(entry(), **different)  # type: ignore[arg-type]
    stored = build_document(entry())
    assert of_one(now, stored).changed == ((now, stored),)


def test_another_recipe_is_a_change_of_exactly_the_documents_that_it_reads() -> None:
    entries = [entry("a.md"), entry("b.html")]
    manifest = {entry.uri: build_document(entry) for entry in entries}
    change = compute_delta(entries, manifest, lambda one: "recipe 2" if one.entry.uri.endswith(".html") else RECIPE)
    assert [entry.uri for entry, _ in change.changed] == ["b.html"]
    assert change.same == 1


@pytest.mark.parametrize(
    ("status", "retryable", "changed"),
    [("failed", True, 1), ("failed", False, 0), ("skipped", False, 0), ("completed", False, 0)],
)
def test_only_a_transient_failure_is_tried_again(status: DocumentStatus, retryable: bool, changed: int) -> None:
    change = of_one(entry(), build_document(entry(), status=status, retryable=retryable))
    assert (len(change.changed), change.same) == (changed, 1 - changed)


@pytest.mark.parametrize(("status", "changed"), [("failed", 1), ("completed", 0), ("skipped", 0), ("quarantined", 0)])
@pytest.mark.parametrize("before", [f"{RECIPE}{LIMITS_SEPARATOR}file_mb 1", RECIPE])
def test_other_limits_concern_only_what_failed(status: DocumentStatus, changed: int, before: str) -> None:
    stored = build_document(entry(), recipe=before, status=status)
    change = compute_delta([entry()], {"a": stored}, lambda _: f"{RECIPE}{LIMITS_SEPARATOR}file_mb 2")
    assert len(change.changed) == changed


@pytest.mark.parametrize("time", ["modified_ns", "changed_ns"])
@pytest.mark.parametrize(
    ("before_listing", "changed"),
    [(-1, 1), (0, 1), (RACY_NS - 1, 1), (RACY_NS, 0), (RACY_NS + 1, 0)],
)
def test_a_file_written_within_a_tick_of_its_listing_counts_as_changed(
    time: str, before_listing: int, changed: int
) -> None:
    listed_ns = LISTED + 123
    young = replace(entry(), **{time: listed_ns - before_listing})
    assert len(of_one(young, build_document(young, listed_ns=listed_ns)).changed) == changed


@pytest.mark.parametrize(("seconds_before", "changed"), [(0, 1), (0.5, 1), (1, 0), (2, 0)])
def test_a_time_in_whole_seconds_has_a_tick_of_one(seconds_before: float, changed: int) -> None:
    listed_ns = 700 * SECOND + int(seconds_before * SECOND)
    young = entry(modified_ns=700 * SECOND, changed_ns=0)
    assert len(of_one(young, build_document(young, listed_ns=listed_ns)).changed) == changed


def test_a_source_that_knows_no_times_is_not_racy() -> None:
    timeless = entry(modified_ns=0, changed_ns=0, etag='"1"')
    assert of_one(timeless, build_document(timeless)).same == 1


def test_an_entry_without_times_and_etag_is_read_again() -> None:
    """Plain HTTP lists have neither times nor etags nor sizes."""
    unknown = entry(size=0, modified_ns=0, changed_ns=0)
    assert [changed for changed, _ in of_one(unknown, build_document(unknown)).changed] == [unknown]


def test_a_checksum_run_calls_all_that_is_stored_changed() -> None:
    entries = [entry("a"), entry("b"), entry("new")]
    manifest = {"a": build_document(entry("a")), "b": build_document(entry("b"))}
    change = compute_delta(entries, manifest, lambda _: RECIPE, checksum=True)
    assert [entry.uri for entry, _ in change.changed] == ["a", "b"]
    assert [entry.uri for entry in change.added] == ["new"]
    assert change.same == 0


def test_bytes_are_those_to_be_read() -> None:
    entries = [entry("new", size=100), entry("a", size=20), entry("b", size=3)]
    change = compute_delta(
        entries, {"a": build_document(entry("a")), "b": build_document(entry("b", size=3))}, lambda _: RECIPE
    )
    assert change.bytes == 120


def test_an_entry_that_is_listed_twice_is_done_once() -> None:
    assert len(compute_delta([entry("a"), entry("a", size=11)], {}, lambda _: RECIPE).added) == 1


uris = st.sampled_from("abcdefgh")
times = st.sampled_from([0, OLD, LISTED - SECOND, LISTED - 1, LISTED, LISTED + 1])
entries_of = st.builds(entry, uri=uris, size=st.integers(0, 2), modified_ns=times, changed_ns=times)
listings = st.lists(entries_of, unique_by=lambda entry: entry.uri)
documents = st.builds(
    build_document,
    entries_of,
    recipe=st.sampled_from([RECIPE, "recipe 0"]),
    status=st.sampled_from(["completed", "failed", "skipped"]),
    retryable=st.booleans(),
)
manifests = st.lists(documents, unique_by=lambda document: document.entry.uri).map(
    lambda documents: {document.entry.uri: document for document in documents}
)
recipes: st.SearchStrategy[Callable[[StoredDocument], str]] = st.sampled_from(
    [lambda _: RECIPE, lambda one: f"recipe {one.entry.uri}"]
)


@given(listings, manifests, recipes, st.booleans())
def test_every_entry_is_added_changed_or_the_same_and_every_other_document_deleted(
    listed: list[Entry], manifest: dict[str, StoredDocument], recipe: Callable[[StoredDocument], str], checksum: bool
) -> None:
    change = compute_delta(listed, manifest, recipe, checksum)
    added = {entry.uri for entry in change.added}
    changed = {entry.uri for entry, _ in change.changed}
    names = {entry.uri for entry in listed}
    assert added == names - set(manifest)
    assert changed <= names & set(manifest)
    assert len(change.added) + len(change.changed) + change.same == len(listed)
    assert {document.entry.uri for document in change.deleted} == set(manifest) - names
    assert all(manifest[entry.uri] is document for entry, document in change.changed)
    assert all(entry in listed for entry in [*change.added, *(pair[0] for pair in change.changed)])


def test_the_members_of_a_listed_container_are_kept() -> None:
    inner = {uri: build_document(entry(uri)) for uri in ("a.zip!/x.md", "a.zip!/b.tar!/y.md", "c.zip!/z.md")}
    change = compute_delta([entry("a.zip")], inner, lambda _: RECIPE)
    assert [document.entry.uri for document in change.deleted] == ["c.zip!/z.md"]
    assert (change.same, len(change.added)) == (0, 1)
    opened = compute_delta([entry("a.zip!/x.md")], inner | {"a.zip": build_document(entry("a.zip"))}, lambda _: RECIPE)
    assert sorted(document.entry.uri for document in opened.deleted) == ["a.zip", "a.zip!/b.tar!/y.md", "c.zip!/z.md"]


def test_a_member_is_the_same_as_long_as_its_size_and_etag_are() -> None:
    member = Entry(uri="a.zip!/x.md", size=3, modified_ns=0, etag="0a0b0c0d")
    assert of_one(member, build_document(member)).same == 1
    assert len(of_one(replace(member, etag="0a0b0c0e"), build_document(member)).changed) == 1
