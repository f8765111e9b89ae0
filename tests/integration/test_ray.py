"""Ingestion on Ray does what ingestion in this process does."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep

import pytest
from trees import HASHING, assert_same, hashing_settings, ingest, read_tree, violations, write
from waiting import wait_until
from witness import witness_settings
from zips import zip_bytes

from jobs.ray_runner import RayRunner
from rag_core.config import Settings
from rag_core.errors import ClusterError, FencedError, TransientError
from rag_core.ingestion.report import RunTimes, SyncReport
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.watch import Check
from rag_core.protocols import Source
from rag_core.settings import load_settings, read_detection
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import DEFAULT_TENANT, Draft, Entry, document_id
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from rag_core.wiring.profile_choice import add_document_profiles

pytestmark = [
    pytest.mark.ray,
    pytest.mark.postgres,
    pytest.mark.usefixtures("ray_cluster"),
]

SETTINGS = load_settings(overrides=[*HASHING, "limits.text_mb=0.002", "ingestion.group=8"], environment={})
ROOM = ("parsing.memory_mb=64", "parsing.detect_language=false")
TOO_LONG = "word " * 1_000


@pytest.fixture(autouse=True)
def separate_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))


class NoRunner:
    """A runner that fails the test: the sync has nothing to run."""

    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        check()
        raise AssertionError(f"run {target.run}: {len(drafts)} documents of {len(sources)} sources would be done again")


def ingest_on_ray(store: Postgres, folder: Path, collection: str, settings: Settings = SETTINGS) -> SyncReport:
    report = build_sync(settings, store, [str(folder)], collection).run(RayRunner(settings))
    assert violations(store) == []
    return report


def await_free_cpus() -> None:
    """Waits until no actor and no task has a CPU; Ray frees the CPUs of killed actors a moment later."""
    import ray

    cpus = ray.cluster_resources()["CPU"]  # type: ignore[no-untyped-call]
    wait_until(lambda: ray.available_resources().get("CPU", 0) == cpus)  # type: ignore[no-untyped-call]


def files(count: int) -> dict[str, str]:
    kinds = (
        "# File {n}\n\nThe keys of gate {n} are rotated every ninety days.\n\n## More\n\nAnd never by one alone.\n",
        "<html><head><title>Page {n}</title></head><body><p>Gate {n} is four metres wide.</p></body></html>",
        "Gate {n} was closed by hand. Nobody was hurt.\n\nThe alarm of gate {n} rang at four.\n",
    )
    suffixes = ("md", "html", "txt")
    return {f"{n % 7}/{n:03}.{suffixes[n % 3]}": kinds[n % 3].format(n=n) for n in range(count)}


def let_files_age(folder: Path) -> Path:
    sleep(0.05)  # longer than a tick of the file system: no file is young enough to be read again only for that
    return folder


def test_the_same_tree_on_ray_and_in_process_gives_equal_stores(store: Postgres, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs", {**files(40), "twin.md": files(1)["0/000.md"], "empty.txt": "", "bad.bin": "\0\1\2"}
    )
    (folder / "more.zip").write_bytes(zip_bytes(files(20)))
    distributed, alone = (
        ingest_on_ray(store, folder, "ray"),
        ingest(store, folder, collection="inline", settings=SETTINGS),
    )
    assert distributed.documents == alone.documents
    assert (distributed.documents["completed"], distributed.documents["skipped"]) == (61, 2)
    one, other = read_tree(store, "ray"), read_tree(store, "inline")
    assert_same(one, other)
    assert {uri: len(ids) for uri, ids in one.ids.items()} == {uri: len(ids) for uri, ids in other.ids.items()}
    with store.connect("rag_worker") as connection:
        rows = connection.execute("select id, uri from documents").fetchall()
    assert dict(rows) == {
        document_id(DEFAULT_TENANT, collection, uri): uri for collection in ("ray", "inline") for uri in one.documents
    }


def test_documents_are_split_by_their_own_profiles_on_ray_too(store: Postgres, tmp_path: Path) -> None:
    load = partial(load_settings, None, overrides=["embedding.type=hashing"], environment={})
    settings = add_document_profiles(load(), read_detection(), load)
    folder = write(tmp_path / "docs", {"NCT01234567.md": "# Naps\n\nAdults who nap.", "notes.md": "# Notes\n\nNone."})
    report = ingest_on_ray(store, folder, "ray", settings)
    assert report.notices == ["documents that match profile clinicaltrials: 1, split by its chunker"]
    inline = build_sync(settings, store, [str(folder)], "ray").run(build_inline_runner(settings))
    assert inline.documents["same"] == 2


def test_a_change_done_on_ray_keeps_the_ids_of_what_did_not_change(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", files(9))
    ingest(store, folder, settings=SETTINGS)
    before = read_tree(store)
    write(folder, {"0/000.md": files(1)["0/000.md"].replace("ninety", "thirty")})
    report = ingest_on_ray(store, folder, "default")
    after = read_tree(store)
    assert (report.documents["changed"], report.documents["completed"]) == (1, 1)
    assert report.chunks["embedded"] == report.chunks["deleted"] == 1
    assert sum(len(set(before.ids[uri]) - set(after.ids[uri])) for uri in after.ids) == 1


def test_a_failing_document_costs_one_row(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {**files(12), "long.txt": TOO_LONG})
    report = ingest_on_ray(store, folder, "default")
    assert (report.documents["completed"], report.documents["failed"]) == (12, 1)
    assert [(failure["stage"], failure["retryable"]) for failure in report.failures] == [("parse", False)]
    assert report.failures[0]["reason"].startswith("too large")
    assert sorted(read_tree(store).statuses().values()) == ["completed"] * 12 + ["failed"]


def test_a_source_that_stays_silent_costs_its_document_only(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", files(12))

    class Silent(FilesSource):  # in here, so that workers need not import it
        def read(self, entry: Entry) -> bytes:
            if entry.uri.endswith("/000.md"):
                raise TransientError("read", "no answer", True)
            return FilesSource.read(self, entry)

    job = build_sync(SETTINGS, store, [str(folder)])
    (real,) = job.sources
    silent = Silent(real.uri, (), (), recursive=True, file_mb=1.0)
    report = replace(job, sources=[silent]).run(RayRunner(SETTINGS))
    assert violations(store) == []
    assert (report.documents["completed"], report.documents["failed"], report.dead_letters) == (11, 1, 1)
    assert [failure["reason"] for failure in report.failures] == ["no answer (3 attempts)"]


def test_a_very_large_document_is_embedded_in_parts_and_stored_whole(store: Postgres, tmp_path: Path) -> None:
    sections = [
        f"## Lock {n}\n\nLock {n} was opened by pilot {n * 7} and shut by crane {n * 3}.\n" for n in range(2_000)
    ]
    folder = write(tmp_path / "docs", {**files(100), "large.md": "# Locks\n\n" + "\n".join(sections)})
    settings = load_settings(overrides=[*HASHING, "ingestion.group=8"], environment={})
    distributed = ingest_on_ray(store, folder, "ray", settings)
    alone = ingest(store, folder, collection="inline", settings=settings)
    assert distributed.documents == alone.documents
    assert distributed.documents["completed"] == 101
    one, other = read_tree(store, "ray"), read_tree(store, "inline")
    assert len(one.chunks[one.uri("large.md")]) >= 2_000
    assert_same(one, other)
    with store.connect("rag_worker") as connection:
        assert connection.execute("select count(*) from draft_parts").fetchall() == [(0,)]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is an embedding actor for each CPU")
def test_the_parts_of_one_very_large_document_reach_more_than_one_actor(store: Postgres, tmp_path: Path) -> None:
    paragraphs = (f"Lock {n} was opened by pilot {n * 7}, who shut it {n % 60} minutes later.\n" for n in range(20_000))
    folder = write(tmp_path / "docs", {"large.txt": "\n".join(paragraphs)})
    (tmp_path / "actors").mkdir()
    settings = load_settings(overrides=witness_settings(tmp_path / "actors", processes=2), environment={})
    report = ingest_on_ray(store, folder, "default", settings)
    assert (report.documents["completed"], report.chunks["stored"] >= 10_000) == (1, True)
    assert len(list((tmp_path / "actors").iterdir())) >= 2


def test_a_document_that_kills_its_parser_costs_one_row(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {**files(40), "hog.json": f"[{'[],' * 2_000_000}[]]"})
    report = ingest_on_ray(store, folder, "default", load_settings(overrides=[*HASHING, *ROOM], environment={}))
    assert (report.documents["completed"], report.documents["failed"]) == (40, 1)
    assert [(failure["stage"], failure["reason"]) for failure in report.failures] == [
        ("parse", "needed more than 64 MB of memory")
    ]


def test_a_model_that_no_process_survives_ends_the_job_after_a_few_attempts(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", files(4))
    with pytest.raises(ClusterError, match="Ray lost a part of the job"):
        ingest_on_ray(store, folder, "default", hashing_settings("embedding={type: python, object: 'killing:Killing'}"))
    assert violations(store) == []


def test_two_hundred_small_documents_are_counted_truly_and_not_done_again(store: Postgres, tmp_path: Path) -> None:
    folder = let_files_age(write(tmp_path / "docs", files(200)))
    report = ingest_on_ray(store, folder, "default")
    stored = read_tree(store)
    chunks = sum(len(ids) for ids in stored.ids.values())
    assert (report.documents["listed"], report.documents["added"], report.documents["completed"]) == (200, 200, 200)
    assert len(stored.documents) == 200
    assert report.chunks["stored"] == report.chunks["embedded"] + report.chunks["reused"] == chunks > 200
    assert report.seconds["start"] > 0
    assert report.seconds["publish"] > 0
    assert report.seconds["total"] > report.seconds["start"]
    again = build_sync(SETTINGS, store, [str(folder)]).run(NoRunner())
    assert (again.documents["same"], again.seconds["start"]) == (200, 0)


def test_a_job_that_is_cancelled_stops_on_ray(store: Postgres, tmp_path: Path) -> None:
    settings = load_settings(overrides=[*HASHING, "ingestion.group=1"], environment={})
    folder = write(tmp_path / "docs", files(300))
    sync = build_sync(settings, store, [str(folder)])
    published: list[int] = []

    def check() -> None:
        with store.connect() as connection:
            ledger = Ledger(connection, DEFAULT_TENANT)
            for job in ledger.jobs():  # none exists while the source is listed
                published.append(ledger.progress(job["id"])["completed"])
                if published[-1]:
                    ledger.end(job["id"], "cancelled", "by a test")
                    raise FencedError("the job was cancelled")

    with pytest.raises(FencedError):
        replace(sync, check=check).run(RayRunner(settings))
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        (job,) = ledger.jobs()
        counts = ledger.progress(job["id"])
    assert counts["completed"] + counts["cancelled"] == 300
    assert counts["cancelled"] > 0
    assert violations(store) == []
    await_free_cpus()
