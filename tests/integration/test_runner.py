"""Jobs of the queue from their request to the corpus, by runners in threads of this process and by one on Ray Serve."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest
from pdfs import pdf
from targets import superuser
from trees import hashing_settings, ingest, read_tree, violations, write
from waiting import TIMEOUT, wait_until

from jobs import worker
from jobs.worker import Worker
from rag_core.config import Settings
from rag_core.errors import FencedError, ListingError, ModelError, NotFoundError, StoreError
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.sources import pushed
from rag_core.ingestion.watch import Check
from rag_core.protocols import Source
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.storage.queue import IngestRequest, Leases, PushedDocument, Queue, build_retry_request, document_url
from rag_core.types import DEFAULT_TENANT, Draft, Entry
from rag_core.wiring.ingestion import build_inline_runner, build_lease_sync, build_sync

pytestmark = pytest.mark.postgres

LEASE_SECONDS = 3.0
GATES = "The gates"


def settings_for(store: Postgres, *overrides: str) -> Settings:
    return hashing_settings(
        f"store.url={store.dsn}", "parsing.sandbox=false", 'ingestion.allowed_locations=["/"]', *overrides
    )


def build_request(today: Settings, *documents: PushedDocument, **more: Any) -> IngestRequest:
    frozen = today.model_dump(mode="json", exclude={"store", "tenant"})
    fields = {"collection": "default", "profile": "default", "settings": frozen, "documents": documents}
    return IngestRequest(**{**fields, **more})


def enter(store: Postgres, request: IngestRequest) -> UUID:
    with store.connect() as connection:
        return Queue(connection, DEFAULT_TENANT).enqueue(request).job_id


@contextmanager
def run_worker(settings: Settings, *, lease: float = 30.0, poll: float = 0.1) -> Iterator[Worker]:
    job_worker = Worker(settings, lease, poll)
    thread = threading.Thread(target=job_worker.run)
    thread.start()
    try:
        yield job_worker
    finally:
        job_worker.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def job(store: Postgres, id: UUID) -> dict[str, Any]:
    with store.connect() as connection:
        return read_job(Ledger(connection, DEFAULT_TENANT), id)


def read_job(ledger: Ledger, id: UUID) -> dict[str, Any]:
    return {**ledger.job(str(id)), "counts": ledger.progress(id), "events": ledger.events(id)}


def wait_for_end(store: Postgres, id: UUID) -> dict[str, Any]:
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        wait_until(lambda: ledger.job(str(id))["finished_at"] is not None)
        return read_job(ledger, id)


def wait_until_some_are_completed(store: Postgres, id: UUID) -> None:
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        wait_until(lambda: ledger.progress(id)["completed"] > 10)


def run_job(store: Postgres, settings: Settings, request: IngestRequest) -> dict[str, Any]:
    id = enter(store, request)
    with run_worker(settings):
        return wait_for_end(store, id)


def note(id: str, text: str, **about: Any) -> PushedDocument:
    return PushedDocument(id=id, body=text.encode(), **about)


def list_events(row: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(event["seq"], event["stage"], event["status"]) for event in row["events"]]


@pytest.mark.slow
def test_pushed_documents_are_stored_with_what_the_request_said_of_them(store: Postgres) -> None:
    settings = settings_for(store)
    before = datetime.now(UTC)
    page = "<html><head><title>Menu</title></head><body><h1>Soup</h1><p>With bread.</p></body></html>"
    documents = (
        note(
            "manual/gates",
            "# Gates\n\nThe sluice is shut.",
            media_type="text/markdown; charset=utf-8",
            title="The gates",
        ),
        note("menu 1", page, media_type="text/html", url="https://example.org/menu", metadata={"year": 2024}),
        PushedDocument(id="pump", body=pdf(["The pump runs."]), media_type="application/pdf"),
        note("log", "At four the alarm rang."),
        note("keys.md", "# Keys\n\nThey are rotated.", metadata={"tags": ["a", "b"]}),
    )
    row = run_job(store, settings, build_request(settings, *documents))
    assert (row["status"], row["reason"]) == ("completed", None)
    assert (row["counts"]["added"], row["counts"]["completed"]) == (5, 5)
    stored = read_tree(store)
    gates, menu, pump, log, keys = (
        stored.documents[f"push:///{id}"] for id in ("manual%2Fgates", "menu%201", "pump", "log", "keys.md")
    )
    assert (gates["title"], gates["metadata"]["format"]) == (GATES, "markdown")
    assert (menu["title"], menu["metadata"]["format"]) == ("Menu", "html")
    assert (menu["metadata"]["url"], menu["metadata"]["year"]) == ("https://example.org/menu", 2024)
    assert (pump["title"], pump["metadata"]["format"]) == ("pump", "pdf")
    assert "url" not in log["metadata"]
    assert (log["title"], log["metadata"]["format"], log["text"]) == ("log", "text", "At four the alarm rang.")
    assert (keys["title"], keys["metadata"]["tags"]) == ("Keys", ["a", "b"])
    assert before.timestamp() * 1e9 <= log["modified_ns"] <= time.time_ns()
    assert ("year", None, 2024.0) in stored.values["push:///menu%201"]
    assert violations(store) == []


def test_a_document_without_a_title_is_named_after_the_last_part_of_its_id(store: Postgres) -> None:
    settings = settings_for(store)
    ids = ("https://example.org/docs/the%20guide.txt", "docs/Łódź 1.txt", "docs/pump", "folder/", "/")
    run_job(store, settings, build_request(settings, *(note(id, f"Text of {id}.") for id in ids)))
    titles = {document["text"]: document["title"] for document in read_tree(store).documents.values()}
    assert [titles[f"Text of {id}."] for id in ids] == ["the guide", "Łódź 1", "pump", "folder", "/"]


def test_only_the_request_names_the_url_of_a_pushed_document(store: Postgres) -> None:
    settings = settings_for(store)
    text = "---\nurl: javascript:alert(1)\nauthor: Ada\n---\n# A\n\nText."
    run_job(
        store, settings, build_request(settings, note("a.md", text), note("b.md", text, url="https://example.org/b"))
    )
    metadata = [read_tree(store).documents[f"push:///{name}.md"]["metadata"] for name in "ab"]
    assert [(entry["authors"], entry.get("url")) for entry in metadata] == [
        (["Ada"], None),
        (["Ada"], "https://example.org/b"),
    ]
    assert document_url("push:///a.md", {"url": "javascript:alert(1)"}) == "push:///a.md"


@pytest.mark.slow
def test_a_newer_version_replaces_one_whose_job_also_listed_a_source_again(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store)
    folder = write(tmp_path / "docs", {"0.md": "# Gate\n\nText."})
    first = enter(store, build_request(settings, note("a.md", "# A\n\nVersion 1."), locations=(str(folder),)))
    second = enter(store, build_request(settings, note("a.md", "# A\n\nVersion 2.")))
    third = enter(store, build_request(settings, note("a.md", "# A\n\nVersion 3.")))
    ingest(store, folder)
    with run_worker(settings):
        rows = [wait_for_end(store, id) for id in (first, second, third)]
    assert [row["counts"]["completed"] for row in rows] == [1, 1, 1]
    assert read_tree(store).documents["push:///a.md"]["text"] == "# A\n\nVersion 3."
    assert violations(store) == []


@pytest.mark.slow
def test_a_push_does_not_move_what_was_pushed_before_into_another_space(store: Postgres) -> None:
    settings, moved = settings_for(store), settings_for(store, "embedding.dimension=32")
    gate, pump = note("a.md", "# A\n\nThe sluice."), note("b.md", "# B\n\nThe pump.")
    run_job(store, settings, build_request(settings, gate))
    row = run_job(store, moved, build_request(moved, pump))
    assert (row["status"], row["attempts"]) == ("failed", 1)
    assert row["reason"].endswith("missing: push:///")
    assert run_job(store, moved, build_request(moved, gate, pump))["counts"]["completed"] == 2


def test_a_listing_that_breaks_off_leaves_the_new_source_of_another_job_alone(store: Postgres) -> None:
    settings = settings_for(store)
    id = enter(store, build_request(settings, note("a.md", "# A\n\nText.")))

    def fail_listing() -> None:
        with pytest.raises(ListingError):
            replace(build_sync(settings, store, ()), sources=[Torn()]).run(build_inline_runner(settings))

    with store.connect("rag_worker") as connection:
        lease = Leases(connection, DEFAULT_TENANT).claim("a test", 30)
    assert lease is not None
    build_lease_sync(settings, store, lease).run(Pausing(settings, fail_listing))
    row = job(store, id)
    assert (row["status"], row["counts"]["completed"], row["sources"]) == ("completed", 1, ["push:///"])
    assert violations(store) == []


class Torn:
    uri = "file:///torn"

    def listing(self) -> Iterator[Entry]:
        raise ListingError("a test")

    def read(self, entry: Entry) -> bytes:
        raise AssertionError(entry)


def test_a_retry_of_a_job_of_the_command_deletes_nothing(store: Postgres, tmp_path: Path) -> None:
    ingest(store, write(tmp_path / "docs", {"0.md": "# Gate\n\nText."}))
    with store.connect("rag_worker") as connection:
        (id,) = connection.execute("update jobs set status = 'cancelled' returning id").fetchone() or ()
    assert not build_retry_request(store, DEFAULT_TENANT, id).prune


@pytest.mark.slow
def test_a_job_records_its_events_from_the_queue_to_its_end(store: Postgres) -> None:
    settings = settings_for(store)
    row = run_job(store, settings, build_request(settings, note("a.md", "# A\n\nText."), note("b.pdf", "%PDF-1.7\n")))
    assert list_events(row) == [
        (1, "job", "queued"),
        (2, "job", "started"),
        (3, "stage", "listing"),
        (4, "stage", "listing"),
        (5, "stage", "working"),
        (6, "document", "failed"),
        (7, "publish", "published"),
        (8, "stage", "working"),
        (9, "stage", "finishing"),
        (10, "stage", "finishing"),
        (11, "job", "completed"),
    ]
    assert row["events"][5]["detail"]["uri"] == "push:///b.pdf"
    assert row["created_at"] <= row["started_at"] <= row["finished_at"]
    assert violations(store) == []


@pytest.mark.slow
def test_the_same_again_is_no_work_and_other_bytes_or_other_metadata_are_a_new_version(store: Postgres) -> None:
    settings = settings_for(store)

    def push(text: str, **about: Any) -> Mapping[str, int]:
        counts: Mapping[str, int] = wait_for_end(
            store, enter(store, build_request(settings, note("a.md", text, **about)))
        )["counts"]
        return counts

    with run_worker(settings):
        first, same, changed = push("# A\n\nOne."), push("# A\n\nOne."), push("# A\n\nTwo.")
        described = push("# A\n\nTwo.", metadata={"year": 2024}, title="B")
    assert (first["added"], first["completed"]) == (1, 1)
    assert (same["same"], same["completed"], same["embedded"]) == (1, 0, 0)
    assert (changed["changed"], changed["completed"]) == (1, 1)
    assert (described["changed"], described["completed"]) == (1, 1)
    stored = read_tree(store).documents["push:///a.md"]
    assert (stored["title"], stored["metadata"]["year"], "Two." in stored["text"]) == ("B", 2024, True)


@pytest.mark.slow
def test_a_push_deletes_nothing_and_its_bytes_are_not_kept(store: Postgres) -> None:
    settings = settings_for(store)
    entered = [enter(store, build_request(settings, note(f"{n}.md", f"# {n}\n\nText."))) for n in range(5)]
    with run_worker(settings):
        assert {wait_for_end(store, id)["status"] for id in entered} == {"completed"}
    assert len(read_tree(store).documents) == 5
    with store.connect("rag_worker") as connection:
        assert connection.execute("select count(*) from pushed_documents").fetchone() == (0,)
    assert violations(store) == []


@pytest.mark.slow
def test_locations_are_synced_as_by_the_command_and_pushed_documents_go_with_them(
    store: Postgres, tmp_path: Path
) -> None:
    settings = settings_for(store)
    folder = write(tmp_path / "docs", {f"{n}.md": f"# Gate {n}\n\nText." for n in range(4)})
    ingest(store, folder)
    (folder / "0.md").unlink()
    (folder / "1.md").write_text("# Gate 1\n\nOther.")
    row = run_job(store, settings, build_request(settings, note("a.md", "# A\n\nText."), locations=(str(folder),)))
    counts = row["counts"]
    assert (counts["added"], counts["changed"], counts["deleted"], counts["completed"]) == (1, 1, 1, 2)
    assert row["sources"] == [folder.as_uri(), "push:///"]
    assert sorted(read_tree(store).statuses()) == ["1.md", "2.md", "3.md", "a.md"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"locations": ("/no/such/folder",)}, "SourceError: '/no/such/folder' cannot be used as a source"),
        ({"settings": {"embedding": {"type": "none"}}, "locations": ("/",)}, "ConfigError: the settings of job"),
    ],
)
def test_an_invalid_request_fails_at_once(store: Postgres, more: dict[str, Any], reason: str) -> None:
    settings = settings_for(store)
    row = run_job(store, settings, build_request(settings, **more))
    assert (row["status"], row["attempts"]) == ("failed", 1)
    assert row["reason"].startswith(reason)


@pytest.mark.slow
def test_deleting_most_of_a_source_requires_a_yes_and_works_with_one(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store)
    folder = write(tmp_path / "docs", {f"{n}.md": f"# Gate {n}\n\nText." for n in range(5)})
    ingest(store, folder)
    for n in range(4):
        (folder / f"{n}.md").unlink()
    refused = run_job(store, settings, build_request(settings, locations=(str(folder),)))
    assert refused["reason"].startswith("ConfirmationError: this would delete 4 of the 5 stored documents")
    agreed = run_job(store, settings, build_request(settings, locations=(str(folder),), confirmed=True))
    assert (agreed["status"], agreed["counts"]["deleted"]) == ("completed", 4)


@pytest.mark.slow
def test_two_runners_share_20_jobs_of_one_collection_and_none_is_lost(store: Postgres) -> None:
    settings = settings_for(store)
    entered = [enter(store, build_request(settings, note(f"{n}.md", f"# {n}\n\nText {n}."))) for n in range(20)]
    with run_worker(settings), run_worker(settings):
        rows = [wait_for_end(store, id) for id in entered]
    assert [(row["status"], row["attempts"], row["counts"]["added"]) for row in rows] == [("completed", 1, 1)] * 20
    assert len(read_tree(store).documents) == 20
    assert violations(store) == []


@pytest.mark.slow
def test_a_job_waits_for_another_on_its_source_and_that_is_no_attempt(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store)
    folder = write(tmp_path / "docs", {"a.md": "# A\n\nText."})
    ingest(store, folder)
    with store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        ledger.claim(1, [1])
        id = enter(store, build_request(settings, locations=(str(folder),)))
        with run_worker(settings):
            wait_until(lambda: job(store, id)["attempts"] == 0 and read_fence(store, id) > 2)
            assert job(store, id)["status"] == "queued"
            ledger.close()
            row = wait_for_end(store, id)
    assert (row["status"], row["attempts"]) == ("completed", 1)


def read_fence(store: Postgres, id: UUID) -> int:
    with store.connect("rag_worker") as connection:
        row = connection.execute("select fence from jobs where id = %s", [id]).fetchone()
    return int(row[0]) if row else 0


def test_a_job_whose_runner_died_is_finished_by_another_with_every_document_once(store: Postgres) -> None:
    settings = settings_for(store, "ingestion.group=1")
    documents = [note(f"{n}.md", f"# {n}\n\nText {n}.") for n in range(6)]
    id = enter(store, build_request(settings, *documents))
    with store.connect("rag_worker") as connection:
        lease = Leases(connection, DEFAULT_TENANT).claim("it dies", 0.0)
    assert lease is not None
    with pytest.raises(SystemExit):
        build_lease_sync(settings, store, lease).run(DyingMidway(settings))
    assert (job(store, id)["status"], job(store, id)["counts"]["completed"]) == ("running", 3)
    with run_worker(settings):
        row = wait_for_end(store, id)
    assert (row["status"], row["attempts"], row["counts"]["added"]) == ("completed", 2, 6)
    assert (row["counts"]["completed"], row["same"]) == (6, 0)
    published = [event["detail"] for event in row["events"] if event["stage"] == "publish"]
    assert published == [{"completed": 1}] * 6
    assert len(read_tree(store).documents) == 6
    assert violations(store) == []


@dataclass(frozen=True)
class DyingMidway:
    settings: Settings

    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        build_inline_runner(self.settings).run(target, sources, drafts[: len(drafts) // 2], check)
        raise SystemExit


@pytest.mark.slow
def test_a_worker_that_lost_its_lease_writes_nothing_more(store: Postgres) -> None:
    settings = settings_for(store, "ingestion.group=1")
    id = enter(store, build_request(settings, *(note(f"{n}.md", f"# {n}\n\nText {n}.") for n in range(4))))
    with store.connect("rag_worker") as connection:
        paused = Leases(connection, DEFAULT_TENANT).claim("it is paused", 0.0)
    assert paused is not None
    rows = list[dict[str, Any]]()

    def run_meanwhile() -> None:
        with run_worker(settings):
            wait_until(lambda: read_fence(store, id) > paused.fence)
            rows.append(job(store, id))

    with pytest.raises(FencedError, match="another worker has taken over"):
        build_lease_sync(settings, store, paused).run(Pausing(settings, run_meanwhile))
    with run_worker(settings):
        assert wait_for_end(store, id)["counts"]["completed"] == 4
    assert rows[0]["counts"]["completed"] == 2
    assert violations(store) == []


@dataclass(frozen=True)
class Pausing:
    settings: Settings
    meanwhile: Callable[[], None]

    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        half, runner = len(drafts) // 2, build_inline_runner(self.settings)
        runner.run(target, sources, drafts[:half], check)
        self.meanwhile()
        return runner.run(target, sources, drafts[half:], check)


def test_orphans_of_a_runner_that_died_write_nothing_into_the_job_that_goes_on(store: Postgres) -> None:
    settings = settings_for(store)
    id = enter(store, build_request(settings, *(note(f"{n}.md", f"# {n}\n\nText {n}.") for n in range(4))))
    orphans = list[tuple[WriteTarget, Mapping[int, Source], Sequence[Draft]]]()

    def leave(*work: Any) -> NoReturn:
        orphans.append(work)
        raise SystemExit

    def run_orphans_first(*work: Any) -> RunTimes:
        for orphan in orphans:
            with pytest.raises(FencedError):
                build_inline_runner(settings).run(*orphan)
        return build_inline_runner(settings).run(*work)

    for run in (leave, run_orphans_first):
        with store.connect("rag_worker") as connection:
            lease = Leases(connection, DEFAULT_TENANT).claim("a test", 0.0)
        assert lease is not None
        with suppress(SystemExit):
            build_lease_sync(settings, store, lease).run(Running(run))
    row = job(store, id)
    assert (row["status"], row["attempts"], row["counts"]["completed"]) == ("completed", 2, 4)
    assert violations(store) == []


@dataclass(frozen=True)
class Running:
    run: Callable[..., RunTimes]


def test_the_next_job_on_its_source_brings_a_killed_one_back_to_the_queue(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store, "ingestion.group=1")
    folder = write(tmp_path / "docs", {f"{n}.md": f"# {n}\n\nText {n}." for n in range(4)})
    id = enter(store, build_request(settings, locations=(str(folder),)))
    with store.connect("rag_worker") as connection:
        lease = Leases(connection, DEFAULT_TENANT).claim("it dies", 3600)
    assert lease is not None
    with pytest.raises(SystemExit):
        build_lease_sync(settings, store, lease).run(DyingMidway(settings))
    (folder / "0.md").write_text("# 0\n\nOther.")
    ingest(store, folder, settings=settings)
    assert job(store, id)["status"] == "queued"
    (folder / "0.md").write_text("# 0\n\nAnd other again.")
    with run_worker(settings):
        row = wait_for_end(store, id)
    assert (row["status"], row["counts"]["failed"], row["counts"]["queued"]) == ("completed", 0, 0)
    assert violations(store) == []


class Unlucky:
    """Fails the given number of times with the error."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.left = error, times

    def __call__(self, *arguments: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return build_lease_sync(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("error", [StoreError("it is away"), ModelError("no model"), KeyError("a bug")])
def test_a_job_that_fails_for_the_moment_is_tried_again(
    store: Postgres, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(worker, "build_lease_sync", Unlucky(error, 1))
    settings = settings_for(store)
    row = run_job(store, settings, build_request(settings, note("a.md", "# A\n\nText.")))
    assert (row["status"], row["attempts"]) == ("completed", 2)


@pytest.mark.slow
def test_a_job_that_failed_3_times_is_a_dead_letter_and_a_retry_does_it(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "build_lease_sync", Unlucky(StoreError("it is away"), 3))
    monkeypatch.setattr(worker, "FIRST_BACKOFF", 0.01)
    settings = settings_for(store)
    dead = run_job(store, settings, build_request(settings, note("a.md", "# A\n\nText.", title="B")))
    assert (dead["status"], dead["attempts"]) == ("failed", 3)
    assert dead["reason"] == "dead letter: it failed 3 times; the last error was StoreError: it is away"
    again = run_job(store, settings, build_retry_request(store, DEFAULT_TENANT, dead["id"]))
    assert (again["status"], again["counts"]["completed"]) == ("completed", 1)
    assert read_tree(store).documents["push:///a.md"]["title"] == "B"
    with pytest.raises(NotFoundError):
        build_retry_request(store, DEFAULT_TENANT, dead["id"])


def test_a_running_job_that_is_cancelled_ends_and_its_retry_does_the_rest(store: Postgres) -> None:
    settings = settings_for(store, "ingestion.group=1")
    id = enter(store, build_request(settings, *(note(f"{n}.md", f"# {n}\n\nText {n}.") for n in range(4))))

    def cancel() -> None:
        with store.connect() as connection:
            Ledger(connection, DEFAULT_TENANT).end(id, "cancelled", "by a test")

    with store.connect("rag_worker") as connection:
        lease = Leases(connection, DEFAULT_TENANT).claim("a test", 30)
    assert lease is not None
    with pytest.raises(FencedError):
        build_lease_sync(settings, store, lease).run(Pausing(settings, cancel))
    assert (job(store, id)["status"], job(store, id)["counts"]["completed"]) == ("cancelled", 2)
    assert violations(store) == []
    request = build_retry_request(store, DEFAULT_TENANT, id)
    assert len(request.documents) == 2
    assert run_job(store, settings, request)["counts"]["completed"] == 2


def test_a_worker_that_is_stopped_gives_its_job_back_at_once(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, stopped = threading.Event(), threading.Event()

    def build_slowly(*arguments: Any) -> Any:
        at_work.set()
        assert stopped.wait(TIMEOUT)
        return build_lease_sync(*arguments)

    monkeypatch.setattr(worker, "build_lease_sync", build_slowly)
    settings = settings_for(store)
    id = enter(store, build_request(settings, note("a.md", "# A\n\nText.")))
    with run_worker(settings) as first:
        assert at_work.wait(TIMEOUT)
        first.stop()
        with store.connect("rag_worker") as connection:
            again = Leases(connection, DEFAULT_TENANT).claim("another", 0.0)
        stopped.set()
    assert again is not None
    assert (again.job, again.attempt) == (id, 1)
    assert read_tree(store).documents == {}


@pytest.mark.slow
def test_a_job_that_takes_longer_than_a_lease_stays_its_workers(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_slowly(*arguments: Any) -> Any:
        time.sleep(LEASE_SECONDS + 1.0)
        return build_lease_sync(*arguments)

    monkeypatch.setattr(worker, "build_lease_sync", build_slowly)
    settings = settings_for(store)
    id = enter(store, build_request(settings, note("a.md", "# A\n\nText.")))
    with run_worker(settings, lease=LEASE_SECONDS), run_worker(settings, lease=LEASE_SECONDS):
        row = wait_for_end(store, id)
    assert (row["status"], row["attempts"]) == ("completed", 1)


@pytest.mark.slow
def test_a_worker_outlives_a_store_that_ends_its_connections(store: Postgres) -> None:
    settings = settings_for(store)
    with run_worker(settings):
        with superuser(store) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        id = enter(store, build_request(settings, note("a.md", "# A\n\nText.")))
        assert wait_for_end(store, id)["status"] == "completed"


@pytest.mark.slow
def test_bytes_of_all_sizes_are_read_and_those_above_the_limit_are_refused(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed, "BLOCK_BYTES", 1_000)
    settings = settings_for(store, "limits.file_mb=0.002", "parsing.detect_language=false")
    texts = {
        f"{size}.txt": "gate " * (size // 5) + "." for size in (10, 500, 700, 800, 999, 1_500, *range(100, 160, 5))
    }
    documents = [note(id, text) for id, text in texts.items()]
    row = run_job(store, settings, build_request(settings, *documents, note("large.txt", "x" * 2_001)))
    assert (row["counts"]["completed"], row["counts"]["failed"]) == (len(texts), 1)
    stored = {id: read_tree(store).documents[f"push:///{id}"] for id in ("large.txt", *texts)}
    assert stored.pop("large.txt")["reason"] == "too large: 0.0 MB, limit 0.002 MB"
    assert {id: document["text"] for id, document in stored.items()} == texts


def test_a_document_whose_bytes_are_gone_fails_for_good(store: Postgres) -> None:
    settings = settings_for(store)
    id = enter(store, build_request(settings, note("a.md", "# A\n\nText."), note("b.md", "# B\n\nText.")))
    with store.connect("rag_worker") as connection:
        lease = Leases(connection, DEFAULT_TENANT).claim("a test", 30)
        assert lease is not None
        work = build_lease_sync(settings, store, lease)
        connection.execute("delete from pushed_documents where id = 'a.md'")
    report = work.run(build_inline_runner(settings))
    assert [(failure["uri"], failure["retryable"]) for failure in report.failures] == [("push:///a.md", False)]
    assert job(store, id)["counts"]["completed"] == 1


@pytest.mark.slow
def test_a_large_job_lets_one_of_another_tenant_run_and_continues_where_it_stopped(
    store: Postgres, tmp_path: Path
) -> None:
    settings = settings_for(store, "ingestion.group=1", "ingestion.turn_s=0.1")
    folder = write(tmp_path / "docs", {f"{n}.md": f"# Note {n}\n\nText of {n}." for n in range(200)})
    large = enter(store, build_request(settings, locations=(str(folder),)))
    with run_worker(settings):
        wait_until_some_are_completed(store, large)
        with store.connect() as connection:
            small = (
                Queue(connection, "another-tenant")
                .enqueue(build_request(settings, note("a.md", "# A\n\nText.")))
                .job_id
            )
        large_row = wait_for_end(store, large)
    with store.connect() as connection:
        first = Ledger(connection, "another-tenant").job(str(small))
    assert (first["status"], first["reason"]) == ("completed", None)
    assert (large_row["status"], large_row["attempts"]) == ("completed", 1)
    assert first["finished_at"] < large_row["finished_at"]
    turns = [event["detail"] for event in large_row["events"] if event["status"] == "queued"][1:]
    assert turns == [{"reason": "its turn ended: other jobs were waiting"}]
    published = [event["detail"] for event in large_row["events"] if event["stage"] == "publish"]
    assert published == [{"completed": 1}] * 200  # nothing was done twice
    assert violations(store) == []


@pytest.mark.slow
def test_a_job_with_more_documents_than_allowed_fails_before_anything_changes(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store, "ingestion.queued_documents=3")
    folder = write(tmp_path / "docs", {f"{n}.md": f"Text of {n}." for n in range(4)})
    refused = run_job(store, settings, build_request(settings, locations=(str(folder),)))
    assert (refused["status"], refused["attempts"], refused["documents"]) == ("failed", 1, 0)
    assert refused["reason"].startswith(
        "LimitError: a queued job must have at most 3 documents (ingestion.queued_documents); its sources have more"
    )
    (folder / "3.md").unlink()
    assert run_job(store, settings, build_request(settings, locations=(str(folder),)))["counts"]["completed"] == 3


@pytest.mark.slow
def test_a_job_that_works_for_too_long_over_all_its_turns_fails_and_its_retry_does_the_rest(
    store: Postgres, tmp_path: Path
) -> None:
    settings = settings_for(store, "ingestion.group=1", "ingestion.queued_s=1000")
    folder = write(tmp_path / "docs", {f"{n}.md": f"# Note {n}\n\nText of {n}." for n in range(200)})
    id = enter(store, build_request(settings, locations=(str(folder),)))
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set worked_seconds = 999.9")
    with run_worker(settings):
        stopped = wait_for_end(store, id)
    assert (stopped["status"], stopped["attempts"]) == ("failed", 1)
    assert stopped["reason"].startswith("LimitError: a queued job must work for at most 1000 s (ingestion.queued_s)")
    assert stopped["counts"]["completed"] + stopped["counts"]["failed"] == 200
    assert stopped["counts"]["failed"] > 0
    retry = run_job(store, settings, build_retry_request(store, DEFAULT_TENANT, id))
    assert (retry["status"], retry["counts"]["completed"]) == ("completed", stopped["counts"]["failed"])
    assert violations(store) == []


@pytest.mark.slow
def test_a_cancelled_job_frees_its_source_and_its_worker(store: Postgres, tmp_path: Path) -> None:
    settings = settings_for(store, "ingestion.group=1")
    folder = write(tmp_path / "docs", {f"{n}.md": f"# Note {n}\n\nText of {n}." for n in range(200)})
    id = enter(store, build_request(settings, locations=(str(folder),)))
    with run_worker(settings):
        wait_until_some_are_completed(store, id)
        with store.connect() as connection:
            assert Ledger(connection, DEFAULT_TENANT).end(id, "cancelled", "by a test")
        cancelled = job(store, id)["counts"]
        following = wait_for_end(store, enter(store, build_request(settings, locations=(str(folder),))))
    assert job(store, id)["counts"] == cancelled
    assert cancelled["completed"] + cancelled["cancelled"] == 200
    assert following["counts"]["completed"] == cancelled["cancelled"] > 0
    assert violations(store) == []
