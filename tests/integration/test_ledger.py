import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from drafts import TENANT, draft, draft_with_failure, embed_draft, same_draft
from psycopg import Connection
from targets import begin, end, publish, superuser, wait_until_unlocked, write

from rag_core.errors import BusyError, FencedError, NotFoundError
from rag_core.storage.fsck import find_violations
from rag_core.storage.ledger import INTERRUPTED, Job, Ledger
from rag_core.storage.parts import split_draft
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CHECK_FENCE, RESERVE_EVENTS, CorpusWriter, WriteTarget
from rag_core.types import Draft

pytestmark = pytest.mark.postgres

COLLECTION = 1
ITEM = (UUID(int=1), "file:///a.md", "add")


@pytest.fixture
def connections(store: Postgres) -> Iterator[tuple[Connection, Connection]]:
    with store.connect() as first, store.connect() as second:
        yield first, second


def begin_job(ledger: Ledger, sources: Sequence[int] = (1,), items: Sequence[tuple[UUID, str, str]] = (ITEM,)) -> Job:
    ledger.claim(COLLECTION, sources)
    return ledger.begin(COLLECTION, sources, "default", {"chunking": {"tokens": 200}}, 3, items)


def item_states(store: Postgres, job: UUID) -> list[tuple[str, str | None, str | None, bool]]:
    with superuser(store) as connection:
        statement = "select status, stage, reason, retryable from job_items where job_id = %s order by uri"
        return list(connection.execute(statement, [job]))


def test_a_source_is_held_by_one_job_at_a_time(connections: tuple[Connection, Connection]) -> None:
    mine, theirs = (Ledger(connection, TENANT) for connection in connections)
    begin_job(mine, [1, 2])
    with pytest.raises(BusyError, match="another job is running"):
        theirs.claim(COLLECTION, [2, 3])
    assert [job["status"] for job in theirs.jobs()] == ["running"]


def test_other_sources_collections_and_tenants_are_free(connections: tuple[Connection, Connection]) -> None:
    mine, theirs = connections
    Ledger(mine, TENANT).claim(COLLECTION, [1])
    Ledger(theirs, TENANT).claim(COLLECTION, [2])
    Ledger(theirs, TENANT).claim(COLLECTION + 1, [1])
    Ledger(theirs, "another-tenant").claim(COLLECTION, [1])


def test_a_source_is_free_when_its_jobs_connection_is_closed(store: Postgres) -> None:
    with store.connect() as connection:
        ledger = Ledger(connection, TENANT)
        ledger.end(begin_job(ledger).id, "completed")
    wait_until_unlocked(store)
    with store.connect() as connection:
        Ledger(connection, TENANT).claim(COLLECTION, [1])


def test_the_next_claim_ends_a_job_that_was_killed(store: Postgres) -> None:
    items = [(uuid4(), f"file:///{name}.md", "add") for name in "ab"]
    with store.connect() as connection:
        killed = begin_job(Ledger(connection, TENANT), [1, 2], items)
    wait_until_unlocked(store)
    with store.connect() as connection:
        ledger = Ledger(connection, TENANT)
        assert ledger.job(str(killed.id))["status"] == "running"
        ledger.claim(COLLECTION, [2])
        job = ledger.job(str(killed.id))
    assert (job["status"], job["reason"], job["failed"]) == ("failed", "interrupted", 2)
    assert job["finished_at"] >= job["started_at"]
    assert item_states(store, killed.id) == [("failed", "job", INTERRUPTED, True)] * 2
    with superuser(store) as connection:
        assert find_violations(connection) == []


def test_a_claim_ends_no_job_of_another_source(store: Postgres) -> None:
    with store.connect() as connection:
        killed = begin_job(Ledger(connection, TENANT), [1])
    with store.connect() as connection:
        ledger = Ledger(connection, TENANT)
        ledger.claim(COLLECTION, [2])
        assert ledger.job(str(killed.id))["status"] == "running"


def test_a_worker_that_outlives_its_job_is_fenced_by_the_next_claim(store: Postgres) -> None:
    note = draft("file:///a.md", "one")
    orphaned = begin(store, [note])
    with store.connect() as connection:
        Ledger(connection, TENANT).claim(orphaned.collection, [1])
        with pytest.raises(FencedError):
            write(orphaned, [note])


PARTS = split_draft(replace(draft("file:///a.md", "one", "two"), vectors=None), 1)
WRITES: dict[str, Callable[[CorpusWriter], None]] = {
    "batch": lambda writer: writer.publish([draft("file:///a.md", "one", "two")]),
    "delete": lambda writer: writer.delete([PARTS[0].id]),
    "part": lambda writer: writer.publish([embed_draft(PARTS[0])]),
}
ENDS: dict[str, Callable[[Ledger, WriteTarget], object]] = {
    "cancel": lambda ledger, target: ledger.end(target.job, "cancelled"),
    "claim": lambda ledger, target: ledger.claim(target.collection, [1]),
}
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


@pytest.mark.parametrize("write_", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("end_", ENDS.values(), ids=ENDS)
def test_who_ends_a_job_waits_for_its_writers_and_they_never_for_each_other(
    store: Postgres, write_: Callable[[CorpusWriter], None], end_: Callable[[Ledger, WriteTarget], object]
) -> None:
    target = begin(store, [PARTS[0]])
    with store.connect() as connection, superuser(store) as watcher, ThreadPoolExecutor(2) as threads:
        writer = target.open()
        pause = pause_with_locks(writer)
        writing = threads.submit(write_, writer)
        assert pause.reached.wait(60)
        ending = threads.submit(end_, Ledger(connection, TENANT), target)
        while watcher.execute(WAITING).fetchone() != (1,):
            pass
        pause.over.set()
        writing.result()
        ending.result()
        writer.close()
        assert watcher.execute(DEADLOCKS).fetchone() == (0,)
        assert find_violations(watcher) == []
        assert Ledger(connection, TENANT).job(str(target.job))["status"] in ("cancelled", "failed")


@dataclass
class Pause:
    reached: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)


def pause_with_locks(writer: CorpusWriter) -> Pause:
    """Pauses the writer between its last statement that locks rows of documents, and the first that locks the job's."""
    pause, connection = Pause(), writer._connection

    class Paused:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def execute(self, statement: str, *arguments: Any, **options: Any) -> Any:
            if statement in (RESERVE_EVENTS, CHECK_FENCE):
                pause.reached.set()
                assert pause.over.wait(60)
            return connection.execute(statement.encode(), *arguments, **options)

    writer._connection = Paused()  # type: ignore[assignment]
    return pause


DIE_WHILE_AT_WORK = """
import sys, time
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
ledger = Ledger(Postgres(sys.argv[1]).connect(), sys.argv[2])
ledger.claim(1, [1])
ledger.begin(1, [1], "default", {}, 0, [])
print("at work", flush=True)
time.sleep(60)
"""


def test_the_source_of_a_killed_process_can_be_claimed(store: Postgres) -> None:
    command = [sys.executable, "-c", DIE_WHILE_AT_WORK, store.dsn, TENANT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, store.connect() as connection:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        ledger = Ledger(connection, TENANT)
        with pytest.raises(BusyError):
            ledger.claim(1, [1])
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until_unlocked(store)
        ledger.claim(1, [1])
        assert [job["reason"] for job in ledger.jobs()] == ["interrupted"]


def test_later_jobs_have_higher_runs(connections: tuple[Connection, Connection]) -> None:
    runs = [begin_job(Ledger(connection, TENANT), [source]).run for source, connection in enumerate(connections)]
    assert runs == sorted(set(runs))


def test_events_of_writers_side_by_side_are_numbered_without_a_gap(store: Postgres) -> None:
    notes = [draft(f"file:///{n}.md", f"text {n}") for n in range(40)]
    target = begin(store, notes)
    with ThreadPoolExecutor(2) as threads:
        halves = [threads.submit(write_one_by_one, target, notes[side::2]) for side in range(2)]
        for half in halves:
            half.result()
    end(target)
    with store.connect() as connection:
        events = Ledger(connection, TENANT).events(target.job)
        later = Ledger(connection, TENANT).events(target.job, after=42)
    assert [event["seq"] for event in events] == list(range(1, 46))
    assert [(event["stage"], event["detail"]) for event in later] == [
        ("publish", {"completed": 1}),
        ("stage", {"state": "completed"}),
        ("job", {"reason": ""}),
    ]
    with superuser(store) as connection:
        assert find_violations(connection) == []


def write_one_by_one(target: WriteTarget, notes: Sequence[Draft]) -> None:
    writer = target.open()
    for note in notes:
        writer.publish([note])
    writer.close()


def test_progress_counts_documents_by_what_became_of_them(store: Postgres) -> None:
    old = {name: draft(f"file:///{name}.md", f"{name} one", f"{name} two") for name in ("same", "changed", "deleted")}
    publish(store, *old.values())
    new = draft("file:///new.md", "new one", "new two", "new three")
    changed = replace(draft("file:///changed.md", "changed one", "other"), embedded=1)
    broken, empty, waiting = (draft(f"file:///{name}.md", name) for name in ("broken", "empty", "waiting"))
    with store.connect() as connection:
        ledger = Ledger(connection, TENANT)
        target = begin(store)
        items = [(note.id, note.entry.uri, "add") for note in (new, broken, empty, waiting)]
        items += [(note.id, note.entry.uri, "change") for note in (changed, old["same"])]
        items += [(old["deleted"].id, "file:///deleted.md", "delete")]
        job = ledger.begin(target.collection, [1], "default", {}, 5, items)
        target = replace(target, job=job.id, run=job.run)
        write(
            target,
            [
                new,
                changed,
                same_draft(old["same"]),
                draft_with_failure(broken, retryable=True),
                draft_with_failure(empty, skipped=True),
            ],
        )
        delete(target, [old["deleted"]])
        assert ledger.progress(job.id) == {
            "added": 4,
            "changed": 1,
            "deleted": 1,
            "same": 1,
            "completed": 2,
            "failed": 1,
            "dead_letters": 1,
            "skipped": 1,
            "quarantined": 0,
            "cancelled": 0,
            "queued": 1,
            "chunks": 5,
            "embedded": 4,
            "removed": 3,
        }
        reason = {"stage": "read", "reason": "it was a test"}
        assert ledger.failures(job.id, "failed") == [
            {"uri": "file:///broken.md", **reason, "retryable": True, "status": "failed"}
        ]
        assert ledger.failures(job.id, "skipped") == [
            {"uri": "file:///empty.md", **reason, "retryable": False, "status": "skipped"}
        ]
        ledger.end(job.id, "failed", "enough", {"total": 1.5})
        listed = ledger.job(str(job.id)[:8])
        assert (listed["status"], listed["reason"], listed["seconds"]) == ("failed", "enough", {"total": 1.5})
        assert (listed["documents"], listed["failed"], listed["same"]) == (7, 2, 5)
        assert [row["uri"] for row in ledger.failures(job.id, "failed")] == ["file:///broken.md", "file:///waiting.md"]
        failure = {"document_id": str(broken.id), "uri": "file:///broken.md", "status": "failed", "retryable": True}
        assert [event["detail"] for event in ledger.events(job.id)] == [
            {},
            {"state": "completed"},
            {"documents": 7},
            {**failure, **reason},
            {"completed": 2, "failed": 1, "same": 1, "skipped": 1},
            {"deleted": 1},
            {"reason": "enough"},
        ]


def delete(target: WriteTarget, notes: Sequence[Draft]) -> None:
    writer = target.open()
    writer.delete([note.id for note in notes])
    writer.close()


def test_stage_seconds_are_summed_over_documents(store: Postgres) -> None:
    slow = draft("file:///a.md", "one").with_stage_time("read", 0.5)
    quick = draft("file:///b.md", "two").with_stage_time("read", 0.25).with_stage_time("split", 0.125)
    target = publish(store, slow, quick)
    with store.connect() as connection:
        assert Ledger(connection, TENANT).stage_seconds(target.job) == {"embed": 0.5, "read": 0.75, "split": 0.125}


def test_a_job_that_has_ended_stays_as_it_ended(connections: tuple[Connection, Connection]) -> None:
    ledger = Ledger(connections[0], TENANT)
    job = begin_job(ledger, items=[]).id
    ledger.end(job, "completed")
    ledger.end(job, "failed", "too late")
    assert (ledger.job(str(job))["status"], ledger.job(str(job))["reason"]) == ("completed", None)
    assert [event["status"] for event in ledger.events(job)][3:] == ["finishing", "completed"]


def test_a_job_is_found_by_the_beginning_of_its_id_where_that_names_one(
    connections: tuple[Connection, Connection],
) -> None:
    ledger = Ledger(connections[0], TENANT)
    first, second = (begin_job(ledger, items=[]).id for _ in range(2))
    assert [job["id"] for job in ledger.jobs()] == [second, first]
    assert ledger.job(str(first)[:18])["id"] == first
    with pytest.raises(NotFoundError, match="more than one job"):
        ledger.job("")
    with pytest.raises(NotFoundError, match="no job unknown"):
        ledger.job("unknown")
    with pytest.raises(NotFoundError, match="no job"):
        Ledger(connections[1], "another-tenant").job(str(first))
