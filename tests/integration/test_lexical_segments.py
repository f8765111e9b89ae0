"""The lexical index as it is stored: whatever was published, deleted, merged, killed or rolled back, its rows give the
BM25 of the live chunks."""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from drafts import TENANT, draft, draft_with_failure, same_draft, weigh_draft
from example_counts import scale_examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from oracles import bm25s_scores, rank_bm25_scores
from psycopg import Connection
from targets import begin, end, publish, superuser, write

from rag_core.errors import FencedError, StoreError
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.fsck import CHUNKS_INDEXED, SEGMENTS_COMPLETE, find_violations
from rag_core.storage.lexical import merging
from rag_core.storage.lexical.backfill import backfill
from rag_core.storage.lexical.merging import merge
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.publishing import CorpusWriter, WriteTarget
from rag_core.text import analysis
from rag_core.types import Draft, Query

pytestmark = pytest.mark.postgres

K1, B = 1.5, 0.75
ChunkKey = tuple[UUID, int]
"""A document and the place of a chunk in it."""

WORDS = ["amber", "basalt", "cedar", "dune", "ember", "fjord", "the", "glacier", "running", "harbour"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a search would read: chunks, their mean length, and every term's frequency and chunk length by chunk."""

    n: int
    mean_length: float
    postings: dict[str, dict[ChunkKey, tuple[int, int]]]

    def scores(self, terms: Sequence[str]) -> dict[ChunkKey, float]:
        """BM25 with Lucene's idf, over the rows alone (Robertson and Zaragoza 2009, Lucene's BM25Similarity)."""
        scores: Counter[ChunkKey] = Counter()
        for term in terms:
            listed = self.postings.get(term, {})
            idf = math.log(1 + (self.n - len(listed) + 0.5) / (len(listed) + 0.5))
            for chunk, (tf, length) in listed.items():
                scores[chunk] += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / self.mean_length))
        return dict(scores)


def read_segments(connection: "Connection[Any]", tenant: str = TENANT) -> Stored:
    with transaction(connection, tenant):
        segments = connection.execute(
            "select id, n_chunks, total_length from lexical_segments where kind = 'words'"
        ).fetchall()
        documents = connection.execute(
            "select segment_id, first_local, n_chunks, total_length, document_id, dead from lexical_documents"
            " where kind = 'words'"
        ).fetchall()
        rows = connection.execute(
            "select segment_id, term, postings from lexical_postings where kind = 'words'", binary=True
        ).fetchall()
    dead = [row for row in documents if row[5]]
    n = sum(segment[1] for segment in segments) - sum(row[2] for row in dead)
    length = sum(segment[2] for segment in segments) - sum(row[3] for row in dead)
    places = {
        (segment, first + ordinal): (document, ordinal)
        for segment, first, count, _, document, is_dead in documents
        if not is_dead
        for ordinal in range(count)
    }
    postings: dict[str, dict[ChunkKey, tuple[int, int]]] = {}
    for segment, term, body in rows:
        for local, tf, chunk_length in np.frombuffer(body, "<u2").reshape(3, -1).T.tolist():
            if chunk := places.get((segment, local)):
                assert chunk not in postings.setdefault(term, {})
                postings[term][chunk] = (tf, chunk_length)
    return Stored(n, length / n if n else 0.0, postings)


def read_weights(connection: "Connection[Any]") -> dict[ChunkKey, dict[str, int]]:
    """The weights of the live chunks, in steps of 1/8192."""
    with transaction(connection, TENANT):
        documents = connection.execute(
            "select segment_id, first_local, n_chunks, document_id from lexical_documents"
            " where kind = 'splade' and not dead"
        ).fetchall()
        rows = connection.execute(
            "select segment_id, term, postings from lexical_postings where kind = 'splade'", binary=True
        ).fetchall()
    places = {
        (segment, first + ordinal): (document, ordinal)
        for segment, first, count, document in documents
        for ordinal in range(count)
    }
    chunk_weights: dict[ChunkKey, dict[str, int]] = {chunk: {} for chunk in places.values()}
    for segment, term, body in rows:
        for local, steps in np.frombuffer(body, "<u2").reshape(2, -1).T.tolist():
            if chunk := places.get((segment, local)):
                assert term not in chunk_weights[chunk]
                chunk_weights[chunk][term] = steps
    return chunk_weights


def reference(live: Sequence[Draft], terms: Sequence[str], oracle: Callable[..., Any]) -> dict[ChunkKey, float]:
    """The reference's scores of the chunks that have one of the terms."""
    tokens = {(note.id, chunk.ordinal): analyze(chunk.embedded_text) for note in live for chunk in note.chunks}
    scores = dict(zip(tokens, oracle(list(tokens.values()), terms, Bm25(k1=K1, b=B)), strict=True))
    return {chunk: score for chunk, score in scores.items() if set(tokens[chunk]) & set(terms)}


def analyze(text: str) -> list[str]:
    return analysis.terms(text, "en")


ASKED = " ".join([*WORDS, "amber"])
QUESTION = analyze(ASKED)


def assert_weights_are_those_of(connection: "Connection[Any]", live: Sequence[Draft]) -> None:
    assert read_weights(connection) == {
        (document.id, ordinal): {
            term: round(weight * 8192)
            for term, weight in zip(chunk_weights.terms, chunk_weights.weights.tolist(), strict=True)
        }
        for document in live
        for ordinal, chunk_weights in enumerate(document.weights)
    }


def assert_exact(connection: "Connection[Any]", live: Sequence[Draft]) -> None:
    index = read_segments(connection)
    assert index.n == sum(len(note.chunks) for note in live)
    if index.n and index.mean_length:
        for oracle in (rank_bm25_scores, bm25s_scores):
            assert index.scores(QUESTION) == pytest.approx(reference(live, QUESTION, oracle), rel=1e-6)


def note(name: object, *texts: str, **place: Any) -> Draft:
    return draft(f"file:///{name}.md", *texts, **place)


def collection_of(store: Postgres) -> int:
    with store.connect() as connection:
        return Catalog(connection, TENANT).collection("default").id


def merge_all(store: Postgres) -> int:
    with store.connect() as connection:
        return merge(connection, TENANT, collection_of(store))


def backfill_all(store: Postgres) -> int:
    with store.connect() as connection:
        return backfill(connection, TENANT, collection_of(store))


def counts(store: Postgres) -> tuple[int, int, int]:
    """The numbers of segments, of documents in them, and of terms in them."""
    with superuser(store) as connection:
        row = connection.execute(
            "select (select count(*) from lexical_segments), (select count(*) from lexical_documents),"
            " (select count(*) from lexical_postings)"
        ).fetchone()
    assert row is not None
    return row


def live_rows(store: Postgres) -> dict[UUID, int]:
    """The version of each document's live row."""
    with superuser(store) as connection:
        return dict(connection.execute("select document_id, version from lexical_documents where not dead").fetchall())


def assert_whole(store: Postgres, *live: Draft) -> None:
    with superuser(store) as connection:
        assert find_violations(connection) == []
    with store.connect() as connection:
        assert_exact(connection, live)


def test_a_batch_of_documents_is_one_segment(store: Postgres) -> None:
    notes = [note(n, "amber basalt", "cedar cedar dune", prefix="Harbour") for n in range(5)]
    publish(store, *notes)
    assert counts(store) == (1, 5, 5)
    assert_whole(store, *notes)


def test_a_new_version_takes_the_place_of_the_old_one_and_the_same_bytes_change_nothing(store: Postgres) -> None:
    old, unchanged = note("a", "amber", "basalt"), note("b", "cedar")
    publish(store, old, unchanged)
    before = live_rows(store)
    publish(store, same_draft(old), same_draft(unchanged))
    assert live_rows(store) == before
    new = note("a", "ember", "amber amber", "dune")
    second = publish(store, new)
    assert live_rows(store) == {**before, new.id: second.run}
    assert_whole(store, new, unchanged)


def test_what_fails_for_the_moment_is_still_found_and_what_fails_for_good_is_not(store: Postgres) -> None:
    first, second = note("a", "amber"), note("b", "basalt")
    publish(store, first, second)
    publish(store, draft_with_failure(first, retryable=True), draft_with_failure(second))
    assert_whole(store, first)


def test_an_older_run_changes_nothing(store: Postgres) -> None:
    older, newer = begin(store), begin(store)
    new, other = note("a", "new ember"), note("b", "basalt")
    write(newer, [new])
    write(older, [note("a", "old amber"), other])
    with closing(older.open()) as writer:
        writer.delete([new.id])
    assert live_rows(store) == {new.id: newer.run, other.id: older.run}
    with store.connect() as connection:
        assert_exact(connection, [new, other])


def test_deleted_and_dropped_documents_are_found_no_more(store: Postgres) -> None:
    notes = [note(n, f"amber {WORDS[n]}") for n in range(5)]
    publish(store, *notes)
    target = begin(store, deleted=notes[:1])
    with closing(target.open()) as writer:
        writer.delete([notes[0].id])
    end(target)
    assert_whole(store, *notes[1:])
    with store.connect() as connection:
        catalog = Catalog(connection, TENANT)
        catalog.drop_documents("default", [notes[1].id])
        assert_whole(store, *notes[2:])
        catalog.drop_collection("default")
    assert counts(store) == (0, 0, 0)


def test_a_dropped_document_can_come_back_in_the_same_run(store: Postgres) -> None:
    notes = [note("a", "amber"), note("b", "basalt")]
    target = begin(store, notes)
    write(target, notes)
    with store.connect() as connection:
        Catalog(connection, TENANT).drop_documents("default", [notes[0].id])
    write(target, notes)
    assert live_rows(store) == {document.id: target.run for document in notes}
    with store.connect() as connection:
        assert_exact(connection, notes)


def test_a_dropped_source_leaves_the_others(store: Postgres) -> None:
    publish(store)
    with store.connect() as connection:
        catalog = Catalog(connection, TENANT)
        sources = [catalog.ensure_source(catalog.collection("default"), f"file:///{name}") for name in "ab"]
        gone, remaining = (replace(note(n, "amber"), source=source) for n, source in enumerate(sources))
        publish(store, gone, remaining)
        catalog.drop_source("default", "file:///a")
    assert_whole(store, remaining)


def test_tenants_do_not_see_each_other(store: Postgres) -> None:
    publish(store, note("a", "amber"))
    theirs = note("a", "amber basalt", tenant="another-tenant")
    publish(store, theirs, tenant="another-tenant")
    with store.connect() as connection:
        assert read_segments(connection).n == 1
        assert set(read_segments(connection, "another-tenant").postings) == {"amber", "basalt"}


def test_many_small_segments_become_one_and_the_dead_go(store: Postgres) -> None:
    notes = [note(n, f"amber {WORDS[n % 10]}", f"{WORDS[n % 7]} dune") for n in range(merging.FAN_IN)]
    for document in notes[:-1]:
        publish(store, document)
    assert merge_all(store) == 0
    publish(store, notes[-1])
    with superuser(store) as connection:
        before = read_segments(connection).scores(QUESTION)
    assert merge_all(store) == merging.FAN_IN
    assert counts(store)[:2] == (1, merging.FAN_IN)
    with superuser(store) as connection:
        assert read_segments(connection).scores(QUESTION) == before
    for document in notes[:3]:
        publish(store, draft_with_failure(document))
    assert counts(store)[:2] == (1, merging.FAN_IN)
    assert merge_all(store) == 1
    assert counts(store)[:2] == (1, merging.FAN_IN - 3)
    assert_whole(store, *notes[3:])
    publish(store, *(draft_with_failure(document) for document in notes[3:]))
    assert merge_all(store) == 1
    assert counts(store) == (0, 0, 0)


def test_a_document_killed_while_its_segment_is_merged_stays_dead(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [note(n, f"amber {WORDS[n % 10]}") for n in range(merging.FAN_IN)]
    for document in notes:
        publish(store, document)
    new, write_merged = note(0, "fjord"), merging._write_merged

    def change_and_write(*arguments: Any) -> None:
        publish(store, new, draft_with_failure(notes[1]))
        write_merged(*arguments)

    monkeypatch.setattr(merging, "_write_merged", change_and_write)
    assert merge_all(store) == merging.FAN_IN
    assert_whole(store, new, *notes[2:])


def test_two_merges_leave_each_other_alone(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [note(n, "amber") for n in range(merging.FAN_IN)]
    for document in notes:
        publish(store, document)
    second_merges, write_merged = [], merging._write_merged

    def merge_again(*arguments: Any) -> None:
        monkeypatch.setattr(merging, "_write_merged", write_merged)
        second_merges.append(merge_all(store))
        write_merged(*arguments)

    monkeypatch.setattr(merging, "_write_merged", merge_again)
    assert (merge_all(store), second_merges) == (merging.FAN_IN, [0])
    assert_whole(store, *notes)


def test_documents_stored_before_there_was_an_index_get_their_segments(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [note(n, f"amber {WORDS[n]}", "dune", prefix="Harbour") for n in range(10)]
    publish(store, *notes)
    with superuser(store) as connection:
        connection.execute("truncate lexical_segments, lexical_documents, lexical_postings")
        assert {violation.invariant for violation in find_violations(connection)} == {CHUNKS_INDEXED}
    monkeypatch.setattr("rag_core.storage.lexical.backfill.MAX_BATCH_CHUNKS", 6)
    changes = Maintenance().run(store, TENANT)
    assert [(change.action, change.subject) for change in changes if change.action == "completed"] == [
        ("completed", "10 lexical documents")
    ]
    assert counts(store)[0] == 4
    assert_whole(store, *notes)
    assert backfill_all(store) == 0


def test_a_backfill_that_was_stopped_goes_on(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [note(n, "amber") for n in range(4)]
    publish(store, *notes)
    with superuser(store) as connection:
        connection.execute("truncate lexical_segments, lexical_documents, lexical_postings")
    monkeypatch.setattr("rag_core.storage.lexical.backfill.MAX_BATCH_CHUNKS", 1)
    monkeypatch.setattr("rag_core.storage.lexical.backfill.add_segments", stop_after(3))
    with pytest.raises(KeyboardInterrupt):
        backfill_all(store)
    monkeypatch.undo()
    assert len(live_rows(store)) == 3
    assert backfill_all(store) == 1
    assert_whole(store, *notes)


def stop_after(batches: int) -> Callable[..., None]:
    from rag_core.storage.lexical.writing import add_segments as write_segments

    def write_some(*arguments: Any) -> None:
        nonlocal batches
        if not batches:
            raise KeyboardInterrupt
        batches -= 1
        write_segments(*arguments)

    return write_some


def test_a_backfill_leaves_to_publishers_what_they_changed_meanwhile(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, unchanged, dropped = note("a", "amber"), note("b", "basalt"), note("c", "cedar")
    publish(store, old, unchanged, dropped)
    with superuser(store) as connection:
        connection.execute("truncate lexical_segments, lexical_documents, lexical_postings")
    new = note("a", "ember", "amber")
    monkeypatch.setattr("rag_core.storage.lexical.backfill.PreparedSegments", Meanwhile(store, new, dropped))
    assert backfill_all(store) == 1
    assert_whole(store, new, unchanged)


class Meanwhile:
    """Prepares the segments, and publishes at that moment."""

    def __init__(self, store: Postgres, new: Draft, dropped: Draft) -> None:
        self._work = lambda: (publish(store, new), publish(store, draft_with_failure(dropped)))

    def build(self, documents: Sequence[Any]) -> Any:
        from rag_core.storage.lexical.writing import PreparedSegments

        self._work()
        return PreparedSegments.build(documents)


def test_terms_of_another_analysis_are_written_again(store: Postgres) -> None:
    notes = [note(n, "amber") for n in range(3)]
    publish(store, *notes)
    with superuser(store) as connection:
        connection.execute("update lexical_segments set analysis = 'another'")
        connection.execute("update lexical_postings set term = 'other'")
    Maintenance().run(store, TENANT)
    assert counts(store) == (1, 3, 1)
    assert_whole(store, *notes)


@pytest.mark.parametrize(
    ("damage", "invariants"),
    [
        ("delete from lexical_documents where document_id = '{a}'", {CHUNKS_INDEXED, SEGMENTS_COMPLETE}),
        ("update lexical_documents set dead = true where document_id = '{a}'", {CHUNKS_INDEXED}),
        ("update lexical_documents set document_id = '{nobody}' where document_id = '{a}'", {CHUNKS_INDEXED}),
        ("update lexical_documents set n_chunks = 7 where document_id = '{a}'", {CHUNKS_INDEXED, SEGMENTS_COMPLETE}),
        ("delete from lexical_segments", {SEGMENTS_COMPLETE}),
        ("delete from lexical_postings", {SEGMENTS_COMPLETE}),
        ("delete from lexical_segments; delete from lexical_documents", {CHUNKS_INDEXED, SEGMENTS_COMPLETE}),
        ("update lexical_segments set n_chunks = n_chunks + 1", {SEGMENTS_COMPLETE}),
    ],
)
def test_damage_is_found_and_repaired(store: Postgres, damage: str, invariants: set[str]) -> None:
    notes = [note("a", "amber", "dune"), note("b", "basalt")]
    publish(store, *notes)
    with superuser(store) as connection:
        connection.execute(damage.format(a=notes[0].id, nobody=UUID(int=7)).encode())
        assert {violation.invariant for violation in find_violations(connection)} == invariants
    Maintenance().run(store, TENANT)
    assert_whole(store, *notes)


class Segments(RuleBasedStateMachine):
    """The segments, compared with a dict of the documents that are live."""

    def __init__(self, store: Postgres) -> None:
        super().__init__()
        with superuser(store) as connection:
            connection.execute(
                "truncate documents, document_texts, document_values, chunks, vectors, jobs, job_items, job_events,"
                " lexical_segments, lexical_documents, lexical_postings"
            )
        self.target = begin(store, splade="model")
        self.store, self.live, self.run = store, dict[UUID, Draft](), self.target.run
        self.connection = store.connect()
        self.writer = self.target.open()
        self.loop, self.reader = asyncio.Runner(), CorpusReader(store, cache_bytes=2_000)

    def teardown(self) -> None:
        with self.loop:
            self.loop.run(self.reader.close())
        self.writer.close()
        self.connection.close()

    def writing(self) -> CorpusWriter:
        """Returns the writer, with a newer run than before."""
        self.run += 1
        self.writer._target = replace(self.target, run=self.run)
        self.writer._scope = {**self.writer._scope, "run": self.run}
        return self.writer

    batches = st.lists(
        st.tuples(st.integers(0, 7), st.lists(st.lists(st.sampled_from(WORDS), min_size=1), min_size=1, max_size=4)),
        min_size=1,
        max_size=4,
        unique_by=lambda pair: pair[0],
    )
    some = st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True)

    def notes(self, batch: list[tuple[int, list[list[str]]]]) -> list[Draft]:
        return [weigh_draft(note(n, *(" ".join(words) for words in texts))) for n, texts in batch]

    @rule(batch=batches)
    def publish(self, batch: list[tuple[int, list[list[str]]]]) -> None:
        notes = self.notes(batch)
        self.writing().publish(notes)
        self.live |= {document.id: document for document in notes}

    @rule(numbers=some, retryable=st.booleans())
    def fail(self, numbers: list[int], retryable: bool) -> None:
        notes = [draft_with_failure(note(n, "x"), retryable=retryable) for n in numbers]
        self.writing().publish(notes)
        if not retryable:
            self.live = {id: document for id, document in self.live.items() if id not in {gone.id for gone in notes}}

    @rule(numbers=some)
    def touch(self, numbers: list[int]) -> None:
        self.writing().publish([same_draft(note(n, "x")) for n in numbers if note(n, "x").id in self.live])

    @rule(numbers=some, dropped=st.booleans())
    def delete(self, numbers: list[int], dropped: bool) -> None:
        ids = [note(n, "x").id for n in numbers]
        if dropped:
            Catalog(self.connection, TENANT).drop_documents("default", ids)
        else:
            self.writing().delete(ids)
        self.live = {id: document for id, document in self.live.items() if id not in ids}

    @rule(batch=batches)
    def publish_as_an_older_run(self, batch: list[tuple[int, list[list[str]]]]) -> None:
        notes = [document for document in self.notes(batch) if document.id in self.live]
        self.run -= 1
        self.writing().publish(notes if self.run_wrote_last(notes) else [])

    def run_wrote_last(self, notes: Sequence[Draft]) -> bool:
        with superuser(self.store) as connection:
            ids = [document.id for document in notes]
            row = connection.execute("select min(version) from documents where id = any(%s)", [ids]).fetchone()
        return bool(row and row[0] is not None and row[0] >= self.run + 1)

    @rule(batch=batches, killed=st.booleans())
    def roll_back(self, batch: list[tuple[int, list[list[str]]]], killed: bool) -> None:
        """Fails at the last statement before the commit, or loses the connection there."""
        writer = self.writing()
        event, errors = writer._check_fence_and_add_events, (StoreError, FencedError)

        def stop(*_: object) -> None:
            if killed:
                writer._connection.close()
            raise StoreError("stopped") if killed else FencedError("stopped")

        writer._check_fence_and_add_events = stop  # type: ignore[method-assign]
        writer._target = replace(writer._target, store_timeout=0.0)
        with suppress(*errors, psycopg.OperationalError):
            writer.publish(self.notes(batch))
        writer._check_fence_and_add_events = event  # type: ignore[method-assign]

    @rule(batch=batches)
    def merge(self, batch: list[tuple[int, list[list[str]]]]) -> None:
        """Merges after each document has been written to a separate segment."""
        for document in self.notes(batch):
            self.writing().publish([document])
            self.live[document.id] = document
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merging, "FAN_IN", 2)
            merge(self.connection, TENANT, self.target.collection)

    @rule()
    def nothing_is_missing(self) -> None:
        assert backfill(self.connection, TENANT, self.target.collection) == 0

    @invariant()
    def scores_are_exact(self) -> None:
        assert_exact(self.connection, list(self.live.values()))

    @invariant()
    def a_reader_that_has_read_before_tells_them(self) -> None:
        query, parameters = Query(text=ASKED, tenant=TENANT), Bm25(k1=K1, b=B)
        live = reference(list(self.live.values()), QUESTION, rank_bm25_scores) if self.live else {}
        expected = {self.live[document].chunks[ordinal].id: score for (document, ordinal), score in live.items()}
        assert dict(self.loop.run(self.reader.rank_bm25(query, 100, parameters))) == pytest.approx(expected, rel=1e-6)
        scores = self.loop.run(self.reader.score_bm25(query, list(expected), parameters))
        assert scores == pytest.approx(list(expected.values()), rel=1e-6)

    @invariant()
    def weights_are_those_that_were_published(self) -> None:
        assert_weights_are_those_of(self.connection, list(self.live.values()))


@pytest.mark.slow
def test_after_any_history_scores_equal_those_of_rank_bm25_and_bm25s(store: Postgres) -> None:
    run_state_machine_as_test(
        lambda: Segments(store),
        settings=settings(
            max_examples=scale_examples(15),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )


SECONDS = 4.0


@pytest.mark.slow
def test_publishers_and_merges_side_by_side_lock_nobody_out(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 4)
    notes = [note(n, f"amber {n}", "dune") for n in range(30)]
    publish(store, *notes)
    targets = [begin(store) for _ in range(2)]
    stop = time.monotonic() + SECONDS
    with ThreadPoolExecutor(3) as threads:
        writers = [threads.submit(publish_until, stop, target, notes) for target in targets]
        merging_ = threads.submit(merge_until, stop, store)
        published = [writer.result() for writer in writers]
        merges = merging_.result()
    assert min(published) > 2
    assert merges > 0
    with superuser(store) as connection:
        assert [
            violation for violation in find_violations(connection) if violation.invariant.startswith(("I2", "I3", "I4"))
        ] == []
        statement = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.execute(statement).fetchone() == (0,)


def publish_until(stop: float, target: WriteTarget, notes: Sequence[Draft]) -> int:
    """Publishes with a newer run each time, and returns the number of times."""
    chance, rounds = random.Random(target.run), 0
    with target.postgres.connect() as connection:
        while time.monotonic() < stop:
            rounds += 1
            batch = [note_again(document, chance) for document in chance.sample(notes, 6)]
            writer = replace(target, run=target.run + 10 * rounds).open()
            with closing(writer):
                if chance.random() < 0.2:
                    writer.delete([document.id for document in batch])
                else:
                    writer.publish(batch)
            if chance.random() < 0.1:
                Catalog(connection, TENANT).drop_documents("default", [batch[0].id])
    return rounds


def note_again(document: Draft, chance: random.Random) -> Draft:
    new = draft(document.entry.uri, document.chunks[0].text, f"ember {chance.random()}")
    return chance.choice(
        [
            new,
            new,
            document,
            same_draft(document),
            draft_with_failure(document),
            draft_with_failure(document, retryable=True),
        ]
    )


def merge_until(stop: float, store: Postgres) -> int:
    gone, collection = 0, collection_of(store)
    with store.connect() as connection:
        while time.monotonic() < stop:
            gone += merge(connection, TENANT, collection)
            time.sleep(0.01)
    return gone
