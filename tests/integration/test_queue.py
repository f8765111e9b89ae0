"""The queue: which jobs are entered, who leases them, and what happens to them if their worker dies."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from trees import hashing_settings, violations

from rag_core.errors import FencedError, IdempotencyError, NotFoundError, SourceError, UsageError
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.watch import Check
from rag_core.protocols import Source
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.storage.queue import (
    MAX_ATTEMPTS,
    EnqueuedJob,
    IngestRequest,
    Lease,
    Leases,
    PushedDocument,
    Queue,
    build_retry_request,
)
from rag_core.types import DEFAULT_TENANT, Draft
from rag_core.wiring.ingestion import build_inline_runner, build_lease_sync

pytestmark = pytest.mark.postgres

NOTE = PushedDocument(id="notes/one.md", body=b"# One\n\nThe gate is open.\n")
SETTINGS = hashing_settings().model_dump(mode="json", exclude={"store", "tenant"})


def push_request(*documents: PushedDocument, collection: str = "notes") -> IngestRequest:
    return IngestRequest(collection=collection, profile="default", settings=SETTINGS, documents=documents)


def note(id: str, text: str = "The gate is open.") -> PushedDocument:
    return PushedDocument(id=id, body=text.encode())


def enter(store: Postgres, request: IngestRequest, key: str = "", fingerprint: str = "") -> EnqueuedJob:
    with store.connect() as connection:
        return Queue(connection, DEFAULT_TENANT).enqueue(request, key, fingerprint)


@contextmanager
def open_leases(store: Postgres) -> Iterator[Leases]:
    with store.connect("rag_worker") as connection:
        yield Leases(connection, DEFAULT_TENANT)


def claim(store: Postgres, seconds: float = 30.0) -> Lease | None:
    with open_leases(store) as leases:
        return leases.claim("a-test", seconds)


def row(store: Postgres, job: UUID) -> dict[str, object]:
    with store.connect() as connection:
        return Ledger(connection, DEFAULT_TENANT).job(str(job))


def events(store: Postgres, job: UUID) -> list[tuple[int, str, str]]:
    with store.connect() as connection:
        rows = Ledger(connection, DEFAULT_TENANT).events(job)
    return [(event["seq"], event["stage"], event["status"]) for event in rows]


def bodies(store: Postgres) -> list[str]:
    with store.connect("rag_worker") as connection:
        return [row[0] for row in connection.execute("select id from pushed_documents order by id")]


def test_a_job_exists_from_the_moment_it_is_requested(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    job_row = row(store, job)
    assert (job_row["status"], job_row["collection"], job_row["profile"]) == ("queued", "notes", "default")
    assert job_row["created_at"] is not None
    assert (job_row["started_at"], job_row["finished_at"]) == (None, None)
    assert events(store, job) == [(1, "job", "queued")]
    assert violations(store) == []


def test_one_key_makes_one_job_even_if_it_is_sent_20_times_at_once(store: Postgres) -> None:
    with ThreadPoolExecutor(8) as threads:
        accepted = list(threads.map(lambda _: enter(store, push_request(NOTE), "a key", "f"), range(20)))
    assert len({entry.job_id for entry in accepted}) == 1
    assert [entry.replayed for entry in accepted].count(False) == 1
    assert bodies(store) == ["notes/one.md"]


def test_a_key_with_another_request_is_refused_and_after_24_hours_it_is_free(store: Postgres) -> None:
    first = enter(store, push_request(NOTE), "a key", "f")
    with pytest.raises(IdempotencyError, match="'a key' was used before, for another request"):
        enter(store, push_request(NOTE), "a key", "g")
    with store.connect("rag_worker") as connection:
        connection.execute("update jobs set created_at = now() - interval '25 hours'")
    second = enter(store, push_request(NOTE), "a key", "g")
    assert (second.replayed, second.job_id == first.job_id) == (False, False)


def test_a_key_of_another_tenant_is_another_key(store: Postgres) -> None:
    mine = enter(store, push_request(NOTE), "a key", "f")
    with store.connect() as connection:
        theirs = Queue(connection, "another-tenant").enqueue(push_request(NOTE), "a key", "g")
    assert mine.job_id != theirs.job_id


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([note("a"), note("a")], "a unique, non-empty id, got 'a' 2 times"),
        ([note("")], "a unique, non-empty id, got '' 1 times"),
        ([PushedDocument(id="a", body=b"", url="javascript:alert(1)")], "url must be absolute and not a script"),
        ([PushedDocument(id="a", body=b"", url="java\tscript://x")], "url must be absolute and not a script"),
        ([note("".join(map(chr, range(0x4E00, 0x4E00 + 2500))))], "an id must be short enough for an index"),
        ([PushedDocument(id="a", body=b"", metadata={"k": {"x": 1}})], "metadata 'k' must be .* got dict"),
        ([PushedDocument(id="a", body=b"", metadata={"k": "\0"})], "must not contain NUL"),
        ([PushedDocument(id="a", body=b"", title="\ud800")], "must not contain NUL or lone surrogates"),
    ],
)
def test_what_no_document_can_be_is_refused_and_enters_nothing(
    store: Postgres, documents: list[PushedDocument], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        enter(store, push_request(*documents))
    assert bodies(store) == []
    with store.connect() as connection:
        assert Ledger(connection, DEFAULT_TENANT).jobs() == []


def test_jobs_are_leased_in_the_order_in_which_they_came_each_to_one(store: Postgres) -> None:
    entered = [enter(store, push_request(note("a"), collection=f"c{n}")).job_id for n in range(20)]
    first, second = claim(store), claim(store)
    assert first is not None
    assert second is not None
    with ThreadPoolExecutor(4) as threads:
        others = [lease.job for lease in threads.map(lambda _: claim(store), range(24)) if lease]
    assert [first.job, second.job] == entered[:2]
    assert sorted(others) == sorted(entered[2:])
    assert (first.job, first.tenant, first.fence, first.attempt, first.pushes) == (
        entered[0], DEFAULT_TENANT, 1, 1, True,
    )  # fmt: skip
    assert first.request == IngestRequest(collection="c0", profile="default", settings=SETTINGS)


def test_tenants_take_turns_and_so_do_the_jobs_of_one(store: Postgres) -> None:
    first, second, third = (enter(store, push_request(note("a"), collection=f"c{n}")).job_id for n in range(3))
    with store.connect() as connection:
        other = Queue(connection, "other").enqueue(push_request(note("a"))).job_id
    order = []
    with open_leases(store) as leases:
        for _ in range(6):
            lease = leases.claim("a-test", 30)
            assert lease is not None
            order.append(lease.job)
            leases.release(lease, 0, "its turn ended", count_attempt=False)
    assert order == [first, other, second, other, third, other]


def test_a_turn_ends_for_other_tenants_and_for_smaller_jobs_and_only_after_progress(store: Postgres) -> None:
    def enqueue(tenant: str, documents: int, collection: str) -> UUID:
        with store.connect() as connection:
            notes = [note(f"{n}") for n in range(documents)]
            return Queue(connection, tenant).enqueue(push_request(*notes, collection=collection)).job_id

    def is_over(turn: float = 0.0) -> bool:
        with open_leases(store) as leases:
            return leases.is_turn_over(lease, turn)

    enqueue(DEFAULT_TENANT, 6, "large")
    lease = claim(store)
    assert lease is not None
    settings, looks = hashing_settings("ingestion.group=1", "parsing.sandbox=false"), list[bool]()

    @dataclass(frozen=True)
    class Half:
        def run(
            self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
        ) -> RunTimes:
            enqueue(DEFAULT_TENANT, 2, "smaller")
            looks.append(is_over())  # nothing is finished
            build_inline_runner(settings).run(target, sources, drafts[:3], check)
            looks.append(is_over())  # 3 documents are left, and 2 wait
            looks.append(is_over(60.0))  # too early
            with store.connect("rag_worker") as connection:
                connection.execute("update jobs set size = 3 where request ->> 'collection' = 'smaller'")
            looks.append(is_over())  # as large as the rest
            enqueue("other", 50, "of-another-tenant")
            looks.append(is_over())
            return build_inline_runner(settings).run(target, sources, drafts[3:], check)

    build_lease_sync(settings, store, lease).run(Half())
    assert looks == [False, True, False, False, True]


def test_a_lease_that_runs_out_is_anothers_and_its_first_holder_is_fenced(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    first = claim(store, 0.0)
    second = claim(store)
    assert first is not None
    assert second is not None
    assert (second.job, second.fence, second.attempt) == (job, first.fence + 1, 2)
    with open_leases(store) as leases, store.connect() as connection:
        assert not leases.heartbeat(first, 30)
        assert not leases.release(first, 0, "no")
        assert not leases.fail(first, "no")
        with pytest.raises(FencedError):
            Ledger(connection, DEFAULT_TENANT).start(first.job, first.fence)
        assert leases.heartbeat(second, 30)


def test_a_job_waits_for_its_time(store: Postgres) -> None:
    enter(store, push_request(NOTE))
    lease = claim(store)
    assert lease is not None
    with open_leases(store) as leases:
        assert leases.release(lease, 3600, "a test")
        assert leases.claim("a-test", 30) is None
        with store.connect("rag_worker") as connection:
            connection.execute("update jobs set run_at = now()")
        again = leases.claim("a-test", 30)
    assert again is not None
    assert again.attempt == 2


def test_an_attempt_that_does_not_count_is_not_counted(store: Postgres) -> None:
    enter(store, push_request(NOTE))
    for _ in range(MAX_ATTEMPTS + 2):
        lease = claim(store)
        assert lease is not None
        assert lease.attempt == 1
        with open_leases(store) as leases:
            leases.release(lease, 0, "busy", count_attempt=False)


def test_a_job_whose_workers_died_3_times_is_a_dead_letter(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    for _ in range(MAX_ATTEMPTS):
        assert claim(store, 0.0) is not None
    assert claim(store) is None
    with open_leases(store) as leases:
        assert leases.fail_abandoned() == 1
        assert leases.fail_abandoned() == 0
    job_row = row(store, job)
    assert (job_row["status"], job_row["reason"]) == (
        "failed", "dead letter: it was started 3 times, and its worker died each time",
    )  # fmt: skip
    assert violations(store) == []
    again = build_retry_request(store, DEFAULT_TENANT, job)
    assert again.documents == (NOTE,)
    assert again.settings == SETTINGS


def test_pushes_into_one_collection_run_one_at_a_time_and_others_next_to_them(store: Postgres) -> None:
    first, _, other = (enter(store, push_request(note(id), collection=c)).job_id for id, c in ("ax", "bx", "cy"))
    leased = [claim(store), claim(store), claim(store)]
    assert [lease.job if lease else None for lease in leased] == [first, other, None]


def test_a_newer_version_of_a_document_waits_for_the_older_one_and_other_documents_do_not(store: Postgres) -> None:
    _, newer, other = (enter(store, push_request(note(id, text))).job_id for id, text in ("a1", "a2", "b1"))
    older = claim(store)
    assert older is not None
    with open_leases(store) as leases:
        leases.release(older, 3600, "it waits to be tried again")
        lease = leases.claim("a-test", 30)
        assert lease is not None
        assert lease.job == other
        leases.fail(lease, "a test")
        assert leases.claim("a-test", 30) is None
        with store.connect() as connection:
            Ledger(connection, DEFAULT_TENANT).end(older.job, "cancelled")
        lease = leases.claim("a-test", 30)
    assert lease is not None
    assert lease.job == newer


def test_a_queued_job_can_be_cancelled_and_is_not_leased_any_more(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    with store.connect() as connection:
        assert Ledger(connection, DEFAULT_TENANT).end(job, "cancelled", "by a test")
    assert claim(store) is None
    job_row = row(store, job)
    assert (job_row["status"], job_row["reason"]) == ("cancelled", "by a test")
    assert job_row["started_at"] is not None
    assert events(store, job) == [(1, "job", "queued"), (2, "job", "cancelled")]
    assert violations(store) == []


def test_only_what_has_ended_is_tried_again(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    with pytest.raises(UsageError, match="is queued"):
        build_retry_request(store, DEFAULT_TENANT, job)
    with pytest.raises(NotFoundError):
        build_retry_request(store, DEFAULT_TENANT, uuid4())


def fail(store: Postgres) -> None:
    lease = claim(store)
    assert lease is not None
    with open_leases(store) as leases:
        leases.fail(lease, "a test")


def test_a_document_can_have_any_absolute_uri(store: Postgres) -> None:
    enter(store, push_request(PushedDocument(id="a", body=b"A", url="urn:isbn:9783")))
    assert bodies(store) == ["a"]


def test_a_retry_leaves_out_what_was_pushed_again_since(store: Postgres) -> None:
    first = enter(store, push_request(note("a", "Version 1."), note("b"))).job_id
    fail(store)
    second = enter(store, push_request(note("a", "Version 2."))).job_id
    assert [document.id for document in build_retry_request(store, DEFAULT_TENANT, first).documents] == ["b"]
    with store.connect() as connection:
        Ledger(connection, DEFAULT_TENANT).end(second, "cancelled")
    assert [document.id for document in build_retry_request(store, DEFAULT_TENANT, first).documents] == ["a", "b"]


def test_a_retry_leaves_out_only_what_is_on_its_way_into_the_same_collection(store: Postgres) -> None:
    first = enter(store, push_request(note("a"))).job_id
    fail(store)
    enter(store, push_request(note("a"), collection="others"))
    assert [document.id for document in build_retry_request(store, DEFAULT_TENANT, first).documents] == ["a"]


def test_the_bodies_of_a_failed_job_are_forgotten_after_7_days(store: Postgres) -> None:
    job = enter(store, push_request(NOTE)).job_id
    lease = claim(store)
    assert lease is not None
    with open_leases(store) as leases, store.connect("rag_worker") as connection:
        leases.fail(lease, "a test")
        leases.delete_old_bodies(7)
        assert bodies(store) == ["notes/one.md"]
        connection.execute("update jobs set finished_at = now() - interval '8 days'")
        leases.delete_old_bodies(7)
    assert bodies(store) == []
    with pytest.raises(NotFoundError, match="no failed documents to retry"):
        build_retry_request(store, DEFAULT_TENANT, job)


def test_lost_rows_of_a_document_are_written_again_when_it_is_pushed_again(store: Postgres) -> None:
    push(store)
    with store.connect("rag_worker") as connection:
        assert connection.execute("delete from chunks").rowcount > 0
    assert violations(store) != []
    push(store)
    assert violations(store) == []


def push(store: Postgres) -> None:
    enter(store, push_request(NOTE))
    lease = claim(store)
    assert lease is not None
    build_lease_sync(hashing_settings(), store, lease).run(build_inline_runner(hashing_settings()))
