"""Publishing to the real store: its rows, transactions, locks and snapshots."""

import asyncio
import pickle
import random
import string
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from threading import Event

import numpy as np
import pytest
from drafts import OTHER_SPACE, SPACE, TENANT, draft, draft_with_failure, embed_draft, same_draft, vector
from psycopg import Connection
from targets import begin, end, publish, superuser, write

from rag_core.errors import FencedError, StoreError
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.fsck import find_violations
from rag_core.storage.ledger import Ledger
from rag_core.storage.parts import dump_draft, load_draft, split_draft
from rag_core.storage.postgres import Postgres, Role
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Draft, Hit, Metadata, Query

pytestmark = pytest.mark.postgres

QUERY = Query(text="", tenant=TENANT)
TABLES = ("documents", "document_texts", "document_values", "chunks", "vectors")


def versions(store: Postgres, table: str, key: str) -> dict[object, tuple[str, str]]:
    """The position of each row of the table, and the transaction that wrote it."""
    with superuser(store) as connection:
        statement = f"select {key}, ctid::text, xmin::text from {table}"  # noqa: S608
        return {row[0]: (row[1], row[2]) for row in connection.execute(statement.encode())}


def counts(store: Postgres) -> dict[str, int]:
    with superuser(store) as connection:
        rows = {table: connection.execute(f"select count(*) from {table}".encode()).fetchone() for table in TABLES}  # noqa: S608
    return {table: row[0] for table, row in rows.items() if row}


def documents(store: Postgres) -> dict[str, tuple[str, str | None, str | None]]:
    with store.connect() as connection:
        rows = Catalog(connection, TENANT).documents("default")
    return {row["uri"]: (row["status"], row["stage"], row["reason"]) for row in rows}


async def retrieve_all(reader: CorpusReader) -> list[Hit]:
    async with reader.snapshot(QUERY):
        ranking = await reader.rank_dense(QUERY, vector("anything"), SPACE, 100)
        hits = await reader.fetch_hits(QUERY, "dense", ranking)
        assert len(hits) == len(ranking)
        return hits


def search_texts(store: Postgres) -> set[str]:
    async def texts() -> set[str]:
        reader = CorpusReader(store)
        try:
            return {hit.chunk.text for hit in await retrieve_all(reader)}
        finally:
            await reader.close()

    return asyncio.run(texts())


def test_chunks_that_only_move_keep_the_row_of_their_vector(store: Postgres) -> None:
    first, second = draft("file:///a.md", "one", "two", "three"), draft("file:///a.md", "new", "three", "one")
    publish(store, first)
    before = versions(store, "vectors", "chunk_id")
    publish(store, second)
    after = versions(store, "vectors", "chunk_id")
    unchanged_ids = {first.chunks[0].id, first.chunks[2].id}
    assert {id: after[id] for id in unchanged_ids} == {id: before[id] for id in unchanged_ids}
    assert after.keys() - unchanged_ids == {second.chunks[0].id}


def test_chunks_that_stay_where_they_are_keep_their_row(store: Postgres) -> None:
    first = draft("file:///a.md", "one", "two", "three")
    publish(store, first)
    before = versions(store, "chunks", "id")
    publish(store, draft("file:///a.md", "one", "two", "other"))
    after = versions(store, "chunks", "id")
    assert {id: before[id] for id in before.keys() & after.keys()} == {
        chunk.id: after[chunk.id] for chunk in first.chunks[:2]
    }


def with_nul(note: Draft) -> Draft:
    assert note.document is not None
    return replace(note, document=replace(note.document, text="\x00" + note.document.text[1:]))


def with_infinite_vector(note: Draft) -> Draft:
    return replace(note, vectors=np.full((len(note.chunks), SPACE.dimension), np.inf, dtype=np.float32))


def with_number_too_large(note: Draft) -> Draft:
    return with_metadata(note, {"number": 10**400})


def with_half_a_character(note: Draft) -> Draft:
    return with_metadata(note, {"name": "\ud800"})


def with_metadata(note: Draft, metadata: Metadata) -> Draft:
    assert note.document is not None
    return replace(note, document=replace(note.document, metadata=metadata))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (with_nul, "invalid byte sequence"),
        (with_infinite_vector, "infinite value"),
        (with_number_too_large, "too large"),
        (with_half_a_character, "invalid input syntax for type json"),
    ],
)
def test_a_bad_document_costs_no_other(store: Postgres, spoil: Callable[[Draft], Draft], reason: str) -> None:
    good = [draft(f"file:///{name}.md", name) for name in "ac"]
    bad = draft("file:///b.md", "b")
    publish(store, draft("file:///b.md", "b before"))
    target = publish(store, good[0], spoil(bad), good[1])
    assert search_texts(store) == {"a", "c"}
    assert documents(store)["file:///a.md"] == documents(store)["file:///c.md"] == ("completed", None, None)
    status, stage, why = documents(store)["file:///b.md"]
    assert (status, stage) == ("failed", "publish")
    assert why is not None
    assert reason in why
    with store.connect() as connection:
        [failure] = Ledger(connection, TENANT).failures(target.job, "failed")
    assert failure == {"uri": "file:///b.md", "stage": "publish", "reason": why, "retryable": False, "status": "failed"}
    with superuser(store) as connection:
        assert find_violations(connection) == []


def test_a_text_too_long_for_an_index_is_kept_and_not_filtered_by(store: Postgres) -> None:
    abstract = "".join(random.Random(0).choices(string.ascii_letters, k=9000))
    note = with_metadata(draft("file:///a.md", "one"), {"abstract": abstract, "kind": "paper"})
    publish(store, note)
    with store.connect() as connection:
        assert Catalog(connection, TENANT).document("default", "file:///a.md")["metadata"]["abstract"] == abstract
    with superuser(store) as connection:
        keys = {
            row[0] for row in connection.execute("select key from document_values where document_id = %s", [note.id])
        }
    assert keys == {"kind", "uri", "title", "media_type", "language", "updated_at"}


def test_a_job_that_has_ended_writes_nothing_more(store: Postgres) -> None:
    document = draft("file:///kept.md", "kept")
    publish(store, document)
    before = counts(store)
    notes = [draft(f"file:///{n}.md", f"text {n}") for n in range(3)]
    target = begin(store, notes, deleted=[document])
    writer = target.open()
    end(target)
    with pytest.raises(FencedError, match=f"job {target.job} was ended"):
        writer.publish(notes)
    with pytest.raises(FencedError, match="was ended"):
        writer.delete([document.id])
    assert counts(store) == before
    assert search_texts(store) == {"kept"}
    writer.close()


def split_and_embed(document: Draft, most: int) -> list[Draft]:
    return [embed_draft(part) for part in split_draft(replace(document, vectors=None), most)]


def stored_part_numbers(store: Postgres) -> list[int]:
    with superuser(store) as connection:
        return [row[0] for row in connection.execute("select part from draft_parts order by part")]


def test_a_document_in_parts_is_published_with_the_last_of_them(store: Postgres) -> None:
    large = draft("file:///large.md", *string.ascii_lowercase)
    parts = split_and_embed(large, 10)
    assert [part.part for part in parts] == [(0, 3), (1, 3), (2, 3)]
    target = begin(store, [large])
    write(target, [parts[2], parts[0], parts[2]])
    assert (stored_part_numbers(store), documents(store), search_texts(store)) == ([0, 2], {}, set())
    write(target, [parts[1], parts[0]])
    assert (stored_part_numbers(store), search_texts(store)) == ([], set(string.ascii_lowercase))
    write(target, parts)
    end(target)
    assert stored_part_numbers(store) == []
    with superuser(store) as connection:
        items = connection.execute("select status, chunks, embedded, seconds from job_items").fetchall()
        assert find_violations(connection) == []
    assert items == [("completed", 26, 26, {"embed": 0.75})]


def test_writers_side_by_side_publish_a_document_in_parts_once(store: Postgres) -> None:
    large = draft("file:///large.md", *string.ascii_lowercase)
    target = begin(store, [large])
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda part: write(target, [part]), [*split_and_embed(large, 3), *split_and_embed(large, 3)]))
    end(target)
    assert (stored_part_numbers(store), search_texts(store)) == ([], set(string.ascii_lowercase))
    with superuser(store) as connection:
        assert find_violations(connection) == []


def test_a_part_that_failed_fails_its_document(store: Postgres) -> None:
    large = draft("file:///large.md", *string.ascii_lowercase)
    first, second = split_and_embed(large, 13)
    write(begin(store, [large]), [draft_with_failure(second), first])
    assert documents(store) == {"file:///large.md": ("failed", "read", "it was a test")}
    assert stored_part_numbers(store) == []


def test_parts_that_no_column_can_hold_fail_their_document(store: Postgres) -> None:
    large = draft("file:///large.md", *string.ascii_lowercase)
    first, second = split_and_embed(large, 13)
    not_numbers = replace(second, vectors=np.full((13, 16), np.nan, np.float32))
    write(begin(store, [large]), [first, not_numbers])
    assert documents(store)["file:///large.md"][:2] == ("failed", "publish")


def test_parts_are_deleted_with_their_job_and_none_is_written_after_it(store: Postgres) -> None:
    large = draft("file:///large.md", *string.ascii_lowercase)
    ended, killed = begin(store, [large]), begin(store, [large])
    parts = split_and_embed(large, 10)
    for target in (ended, killed):
        write(target, [parts[0]])
    end(ended)
    assert stored_part_numbers(store) == [0]
    with store.connect() as connection:
        Ledger(connection, TENANT).claim(killed.collection, [1])
    assert stored_part_numbers(store) == []
    for target in (ended, killed):
        with pytest.raises(FencedError):
            write(target, [parts[1]])
    assert (stored_part_numbers(store), documents(store)) == ([], {})


def test_bytes_that_name_what_no_draft_holds_are_not_unpickled() -> None:
    note = draft("file:///a.md", "one")
    assert load_draft(dump_draft(note)).chunks == note.chunks
    for foreign in (print, sha256, np.load):
        with pytest.raises(pickle.UnpicklingError):
            load_draft(pickle.dumps(foreign))


def test_a_fenced_writer_leaves_the_document_that_it_was_changing_as_it_was(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "one", "two"))
    target = begin(store, [draft("file:///a.md", "one", "new")])
    end(target)
    with pytest.raises(FencedError):
        write(target, [draft("file:///a.md", "one", "new")])
    assert search_texts(store) == {"one", "two"}
    assert len(versions(store, "vectors", "chunk_id")) == 2


@pytest.mark.slow
def test_a_reader_never_sees_two_versions_of_a_document_mixed(store: Postgres) -> None:
    red = draft("file:///a.md", "shared", *(f"red {n}" for n in range(4)))
    blue = draft("file:///a.md", *(f"blue {n}" for n in range(6)), "shared")
    version_texts = [{chunk.text for chunk in version.chunks} for version in (red, blue)]
    publish(store, red)
    finished = Event()

    async def read_until_finished() -> list[set[str]]:
        reader, readings = CorpusReader(store), []
        try:
            while not finished.is_set():
                readings.append({hit.chunk.text for hit in await retrieve_all(reader)})
        finally:
            await reader.close()
        return readings

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(asyncio.run, read_until_finished())
        try:
            swap(store, [blue, red] * 50)
        finally:
            finished.set()
        readings = reading.result()
    assert len(readings) > 20
    assert all(texts in version_texts for texts in readings)
    assert all(version in readings for version in version_texts)


def swap(store: Postgres, notes: Sequence[Draft]) -> None:
    """Publishes each version with a newer run than the one before."""
    target = begin(store)
    for run, note in enumerate(notes, start=target.run):
        write(replace(target, run=run), [note])


@pytest.mark.slow
def test_writers_of_the_same_documents_do_not_lock_each_other_out(store: Postgres) -> None:
    notes = [draft(f"file:///{n}.md", f"text {n}", f"more {n}") for n in range(24)]
    publish(store, *notes)
    targets = [begin(store, notes) for _ in range(4)]
    with ThreadPoolExecutor(len(targets)) as threads:
        writers = [threads.submit(write_in_any_order, target, notes) for target in targets]
        for writing in writers:
            writing.result()
    with superuser(store) as connection:
        violations = find_violations(connection)
        statement = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.execute(statement).fetchone() == (0,)
    assert [violation for violation in violations if violation.invariant.startswith(("I2", "I3", "I4"))] == []


def write_in_any_order(target: WriteTarget, notes: Sequence[Draft]) -> None:
    """Writes each batch with a newer run, so that none is skipped as outdated."""
    chance = random.Random(target.run)
    for round in range(12):
        batch = [change_at_random(note, chance) for note in chance.sample(notes, 16)]
        write(replace(target, run=target.run + 100 * round), batch)


def change_at_random(note: Draft, chance: random.Random) -> Draft:
    changed = draft(note.entry.uri, note.chunks[0].text, f"random {chance.random()}")
    return chance.choice(
        [note, changed, same_draft(note), draft_with_failure(note), draft_with_failure(note, retryable=True)]
    )


def test_a_collection_moves_to_a_new_space_only_when_every_chunk_has_a_vector_there(store: Postgres) -> None:
    notes = [draft(f"file:///{name}.md", name) for name in "ab"]
    old = publish(store, *notes)
    new = begin(store, notes, space=OTHER_SPACE)
    write(new, notes[:1])
    with store.connect() as connection:
        catalog = Catalog(connection, TENANT)
        assert not catalog.move_to_space(old.collection, new.space)
        assert catalog.collection("default").space == old.space
        assert spaces_of_vectors(store) == {old.space: 2, new.space: 1}
        write(new, notes[1:])
        assert catalog.move_to_space(old.collection, new.space)
        assert catalog.collection("default").space == new.space
    assert spaces_of_vectors(store) == {new.space: 2}


def spaces_of_vectors(store: Postgres) -> dict[int, int]:
    with superuser(store) as connection:
        return dict(connection.execute("select space, count(*)::int from vectors group by space").fetchall())


def test_a_new_space_does_not_take_vectors_of_the_old_one_for_its_own(store: Postgres) -> None:
    note = draft("file:///a.md", "one")
    publish(store, note)
    writer = begin(store, space=OTHER_SPACE).open()
    assert writer.find_vectors([row[0] for row in content_hashes(store)]) == {}
    writer.close()


def content_hashes(store: Postgres) -> list[tuple[bytes]]:
    with superuser(store) as connection:
        return [(bytes(row[0]),) for row in connection.execute("select content_hash from vectors")]


def terminate_connections(store: Postgres) -> None:
    with superuser(store) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_a_writer_that_loses_its_connection_publishes_on_a_new_one(store: Postgres) -> None:
    note = draft("file:///a.md", "one")
    writer = begin(store, [note]).open()
    terminate_connections(store)
    writer.publish([note])
    writer.close()
    assert statuses(store) == {"file:///a.md": "completed"}


def test_a_store_that_stays_away_is_not_taken_for_a_bad_document(store: Postgres) -> None:
    note = draft("file:///a.md", "one")
    writer = replace(begin(store, [note]), store_timeout=0.0).open()
    terminate_connections(store)
    with pytest.raises(StoreError, match="lost the connection to the store"):
        writer.publish([note])
    writer.close()
    assert statuses(store) == {}


def test_a_writer_also_waits_for_a_store_that_goes_away_as_it_connects(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = draft("file:///a.md", "one")
    writer = begin(store, [note]).open()
    terminate_connections(store)
    connected = Postgres.connect

    def connect_and_terminate(postgres: Postgres, role: Role = "rag_app") -> Connection:
        connection = connected(postgres, role)
        monkeypatch.undo()
        terminate_connections(store)
        return connection

    monkeypatch.setattr(Postgres, "connect", connect_and_terminate)
    writer.publish([note])
    writer.close()
    assert statuses(store) == {"file:///a.md": "completed"}


def statuses(store: Postgres) -> dict[str, str]:
    with superuser(store) as connection:
        return dict(connection.execute("select uri, status from documents"))
