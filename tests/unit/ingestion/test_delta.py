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


def stored(
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


def of_one(listed: Entry, known: StoredDocument, checksum: bool = False) -> Delta:
    return compute_delta([listed], {known.entry.uri: known}, lambda _: RECIPE, checksum)


def test_what_is_listed_and_not_stored_is_added() -> None:
    change = compute_delta([entry("a"), entry("b")], {}, lambda _: RECIPE)
    assert [each.uri for each in change.added] == ["a", "b"]
    assert (change.changed, change.deleted, change.same) == ((), (), 0)


def test_what_is_stored_and_not_listed_is_deleted() -> None:
    gone = stored(entry("gone"))
    change = compute_delta([entry("a")], {"a": stored(entry("a")), "gone": gone}, lambda _: RECIPE)
    assert change.deleted == (gone,)
    assert change.same == 1


def test_what_looks_as_it_did_is_the_same_and_needs_nothing() -> None:
    change = of_one(entry(), stored(entry()))
    assert (change.added, change.changed, change.deleted) == ((), (), ())
    assert (change.same, change.bytes) == (1, 0)


def test_what_could_not_be_read_and_is_as_it_was_is_counted_as_that() -> None:
    listed = [entry("good"), entry("broken"), entry("again")]
    known = {each.uri: stored(each, status="failed" if each.uri != "good" else "completed") for each in listed}
    known["again"] = replace(known["again"], retryable=True)
    change = compute_delta(listed, known, lambda _: RECIPE)
    assert (change.same, change.failed, len(change.changed)) == (2, 1, 1)


@pytest.mark.parametrize(
    "different",
    [{"size": 11}, {"modified_ns": OLD - 1}, {"modified_ns": OLD + 1}, {"changed_ns": OLD + 1}, {"etag": '"2"'}],
)
def test_another_size_time_or_etag_is_a_change(different: dict[str, int | str]) -> None:
    now = replace(entry(), **different)  # type: ignore[arg-type]
    known = stored(entry())
    assert of_one(now, known).changed == ((now, known),)


def test_another_recipe_is_a_change_of_exactly_the_documents_that_it_reads() -> None:
    entries = [entry("a.md"), entry("b.html")]
    known = {each.uri: stored(each) for each in entries}
    change = compute_delta(entries, known, lambda one: "recipe 2" if one.entry.uri.endswith(".html") else RECIPE)
    assert [each.uri for each, _ in change.changed] == ["b.html"]
    assert change.same == 1


@pytest.mark.parametrize(
    ("status", "retryable", "changed"),
    [("failed", True, 1), ("failed", False, 0), ("skipped", False, 0), ("completed", False, 0)],
)
def test_only_a_failure_that_may_pass_is_tried_again(status: DocumentStatus, retryable: bool, changed: int) -> None:
    change = of_one(entry(), stored(entry(), status=status, retryable=retryable))
    assert (len(change.changed), change.same) == (changed, 1 - changed)


@pytest.mark.parametrize(("status", "changed"), [("failed", 1), ("completed", 0), ("skipped", 0), ("quarantined", 0)])
@pytest.mark.parametrize("before", [f"{RECIPE}{LIMITS_SEPARATOR}file_mb 1", RECIPE])
def test_other_limits_concern_only_what_failed(status: DocumentStatus, changed: int, before: str) -> None:
    known = stored(entry(), recipe=before, status=status)
    change = compute_delta([entry()], {"a": known}, lambda _: f"{RECIPE}{LIMITS_SEPARATOR}file_mb 2")
    assert len(change.changed) == changed


@pytest.mark.parametrize("time", ["modified_ns", "changed_ns"])
@pytest.mark.parametrize(
    ("before_listing", "changed"),
    [(-1, 1), (0, 1), (RACY_NS - 1, 1), (RACY_NS, 0), (RACY_NS + 1, 0)],
)
def test_what_was_written_within_a_tick_of_its_listing_may_have_changed_unseen(
    time: str, before_listing: int, changed: int
) -> None:
    listed_ns = LISTED + 123
    young = replace(entry(), **{time: listed_ns - before_listing})
    assert len(of_one(young, stored(young, listed_ns=listed_ns)).changed) == changed


@pytest.mark.parametrize(("seconds_before", "changed"), [(0, 1), (0.5, 1), (1, 0), (2, 0)])
def test_a_time_in_whole_seconds_has_a_tick_of_one(seconds_before: float, changed: int) -> None:
    listed_ns = 700 * SECOND + int(seconds_before * SECOND)
    young = entry(modified_ns=700 * SECOND, changed_ns=0)
    assert len(of_one(young, stored(young, listed_ns=listed_ns)).changed) == changed


def test_a_source_that_knows_no_times_is_not_racy() -> None:
    timeless = entry(modified_ns=0, changed_ns=0, etag='"1"')
    assert of_one(timeless, stored(timeless)).same == 1


def test_what_a_source_says_nothing_about_is_read_again() -> None:
    """As plain HTTP lists: neither times nor etags, and no sizes."""
    unknown = entry(size=0, modified_ns=0, changed_ns=0)
    assert [changed for changed, _ in of_one(unknown, stored(unknown)).changed] == [unknown]


def test_a_checksum_run_calls_all_that_is_stored_changed() -> None:
    entries = [entry("a"), entry("b"), entry("new")]
    known = {"a": stored(entry("a")), "b": stored(entry("b"))}
    change = compute_delta(entries, known, lambda _: RECIPE, checksum=True)
    assert [each.uri for each, _ in change.changed] == ["a", "b"]
    assert [each.uri for each in change.added] == ["new"]
    assert change.same == 0


def test_bytes_are_those_to_be_read() -> None:
    entries = [entry("new", size=100), entry("a", size=20), entry("b", size=3)]
    change = compute_delta(entries, {"a": stored(entry("a")), "b": stored(entry("b", size=3))}, lambda _: RECIPE)
    assert change.bytes == 120


def test_an_entry_that_is_listed_twice_is_done_once() -> None:
    assert len(compute_delta([entry("a"), entry("a", size=11)], {}, lambda _: RECIPE).added) == 1


uris = st.sampled_from("abcdefgh")
times = st.sampled_from([0, OLD, LISTED - SECOND, LISTED - 1, LISTED, LISTED + 1])
entries_of = st.builds(entry, uri=uris, size=st.integers(0, 2), modified_ns=times, changed_ns=times)
listings = st.lists(entries_of, unique_by=lambda each: each.uri)
documents = st.builds(
    stored,
    entries_of,
    recipe=st.sampled_from([RECIPE, "recipe 0"]),
    status=st.sampled_from(["completed", "failed", "skipped"]),
    retryable=st.booleans(),
)
manifests = st.lists(documents, unique_by=lambda each: each.entry.uri).map(
    lambda known: {each.entry.uri: each for each in known}
)
recipes: st.SearchStrategy[Callable[[StoredDocument], str]] = st.sampled_from(
    [lambda _: RECIPE, lambda one: f"recipe {one.entry.uri}"]
)


@given(listings, manifests, recipes, st.booleans())
def test_every_entry_is_added_changed_or_the_same_and_every_other_document_deleted(
    listed: list[Entry], known: dict[str, StoredDocument], recipe: Callable[[StoredDocument], str], checksum: bool
) -> None:
    change = compute_delta(listed, known, recipe, checksum)
    added = {each.uri for each in change.added}
    changed = {each.uri for each, _ in change.changed}
    names = {each.uri for each in listed}
    assert added == names - set(known)
    assert changed <= names & set(known)
    assert len(change.added) + len(change.changed) + change.same == len(listed)
    assert {document.entry.uri for document in change.deleted} == set(known) - names
    assert all(known[each.uri] is document for each, document in change.changed)
    assert all(each in listed for each in [*change.added, *(pair[0] for pair in change.changed)])


def test_the_members_of_a_listed_container_are_kept() -> None:
    inner = {uri: stored(entry(uri)) for uri in ("a.zip!/x.md", "a.zip!/b.tar!/y.md", "c.zip!/z.md")}
    change = compute_delta([entry("a.zip")], inner, lambda _: RECIPE)
    assert [document.entry.uri for document in change.deleted] == ["c.zip!/z.md"]
    assert (change.same, len(change.added)) == (0, 1)
    opened = compute_delta([entry("a.zip!/x.md")], inner | {"a.zip": stored(entry("a.zip"))}, lambda _: RECIPE)
    assert sorted(document.entry.uri for document in opened.deleted) == ["a.zip", "a.zip!/b.tar!/y.md", "c.zip!/z.md"]


def test_a_member_is_the_same_as_long_as_its_size_and_etag_are() -> None:
    member = Entry(uri="a.zip!/x.md", size=3, modified_ns=0, etag="0a0b0c0d")
    assert of_one(member, stored(member)).same == 1
    assert len(of_one(replace(member, etag="0a0b0c0e"), stored(member)).changed) == 1
