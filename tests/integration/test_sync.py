"""A collection and its sources, from listing to store, with the hashing embedder on a real Postgres."""

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha512
from itertools import count
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import TypeAlias

import pytest
from archives import tar_bytes
from example_counts import scale_examples
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from trees import assert_same, hashing_settings, ingest, read_tree, violations, write
from zips import zip_bytes

from rag_core.config import Settings
from rag_core.errors import BusyError, ConfirmationError, DocumentError, ListingError, SourceError, SpaceError
from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.sync import DEFAULT_OPTIONS, SyncOptions
from rag_core.knowledge_base import KnowledgeBase
from rag_core.protocols import Source
from rag_core.storage.catalog import Catalog
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT, Entry, chunk_id, document_id
from rag_core.wiring.ingestion import build_inline_runner, build_sync, open_files_source

pytestmark = pytest.mark.postgres

YES = SyncOptions(confirmed=True)
KEYS = "# Keys\n\nThe keys are rotated every ninety days by the operator on duty.\n"
GATES = "# Gates\n\nThe sluice gates are opened at spring tide, never more than two at once.\n"
MENU = "<html><head><title>Menu</title></head><body><h1>Menu</h1><p>Soup of the day, with bread.</p></body></html>"
LOG = "At four the alarm rang. Nobody was hurt. The gate was closed by hand.\n"
TREE = {"keys.md": KEYS, "gates.md": GATES, "menu.html": MENU, "log.txt": LOG}


@dataclass
class WatchedSource:
    """A source whose reads are counted; `failing` holds, by file name, what reading raises."""

    inner: Source
    failing: dict[str, BaseException] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def listing(self) -> Iterator[Entry]:
        return self.inner.listing()

    def read(self, entry: Entry) -> bytes:
        name = entry.uri.rpartition("/")[2]
        self.reads.append(name)
        if name in self.failing:
            raise self.failing[name]
        return self.inner.read(entry)


@dataclass
class BrokenListing(WatchedSource):
    """A source that lists one entry, and then fails."""

    def listing(self) -> Iterator[Entry]:
        yield next(iter(self.inner.listing()))
        raise ListingError("the disk is gone")


def watch_folder(folder: Path) -> WatchedSource:
    return WatchedSource(open_files_source(hashing_settings(), str(folder)))


def run(
    store: Postgres, *sources: Source, settings: Settings | None = None, options: SyncOptions = DEFAULT_OPTIONS
) -> SyncReport:
    run_settings = settings or hashing_settings()
    job = replace(build_sync(run_settings, store, [], options=options), sources=sources)
    report = job.run(build_inline_runner(run_settings))
    assert violations(store) == []
    return report


def counts(report: SyncReport, *names: str) -> tuple[int, ...]:
    return tuple(report.documents[name] for name in names)


def jobs(store: Postgres) -> list[tuple[str, str | None]]:
    with store.connect() as connection:
        return [(job["status"], job["reason"]) for job in Ledger(connection, DEFAULT_TENANT).jobs()]


def settle(*folders: Path) -> None:
    """Makes the files older by a minute. A young file would be read again even without a change."""
    for folder in folders:
        for path in folder.rglob("*"):
            past = path.stat().st_mtime_ns - 60_000_000_000
            os.utime(path, ns=(past, past))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", TREE)


def test_a_first_sync_adds_every_document_and_accounts_for_each(store: Postgres, tree: Path) -> None:
    report = ingest(store, tree)
    assert counts(report, "listed", "added", "changed", "deleted", "same") == (4, 4, 0, 0, 0)
    assert counts(report, "completed", "failed", "skipped", "quarantined") == (4, 0, 0, 0)
    chunks = sum(len(rows) for rows in read_tree(store).chunks.values())
    assert report.chunks == {"stored": chunks, "embedded": chunks, "reused": 0, "deleted": 0}
    assert report.failures == []
    assert report.rate["documents_per_second"] > 0
    assert {"total", "list", "read_parse_split", "embed", "publish", "index", "start"} == set(report.seconds)
    assert jobs(store) == [("completed", None)]


def test_what_is_stored_is_what_the_files_say(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    stored = read_tree(store)
    assert {name: stored.documents[stored.uri(name)]["title"] for name in TREE} == {
        "keys.md": "Keys",
        "gates.md": "Gates",
        "menu.html": "Menu",
        "log.txt": "log",
    }
    assert stored.texts("log.txt") == [LOG.strip()]


def test_a_second_sync_has_nothing_to_do(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    report = ingest(store, tree)
    assert counts(report, "listed", "added", "changed", "deleted", "same", "completed") == (4, 0, 0, 0, 4, 0)
    assert (report.chunks["embedded"], report.chunks["deleted"]) == (0, 0)
    assert_same(read_tree(store), before)
    assert read_tree(store).ids == before.ids


def test_added_changed_and_deleted_documents_are_all_that_is_touched(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    write(tree, {"new.md": "# New\n\nNobody has read this before.\n", "keys.md": KEYS.replace("ninety", "thirty")})
    (tree / "log.txt").unlink()
    report = ingest(store, tree)
    assert counts(report, "listed", "added", "changed", "deleted", "same") == (4, 1, 1, 1, 2)
    assert counts(report, "completed", "failed") == (2, 0)
    assert report.chunks["deleted"] == 2  # of the log, and the old one of the keys
    after = read_tree(store)
    assert sorted(after.statuses()) == ["gates.md", "keys.md", "menu.html", "new.md"]
    assert "thirty days" in after.texts("keys.md")[0]
    for name in ("gates.md", "menu.html"):
        assert after.ids[after.uri(name)] == before.ids[before.uri(name)]


def test_a_touched_file_is_read_and_nothing_else_is_done(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    settle(tree)
    run(store, watch_folder(tree))
    os.utime(tree / "keys.md", ns=(1_600_000_000_000_000_000, 1_600_000_000_000_000_000))
    before, touched = read_tree(store), watch_folder(tree)
    report = run(store, touched)
    assert "keys.md" in touched.reads
    assert counts(report, "listed", "changed", "same", "completed") == (4, 0, 4, 0)
    assert read_tree(store).ids == before.ids


def test_a_touched_files_new_time_is_what_filters_and_hits_see(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    os.utime(tree / "keys.md", ns=(1_600_000_000_000_000_000, 1_600_000_000_000_000_000))
    ingest(store, tree)
    stored = read_tree(store)
    uri = stored.uri("keys.md")
    assert stored.documents[uri]["modified_ns"] == 1_600_000_000_000_000_000
    (updated_at,) = (text for key, text, _ in stored.values[uri] if key == "updated_at")
    assert updated_at.startswith("2020-09-13T12:26:40")


def test_a_moved_document_is_another_one_but_its_texts_are_not_encoded_again(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    (tree / "safety").mkdir()
    (tree / "keys.md").rename(tree / "safety" / "keys.md")
    report = ingest(store, tree)
    assert counts(report, "added", "deleted", "same", "completed") == (1, 1, 3, 1)
    assert (report.chunks["embedded"], report.chunks["reused"]) == (0, 1)
    after = read_tree(store)
    assert after.texts("keys.md") == before.texts("keys.md")
    assert after.ids[after.uri("keys.md")] != before.ids[before.uri("keys.md")]


def test_of_two_documents_with_equal_content_one_goes_alone(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path, {"keys.md": KEYS, "twin/keys.md": KEYS})
    report = ingest(store, folder)
    assert (report.chunks["stored"], report.chunks["embedded"], report.chunks["reused"]) == (2, 1, 1)
    (folder / "twin" / "keys.md").unlink()
    report = ingest(store, folder)
    assert (report.chunks["stored"], report.chunks["deleted"]) == (1, 1)
    assert read_tree(store).statuses() == {"keys.md": "completed"}


def test_an_emptied_file_is_skipped_and_no_longer_searched(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    (tree / "keys.md").write_text("")
    report = ingest(store, tree)
    assert counts(report, "changed", "completed", "failed", "skipped") == (1, 0, 0, 1)
    assert [(row["stage"], row["reason"]) for row in report.skipped] == [("parse", "empty")]
    assert read_tree(store).texts("keys.md") == []
    report = ingest(store, tree)
    assert counts(report, "same", "skipped") == (4, 0)


def test_a_file_that_nothing_reads_is_skipped_with_its_reason(store: Postgres, tree: Path) -> None:
    (tree / "plan.bin").write_bytes(b"\0\1\2")
    report = ingest(store, tree)
    assert counts(report, "added", "completed", "failed", "skipped") == (5, 4, 0, 1)
    assert [row["reason"] for row in report.skipped] == ["unsupported: binary content named .bin"]


def test_a_file_that_becomes_readable_again_is_searched_again(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    (tree / "keys.md").write_bytes(b"%PDF-1.7\n\0")
    ingest(store, tree)
    (tree / "keys.md").write_text(KEYS)
    ingest(store, tree)
    assert read_tree(store).ids == before.ids


def test_a_changed_recipe_does_every_document_again_and_encodes_only_what_is_cut_in_another_way(
    store: Postgres, tree: Path
) -> None:
    ingest(store, tree)
    report = ingest(store, tree, settings=hashing_settings("chunking.tokens=23"))
    assert counts(report, "changed", "same", "completed") == (4, 0, 4)
    assert (report.chunks["embedded"], report.chunks["reused"], report.chunks["deleted"]) == (0, 4, 0)
    report = ingest(store, tree, settings=hashing_settings("chunking.tokens=16"))
    assert report.documents["changed"] == 4
    assert report.chunks["embedded"] > 0
    assert_same(read_tree(store), ingest_afresh(store, tree, settings=hashing_settings("chunking.tokens=16")))


def ingest_afresh(store: Postgres, *folders: Path, settings: Settings | None = None):  # type: ignore[no-untyped-def]
    ingest(store, *folders, collection="fresh", settings=settings)
    return read_tree(store, "fresh")


@pytest.mark.slow
def test_ten_files_changed_in_a_paragraph_encode_ten_chunks_and_keep_all_other_ids(
    store: Postgres, tmp_path: Path
) -> None:
    folder, settings = (
        write(tmp_path, {f"{n:02}.md": paragraphs(n) for n in range(30)}),
        hashing_settings("chunking.tokens=40"),
    )
    report = ingest(store, folder, settings=settings)
    assert report.chunks == {"stored": 150, "embedded": 150, "reused": 0, "deleted": 0}
    before = read_tree(store)
    write(folder, {f"{n:02}.md": paragraphs(n, changed=2) for n in range(10)})
    report = ingest(store, folder, settings=settings)
    assert counts(report, "changed", "same") == (10, 20)
    assert report.chunks == {"stored": 150, "embedded": 10, "reused": 40, "deleted": 10}
    after = read_tree(store)
    assert sum(len(set(before.ids[uri]) - set(after.ids[uri])) for uri in after.ids) == 10


def paragraphs(number: int, changed: int = -1) -> str:
    """Five sections of a chunk each, one of them `changed`."""
    parts = (
        f"## Part {part}\n\nParagraph {part} of file {number} {'was changed and' if part == changed else ''} "
        "goes on for as many words as a chunk of its own wants.\n"
        for part in range(5)
    )
    return f"# File {number}\n\n" + "\n".join(parts)


def test_deleting_a_large_share_of_a_source_requires_a_yes_and_changes_nothing_without(
    store: Postgres, tree: Path
) -> None:
    ingest(store, tree)
    before = read_tree(store)
    for name in ("keys.md", "gates.md", "menu.html"):
        (tree / name).unlink()
    write(tree, {"new.md": KEYS})
    with pytest.raises(ConfirmationError, match=r"3 of the 4 stored documents of file://.*more than 50% .* --yes"):
        ingest(store, tree)
    assert read_tree(store).ids == before.ids
    assert violations(store) == []
    assert len(jobs(store)) == 1
    report = ingest(store, tree, options=YES)
    assert counts(report, "added", "deleted") == (1, 3)


def test_half_of_a_source_or_all_of_a_small_one_is_deleted_without_confirmation(
    store: Postgres, tmp_path: Path
) -> None:
    four = write(tmp_path / "four", dict.fromkeys(("a.md", "b.md", "c.md", "d.md"), KEYS))
    three = write(tmp_path / "three", dict.fromkeys(("a.md", "b.md", "c.md"), KEYS))
    ingest(store, four, three)
    for name in ("a.md", "b.md"):
        (four / name).unlink()
    for path in three.iterdir():
        path.unlink()
    assert ingest(store, four, three).documents["deleted"] == 5


def test_without_pruning_what_is_gone_stays_until_a_sync_that_prunes(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    for name in ("keys.md", "gates.md", "menu.html"):
        (tree / name).unlink()
    report = ingest(store, tree, options=SyncOptions(prune=False))
    assert counts(report, "listed", "deleted", "same") == (1, 0, 1)
    assert len(read_tree(store).documents) == 4
    assert ingest(store, tree, options=YES).documents["deleted"] == 3


def test_a_plan_says_what_a_sync_would_do_and_writes_nothing(store: Postgres, tree: Path) -> None:
    plan = build_sync(hashing_settings(), store, [str(tree)]).plan()
    assert (plan.listed, plan.added, plan.bytes) == (4, 4, sum(len(text) for text in TREE.values()))
    with store.connect() as connection:
        assert Catalog(connection, DEFAULT_TENANT).collections() == []
    ingest(store, tree)
    settle(tree)
    ingest(store, tree)
    write(tree, {"keys.md": KEYS + "Always.\n"})
    (tree / "log.txt").unlink()
    plan = build_sync(hashing_settings(), store, [str(tree)]).plan()
    assert (plan.listed, plan.added, plan.deleted, plan.changed + plan.same) == (3, 0, 1, 3)
    assert len(read_tree(store).documents) == 4


def test_a_listing_that_does_not_reach_its_end_deletes_nothing(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    with pytest.raises(ListingError, match="the disk is gone"):
        run(store, BrokenListing(open_files_source(hashing_settings(), str(tree))), options=YES)
    assert read_tree(store).ids == before.ids
    assert violations(store) == []
    assert jobs(store) == [("completed", None)]


def test_a_sync_of_one_source_leaves_those_of_another_alone(store: Postgres, tree: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {f"{n}.md": KEYS for n in range(5)})
    ingest(store, tree)
    ingest(store, other)
    for path in other.iterdir():
        path.unlink()
    report = ingest(store, other, options=YES)
    assert counts(report, "listed", "deleted") == (0, 5)
    assert read_tree(store).statuses() == dict.fromkeys(TREE, "completed")


def test_a_source_within_another_of_the_collection_is_refused_by_name(store: Postgres, tree: Path) -> None:
    inner = write(tree / "inner", {"a.md": KEYS})
    ingest(store, tree)
    with pytest.raises(SourceError, match=r"source file://.*/docs/inner overlaps source file://.*/docs of collection"):
        ingest(store, inner)
    with pytest.raises(SourceError, match="overlaps source"):
        ingest(store, tree.parent)
    assert ingest(store, inner, collection="another").documents["completed"] == 1


def test_sources_that_overlap_each_other_leave_nothing_behind(store: Postgres, tree: Path) -> None:
    inner = write(tree / "inner", {"a.md": KEYS})
    with pytest.raises(SourceError, match="overlaps source"):
        ingest(store, tree, inner)
    assert ingest(store, inner).documents["completed"] == 1


def test_two_jobs_that_meet_a_new_source_at_once_mean_the_same_one(store: Postgres) -> None:
    meeting = Barrier(2)

    def ids(_: int) -> list[int]:
        with store.connect() as connection:
            catalog = Catalog(connection, DEFAULT_TENANT)
            collection = catalog.ensure_collection("default")
            meeting.wait()
            return [catalog.ensure_source(collection, f"file:///srv/{number}") for number in range(20)]

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(ids, range(2))
    assert first == second
    assert len(set(first)) == 20


def test_a_folder_whose_name_begins_with_that_of_another_does_not_overlap(store: Postgres, tmp_path: Path) -> None:
    ingest(store, write(tmp_path / "docs", {"a.md": KEYS}))
    assert ingest(store, write(tmp_path / "docs-2", {"a.md": KEYS})).documents["completed"] == 1


def test_a_source_that_is_named_twice_is_one(store: Postgres, tree: Path) -> None:
    assert build_sync(hashing_settings(), store, [str(tree), f"{tree}/."]).plan().added == 4
    assert ingest(store, tree, tree).documents["added"] == 4


def test_what_is_known_of_the_last_listing_makes_a_second_sync_read_nothing(store: Postgres, tree: Path) -> None:
    settle(tree)
    first = watch_folder(tree)
    run(store, first)
    assert sorted(first.reads) == sorted(TREE)
    entries = [replace(entry, changed_ns=0) for entry in first.listing()]
    unchanged = Listed(first, entries)  # a status change cannot be made older than it is
    run(store, unchanged)
    unchanged.reads.clear()
    assert counts(run(store, unchanged), "same", "completed") == (4, 0)
    assert unchanged.reads == []
    assert counts(run(store, unchanged, options=SyncOptions(checksum=True)), "same", "completed") == (4, 0)
    assert sorted(unchanged.reads) == sorted(TREE)


@dataclass
class Listed(WatchedSource):
    """A source that lists these entries."""

    def __init__(self, inner: Source, entries: Sequence[Entry]) -> None:
        super().__init__(inner)
        self.entries = entries

    def listing(self) -> Iterator[Entry]:
        return iter(self.entries)


def test_a_failure_for_the_moment_is_tried_again_and_the_old_version_is_searched_until_then(
    store: Postgres, tree: Path
) -> None:
    ingest(store, tree)
    before = read_tree(store)
    write(tree, {"keys.md": KEYS.replace("ninety", "thirty")})
    failing = watch_folder(tree)
    failing.failing["keys.md"] = DocumentError("read", "connection reset", True)
    report = run(store, failing)
    assert counts(report, "changed", "failed") == (1, 1)
    assert [(failure["reason"], failure["retryable"]) for failure in report.failures] == [("connection reset", True)]
    assert read_tree(store).statuses()["keys.md"] == "failed"
    assert read_tree(store).texts("keys.md") == before.texts("keys.md")
    report = run(store, watch_folder(tree))
    assert counts(report, "changed", "completed", "failed") == (1, 1, 0)
    assert "thirty days" in read_tree(store).texts("keys.md")[0]


def test_a_temporary_failure_is_repaired_even_if_the_bytes_are_the_old_ones(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    failing = watch_folder(tree)
    failing.failing["keys.md"] = DocumentError("read", "connection reset", True)
    run(store, failing, options=SyncOptions(checksum=True))
    assert read_tree(store).statuses()["keys.md"] == "failed"
    run(store, watch_folder(tree))
    after = read_tree(store)
    assert after.statuses()["keys.md"] == "completed"
    assert after.ids == before.ids


def test_a_failure_for_good_is_not_tried_again_before_something_changes(store: Postgres, tree: Path) -> None:
    first = watch_folder(tree)
    first.failing["keys.md"] = DocumentError("parse", "page 3 has no text layer")
    entries = [replace(entry, modified_ns=10**18 + 1, changed_ns=0) for entry in first.listing()]
    listed = Listed(first, entries)
    assert counts(run(store, listed), "completed", "failed") == (3, 1)
    first.failing.clear()
    again = run(store, listed)
    assert counts(again, "same", "completed", "failed") == (4, 0, 0)
    (notice,) = again.notices
    assert notice.startswith("1 of the unchanged documents failed before")
    listed.entries = [replace(entry, modified_ns=10**18 + 2) for entry in entries]
    healed = run(store, listed)
    assert (counts(healed, "same", "completed", "failed"), healed.notices) == ((3, 1, 0), [])


def test_a_raised_limit_takes_in_what_was_too_large(store: Postgres, tree: Path) -> None:
    write(tree, {"long.txt": LOG * 20})
    sleep(0.05)  # longer than a tick of the file system: no file is young enough to be read again only for that
    low, high = hashing_settings("limits.file_mb=0.001"), hashing_settings("limits.file_mb=0.002")
    assert counts(ingest(store, tree, settings=low), "completed", "failed") == (4, 1)
    assert counts(ingest(store, tree, settings=low), "same", "failed") == (5, 0)
    report = ingest(store, tree, settings=high)
    assert counts(report, "changed", "same", "completed") == (1, 4, 1)
    assert read_tree(store).statuses()["long.txt"] == "completed"


@pytest.mark.slow
def test_a_lowered_limit_refuses_only_what_is_read_again(store: Postgres, tree: Path) -> None:
    write(tree, {"long.txt": LOG * 20})
    sleep(0.05)  # longer than a tick of the file system: no file is young enough to be read again only for that
    ingest(store, tree)
    before = read_tree(store)
    low = hashing_settings("limits.file_mb=0.001")
    assert counts(ingest(store, tree, settings=low), "same", "failed") == (5, 0)
    assert read_tree(store).ids == before.ids
    write(tree, {"new.txt": LOG * 20})
    assert counts(ingest(store, tree, settings=low), "added", "failed") == (1, 1)
    assert read_tree(store).statuses() == {**before.statuses(), "new.txt": "failed"}


def test_an_uri_may_be_longer_than_an_index_takes(store: Postgres, tree: Path) -> None:
    # of names that do not compress, or their entry would be short enough
    names = [sha512(bytes([number])).hexdigest() for number in range(24)]
    deep = tree.joinpath(*names)
    write(deep, {"keys.md": KEYS, "broken.pdf": "%PDF-1.7\n"})
    assert len(deep.as_uri()) > 3000
    report = ingest(store, tree)
    assert counts(report, "added", "completed", "failed") == (6, 5, 1)
    assert counts(ingest(store, tree), "changed", "failed") == (0, 0)
    assert read_tree(store).texts("gates.md")
    uri = (deep / "keys.md").as_uri()
    with store.connect() as connection:
        assert Catalog(connection, DEFAULT_TENANT).document("default", uri)["status"] == "completed"
    (deep / "keys.md").unlink()
    assert ingest(store, tree).documents["deleted"] == 1


def test_a_source_may_have_a_long_uri_too(store: Postgres, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(sha512(bytes([number])).hexdigest() for number in range(24)))
    write(deep, {"keys.md": KEYS})
    assert ingest(store, deep).documents["added"] == 1
    assert ingest(store, deep).documents["added"] == 0
    with store.connect() as connection:
        assert [source.uri for source in Catalog(connection, DEFAULT_TENANT).sources()] == [deep.as_uri()]


def test_a_document_that_fails_costs_no_other(store: Postgres, tree: Path) -> None:
    failing = watch_folder(tree)
    failing.failing["keys.md"] = DocumentError("read", "permission denied")
    report = run(store, failing)
    assert counts(report, "completed", "failed") == (3, 1)
    assert read_tree(store).statuses() == {
        "gates.md": "completed",
        "keys.md": "failed",
        "log.txt": "completed",
        "menu.html": "completed",
    }


def test_an_interrupted_job_is_cancelled_and_the_next_sync_does_the_rest(store: Postgres, tree: Path) -> None:
    one_at_a_time = hashing_settings("ingestion.group=1")
    stopped = watch_folder(tree)
    stopped.failing["log.txt"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(store, stopped, settings=one_at_a_time)
    assert violations(store) == []
    assert jobs(store) == [("cancelled", "interrupted")]
    assert 0 < len(read_tree(store).documents) < 4
    report = run(store, watch_folder(tree), settings=one_at_a_time)
    assert report.documents["completed"] == 4 - report.documents["same"]
    assert_same(read_tree(store), ingest_afresh(store, tree))


def test_a_bug_in_a_stage_ends_the_job_as_failed_with_its_reason(store: Postgres, tree: Path) -> None:
    stopped = watch_folder(tree)
    stopped.failing["log.txt"] = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        run(store, stopped)
    assert jobs(store) == [("failed", "ZeroDivisionError: a bug")]
    assert violations(store) == []


def test_a_source_that_another_job_holds_is_busy(store: Postgres, tree: Path) -> None:
    class Meanwhile(WatchedSource):
        def read(self, entry: Entry) -> bytes:
            with pytest.raises(BusyError, match="another job is running on this source"):
                run(store, watch_folder(tree))
            return super().read(entry)

    run(store, Meanwhile(open_files_source(hashing_settings(), str(tree))))


@pytest.mark.slow
def test_a_source_is_free_as_soon_as_its_job_has_ended(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"keys.md": KEYS})
    for _ in range(10):
        ingest(store, folder)
    assert len(jobs(store)) == 10


def test_another_space_embeds_everything_again_and_drops_the_old_vectors(store: Postgres, tree: Path) -> None:
    ingest(store, tree)
    before = read_tree(store)
    wider = hashing_settings("embedding.dimension=128")
    report = ingest(store, tree, settings=wider)
    assert counts(report, "changed", "completed") == (4, 4)
    assert (report.chunks["embedded"], report.chunks["reused"]) == (4, 0)
    after = read_tree(store)
    assert after.ids == before.ids
    assert {rows.shape[1] for rows in after.vectors.values()} == {128}
    assert vector_count(store) == 4
    with KnowledgeBase(hashing_settings(f"store.url={store.dsn}")) as old, pytest.raises(SpaceError, match="hashing"):
        old.search("keys")
    with KnowledgeBase(hashing_settings(f"store.url={store.dsn}", "embedding.dimension=128")) as new:
        assert new.search("keys")[0].origin.title == "Keys"


def test_a_collection_moves_to_another_space_with_all_its_sources_or_not_at_all(
    store: Postgres, tree: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "other", {"a.md": LOG})
    ingest(store, tree, other)
    wider = hashing_settings("embedding.dimension=128")
    with pytest.raises(SpaceError, match=r"ingest all its sources in one command; missing: file://.*/other"):
        ingest(store, tree, settings=wider)
    with KnowledgeBase(hashing_settings(f"store.url={store.dsn}")) as knowledge:
        assert len(knowledge.search("keys")) == 5
    assert ingest(store, tree, other, settings=wider).notices == []
    assert vector_count(store) == 5


def test_a_refused_sync_leaves_no_collection_behind(store: Postgres, tree: Path) -> None:
    with pytest.raises(ListingError):
        run(store, BrokenListing(open_files_source(hashing_settings(), str(tree))))
    with store.connect() as connection:
        assert Catalog(connection, DEFAULT_TENANT).collections() == []


def vector_count(store: Postgres) -> int:
    with store.connect("rag_worker") as connection:
        row = connection.execute("select count(*) from vectors").fetchone()
    return int(row[0]) if row else 0


PARAGRAPHS = (
    "The keys are rotated every ninety days by the operator on duty.",
    "Nobody opens gate four alone. It has hurt people before!",
    "Éa 東京 naïve 🎉 strings are counted in code points, not bytes.",
    "| gate | width |\n|---|---|\n| one | 4 m |\n| two | 5 m |",
    "A line that comes back.\n\nA line that comes back.\n\nA line that comes back.",
    "word " * 40,
)
NAMES = ("a.md", "b.html", "c.txt", "sub/a.md", "sub/d.txt")
NOT_READ = b"%PDF-1.7\n\0\1\2"
Place: TypeAlias = tuple[int, str]

place = st.tuples(st.integers(0, 1), st.sampled_from(NAMES))
texts = st.lists(st.sampled_from(PARAGRAPHS), min_size=1, max_size=4)
edits = st.one_of(
    st.tuples(st.just("write"), place, texts),
    st.tuples(st.just("append"), place, st.sampled_from(PARAGRAPHS)),
    st.tuples(st.just("change"), place, st.sampled_from(PARAGRAPHS)),
    st.tuples(st.just("touch"), place, st.integers(1, 2 * 10**9)),
    st.tuples(st.just("rename"), place, place),
    st.tuples(st.sampled_from(["delete", "empty", "spoil"]), place, st.none()),
    st.tuples(st.just("sync"), st.just((0, "")), st.sampled_from([(0,), (1,), (0, 1), (1, 0)])),
)
trees = st.dictionaries(place, texts, min_size=1, max_size=6)


def render_page(name: str, paragraphs: Sequence[str]) -> bytes:
    if name.endswith(".html"):
        body = "".join(f"<h2>Part {n}</h2><p>{text}</p>" for n, text in enumerate(paragraphs))
        return f"<html><head><title>Page</title></head><body>{body}</body></html>".encode()
    if name.endswith(".md"):
        return ("# Page\n\n" + "\n\n".join(f"## Part {n}\n\n{text}" for n, text in enumerate(paragraphs))).encode()
    return "\n\n".join(paragraphs).encode()


@dataclass
class Edited:
    """Two folders that are edited, and what their files hold."""

    roots: tuple[Path, Path]
    contents: dict[Place, list[str]] = field(default_factory=dict)

    def apply(self, kind: str, at: Place, argument: object) -> None:
        path = self.path(at)
        if kind != "write" and at not in self.contents:
            return
        match kind, argument:
            case "write", list() as paragraphs:
                self.write(at, paragraphs)
            case "append", str() as paragraph:
                self.write(at, [*self.contents[at], paragraph])
            case "change", str() as paragraph:
                self.write(at, [paragraph, *self.contents[at][1:]])
            case "touch", int() as second:
                os.utime(path, ns=(second * 10**9, second * 10**9))
            case "rename", (int(), str()) as to:
                self.path(to).parent.mkdir(parents=True, exist_ok=True)
                path.rename(self.path(to))
                self.contents[to] = self.contents.pop(at)
            case "delete", _:
                path.unlink()
                del self.contents[at]
            case _:
                path.write_bytes(b"" if kind == "empty" else NOT_READ)

    def write(self, at: Place, paragraphs: list[str]) -> None:
        self.contents[at] = paragraphs
        self.path(at).parent.mkdir(parents=True, exist_ok=True)
        self.path(at).write_bytes(render_page(at[1], paragraphs))

    def path(self, at: Place) -> Path:
        return self.roots[at[0]] / at[1]


_numbers = count()


@pytest.mark.slow
@hypothesis_settings(
    max_examples=scale_examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=trees, edits=st.lists(edits, max_size=12), last=st.permutations([0, 1]))
def test_after_any_edits_the_store_is_what_a_fresh_ingest_of_the_tree_would_be(
    store: Postgres,
    tmp_path: Path,
    tree: Mapping[Place, list[str]],
    edits: Sequence[tuple[str, Place, object]],
    last: Sequence[int],
) -> None:
    number = next(_numbers)
    edited = Edited((tmp_path / f"{number}-a", tmp_path / f"{number}-b"))
    for root in edited.roots:
        root.mkdir()
    incremental, rebuilt = f"kept-{number}", f"fresh-{number}"
    for at, paragraphs in tree.items():
        edited.write(at, paragraphs)
    ingest(store, *edited.roots, collection=incremental)
    for kind, at, argument in edits:
        if kind == "sync" and isinstance(argument, tuple):
            ingest(store, *(edited.roots[n] for n in argument), collection=incremental, options=YES)
        else:
            edited.apply(kind, at, argument)
    for n in last:
        ingest(store, edited.roots[n], collection=incremental, options=YES)
    ingest(store, *edited.roots, collection=rebuilt)
    one, other = read_tree(store, incremental), read_tree(store, rebuilt)
    assert_same(one, other)
    assert one.ids == compute_ids(one.chunks, incremental)
    assert other.ids == compute_ids(other.chunks, rebuilt)
    with store.connect() as connection:
        catalog = Catalog(connection, DEFAULT_TENANT)
        for collection in (incremental, rebuilt):
            catalog.drop_collection(collection)
    for root in edited.roots:
        shutil.rmtree(root)


def compute_ids(chunks: Mapping[str, Sequence[Mapping[str, str]]], collection: str) -> dict[str, list[object]]:
    ids: dict[str, list[object]] = {}
    for uri, rows in chunks.items():
        document, occurrences = document_id(DEFAULT_TENANT, collection, uri), Counter[str]()
        ids[uri] = []
        for row in rows:
            ids[uri].append(chunk_id(document, row["text"], occurrences[row["text"]]))
            occurrences[row["text"]] += 1
    return ids


def test_members_of_an_archive_are_synced_one_by_one_and_kept_while_it_is_incomplete(
    store: Postgres, tmp_path: Path
) -> None:
    archive = tmp_path / "docs" / "a.zip"
    archive.parent.mkdir()
    archive.write_bytes(zip_bytes(TREE))
    assert counts(ingest(store, tmp_path / "docs"), "listed", "added", "completed") == (4, 4, 4)
    names = set(read_tree(store).statuses())
    assert names == set(TREE)
    assert {document["title"] for document in read_tree(store).documents.values()} == {"Keys", "Gates", "Menu", "log"}

    archive.write_bytes(zip_bytes({**TREE, "keys.md": KEYS.replace("ninety", "thirty")}))
    source = watch_folder(archive.parent)
    assert counts(run(store, source), "changed", "same", "deleted") == (1, 3, 0)
    assert source.reads == ["keys.md"]

    complete = archive.read_bytes()
    archive.write_bytes(complete[:-30])
    report = ingest(store, archive.parent)
    assert counts(report, "listed", "failed", "deleted") == (1, 1, 0)
    assert [failure["reason"] for failure in report.failures] == ["damaged archive: File is not a zip file"]
    assert set(read_tree(store).statuses()) == {"a.zip", *TREE}

    archive.write_bytes(zip_bytes({name: TREE[name] for name in ("gates.md", "log.txt")}))
    assert counts(ingest(store, archive.parent, options=YES), "same", "deleted", "failed") == (2, 3, 0)
    assert set(read_tree(store).statuses()) == {"gates.md", "log.txt"}


def test_a_failed_archive_is_retried_as_its_members(store: Postgres, tmp_path: Path) -> None:
    archive = tmp_path / "docs" / "a.tgz"
    archive.parent.mkdir()
    complete = gzip.compress(tar_bytes({name: text.encode() for name, text in TREE.items()}))
    archive.write_bytes(complete[:-30])
    assert counts(ingest(store, archive.parent), "listed", "failed") == (1, 1)
    archive.write_bytes(complete)
    options = SyncOptions(only=frozenset({archive.as_uri()}))
    assert counts(ingest(store, archive.parent, options=options), "added", "completed") == (4, 4)
