"""Each invariant is broken by hand, and fsck reports that one and no other."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from drafts import TENANT, draft
from fakes.conversations import converse
from psycopg import Connection
from targets import begin, publish, superuser

from rag_core.storage.fsck import (
    CHUNKS_INDEXED,
    ENTITIES_MENTIONED,
    INVARIANTS,
    MENTIONS_VALID,
    RELATIONS_VALID,
    REPAIRS,
    SEGMENT_CHUNK_IDS,
    SEGMENTS_COMPLETE,
    SPANS_MATCH,
    SPLADE_COMPLETE,
    Violation,
    find_violations,
)
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Query, conversation_id

pytestmark = pytest.mark.postgres

NOTE = draft("file:///a.md", "one")
OTHER = draft("file:///b.md", "two", "three")
WAITING = draft("file:///waiting.md", "never read")
CHUNK = NOTE.chunks[0].id
NOBODY = UUID(int=7)


@pytest.fixture
def job(store: Postgres) -> WriteTarget:
    return publish(store, NOTE, OTHER)


@pytest.fixture
def connection(store: Postgres, job: WriteTarget) -> Iterator["Connection[Any]"]:
    with superuser(store) as connection:
        yield connection


def test_a_healthy_store_breaks_none(store: Postgres, job: WriteTarget) -> None:
    begin(store, [WAITING], deleted=[NOTE])
    publish(store, draft("file:///a.md", "theirs", tenant="another-tenant"), tenant="another-tenant")
    with store.connect("rag_worker") as connection:
        assert find_violations(connection) == []


def double(connection: "Connection[Any]") -> None:
    """Adds a second row of the same document, which failed, with an id that does not belong to its uri."""
    connection.execute("create temp table second as select * from documents where id = %s", [NOTE.id])
    connection.execute("update second set id = %s, status = 'failed', reason = 'copy', n_chunks = 0", [NOBODY])
    connection.execute("insert into documents select * from second")


ORPHAN = f"""
insert into lexical_segments overriding system value
select tenant, collection, 99, 1, 0, analysis, '{{"en": 1}}', 'words', substring(chunk_ids for 16)
from lexical_segments;
insert into lexical_documents select tenant, collection, 99, 0, 1, 0, '{NOBODY}', version, dead, language
from lexical_documents where document_id = '{NOTE.id}'"""  # noqa: S608

TWO_WEIGHED = f"""
insert into lexical_segments overriding system value
select tenant, collection, 99, 2, 0, 'model', '{{"": 2}}', 'splade', substring(chunk_ids for 32)
from lexical_segments;
insert into lexical_documents select tenant, collection, 99, 0, 2, 0, document_id, version, false, '', 'splade'
from lexical_documents where document_id = '{NOTE.id}'"""  # noqa: S608

Damage = Callable[["Connection[Any]"], object]


@pytest.mark.parametrize(
    ("invariant", "damage", "subject"),
    [
        (
            "I2 no chunk without its document",
            lambda connection: connection.execute("delete from documents where id = %s", [NOTE.id]),
            f"chunk {CHUNK}",
        ),
        (
            "I2 no document without all of its chunks",
            lambda connection: connection.execute("update documents set n_chunks = 3 where id = %s", [OTHER.id]),
            "document file:///b.md: 2 of 3 chunks",
        ),
        (
            "I2 no chunk without a vector in its collection's space",
            lambda connection: connection.execute("delete from vectors where chunk_id = %s", [CHUNK]),
            f"chunk {CHUNK}",
        ),
        (
            "I2 no chunk without a vector in its collection's space",
            lambda connection: connection.execute("update vectors set space = 99 where chunk_id = %s", [CHUNK]),
            f"chunk {CHUNK}",
        ),
        (
            "I2 no vector without its chunk",
            lambda connection: connection.execute(
                "insert into vectors select tenant, collection, space, %s, document_id, content_hash, embedding"
                " from vectors where chunk_id = %s",
                [NOBODY, CHUNK],
            ),
            f"vector of chunk {NOBODY}",
        ),
        (
            CHUNKS_INDEXED,
            lambda connection: connection.execute(
                "update lexical_documents set dead = true where document_id = %s", [OTHER.id]
            ),
            f"document {OTHER.id}: 0 of 2 chunks",
        ),
        (
            CHUNKS_INDEXED,
            lambda connection: connection.execute(ORPHAN.encode()),
            f"document {NOBODY}: 1 of 0 chunks",
        ),
        (
            SPLADE_COMPLETE,
            lambda connection: connection.execute(TWO_WEIGHED.encode()),
            f"document {NOTE.id}: 2 of 1 chunks",
        ),
        (
            SEGMENTS_COMPLETE,
            lambda connection: connection.execute("update lexical_segments set n_chunks = 4"),
            "segment 1",
        ),
        (
            SEGMENTS_COMPLETE,
            lambda connection: connection.execute("update lexical_segments set languages = '{\"xx\": 3}'"),
            "segment 1",
        ),
        (
            SEGMENTS_COMPLETE,
            lambda connection: connection.execute("update lexical_segments set chunk_ids = chunk_ids || chunk_ids"),
            "segment 1",
        ),
        (
            SEGMENT_CHUNK_IDS,
            lambda connection: connection.execute("update lexical_segments set chunk_ids = set_byte(chunk_ids, 0, 0)"),
            f"document {NOTE.id}",
        ),
        (
            "I3 the chunks of a document are numbered from 0 without a gap",
            lambda connection: connection.execute("update chunks set ordinal = ordinal + 1 where id = %s", [CHUNK]),
            f"document {NOTE.id}",
        ),
        (
            "I3 the text of every chunk equals its span of the document's text",
            lambda connection: connection.execute("update chunks set text = 'One' where id = %s", [CHUNK]),
            "document file:///a.md, chunk 0",
        ),
        (
            "I3 the text of every chunk equals its span of the document's text",
            lambda connection: connection.execute("delete from document_texts where document_id = %s", [NOTE.id]),
            "document file:///a.md, chunk 0",
        ),
        (
            "I4 every document has one live version, with the hash of its source",
            lambda connection: connection.execute("update documents set sha256 = '' where id = %s", [NOTE.id]),
            "document file:///a.md",
        ),
        (
            "I4 every document has one live version, with the hash of its source",
            double,
            "document file:///a.md",
        ),
    ],
)
def test_what_is_wrong_with_a_document_is_reported(
    connection: "Connection[Any]", invariant: str, damage: Damage, subject: str
) -> None:
    damage(connection)
    assert find_violations(connection) == [Violation(invariant=invariant, tenant=TENANT, subject=subject)]


@pytest.mark.parametrize(
    ("invariant", "statement", "subject"),
    [
        (
            "I1 every document of an ended job is in a terminal state, and a failed one has a reason",
            "update job_items set status = 'queued' where document_id = '{note}';"
            " update job_events set detail = '{{\"completed\": 1}}' where stage = 'publish'",
            "job {job}, file:///a.md",
        ),
        (
            "I1 no part of a document is stored for a job that has ended",
            "insert into draft_parts select tenant, id, '{note}', 1, 2, '' from jobs",
            f"job {{job}}, document {NOTE.id}, part 1",
        ),
        (
            "I1 the body of a pushed document is stored only while a retry can need it",
            "insert into pushed_documents select tenant, id, 'a', 'file:///a.md', '', '', '', '', '', '{{}}' from jobs",
            "job {job}, file:///a.md",
        ),
        (
            "I1 the body of a pushed document is stored only while a retry can need it",
            "insert into pushed_documents select tenant, id, 'b', 'push:///b', '', '', '', '', '', '{{}}' from jobs",
            "job {job}, push:///b",
        ),
        (
            "I8 a job's events are numbered without a gap",
            "delete from job_events where stage = 'job'",
            "job {job}: 5 of 6 events",
        ),
        (
            "I8 a job's events are numbered without a gap",
            "update job_events set seq = 50 where stage = 'job'",
            "job {job}: 6 of 6 events",
        ),
        (
            "I8 the counts in a job's events match the states of its documents",
            "update job_events set detail = '{{\"completed\": 9}}' where stage = 'publish'",
            "job {job}",
        ),
    ],
)
def test_what_is_wrong_with_a_job_is_reported(
    connection: "Connection[Any]", job: WriteTarget, invariant: str, statement: str, subject: str
) -> None:
    connection.execute(statement.format(note=NOTE.id).encode())
    violation = Violation(invariant=invariant, tenant=TENANT, subject=subject.format(job=job.job))
    assert find_violations(connection) == [violation]


LETTER = draft("file:///letter.md", "a letter of Ada to Charles", "the weather of London")
ENTITY = "(select id from entities where name = '{}')"
NAMES = {name: ENTITY.format(name) for name in ("ada", "london")} | {"nobody": NOBODY, "note": NOTE.id}


@pytest.mark.parametrize(
    ("invariant", "damage", "n_violations", "removed"),
    [
        (MENTIONS_VALID, "update mentions set chunk_id = '{nobody}' where entity = {ada}", 1, 4),
        (MENTIONS_VALID, "update mentions set document_id = '{note}' where entity = {london}", 1, 2),
        (MENTIONS_VALID, "delete from entities where id = {london}", 1, 1),
        (RELATIONS_VALID, "update relations set source = '{nobody}' where source = {ada}", 1, 1),
        (RELATIONS_VALID, "update relations set target = '{nobody}' where source = {ada}", 1, 1),
        (RELATIONS_VALID, "update relations set document_id = '{note}' where source = {ada}", 1, 1),
        (ENTITIES_MENTIONED, "delete from mentions where entity = {london}", 1, 1),
    ],
    ids=[
        *("mention of no chunk", "mention in another document", "mention of nothing"),
        *("relation from nothing", "relation to nothing", "relation of another document", "entity without mention"),
    ],
)
def test_what_is_wrong_with_the_graph_is_reported_and_removed(
    store: Postgres, connection: "Connection[Any]", invariant: str, damage: str, n_violations: int, removed: int
) -> None:
    writer = replace(begin(store, [LETTER]), builds_graph=True).open()
    writer.publish([LETTER])
    writer.close()
    assert find_violations(connection) == []
    connection.execute(damage.format(**NAMES).encode())
    violations = find_violations(connection)
    assert [violation.invariant for violation in violations] == [invariant] * n_violations
    assert REPAIRS[invariant] == "rag store maintain"
    changes = [change for change in Maintenance().run_all(store, TENANT) if change.action == "removed"]
    assert [(change.subject, change.collection) for change in changes] == [(f"{removed} graph rows", "default")]
    assert find_violations(connection) == []
    assert [change for change in Maintenance().run_all(store, TENANT) if change.action == "removed"] == []


@pytest.mark.parametrize(
    ("invariant", "damage", "subject"),
    [
        (
            "I9 the messages of a conversation are numbered from 1 without a gap",
            "delete from messages where n = 2",
            "conversation {id}: 3 of 4 messages",
        ),
        (
            "I9 the messages of a conversation are numbered from 1 without a gap",
            "update messages set n = 9 where n = 4",
            "conversation {id}: 4 of 4 messages",
        ),
        (
            "I9 the turns of a conversation are its questions, in order",
            "update messages set turn = 7 where n = 2",
            "conversation {id}, message 2",
        ),
        (
            "I9 the turns of a conversation are its questions, in order",
            "update conversations set n_turns = 5",
            "conversation {id}: 5 turns",
        ),
    ],
)
def test_what_is_wrong_with_a_conversation_is_reported(
    store: Postgres, connection: "Connection[Any]", invariant: str, damage: str, subject: str
) -> None:
    query = Query(text="who?", tenant=TENANT, session_id="s")
    converse(store, query, query)
    assert find_violations(connection) == []
    connection.execute(damage.encode())
    assert find_violations(connection) == [Violation(invariant, TENANT, subject.format(id=conversation_id(query)))]


def test_no_more_are_told_than_were_asked_for(connection: "Connection[Any]") -> None:
    connection.execute("delete from vectors")
    assert len(find_violations(connection)) == 3
    assert len(find_violations(connection, limit=2)) == 2


COPIES = """
create temp table copies as select n, gen_random_uuid() as document, gen_random_uuid() as chunk
from generate_series(1, 40000) n;
insert into documents select tenant, collection, document, source, uri || n, version, status, stage, reason,
  retryable, size, modified_ns, changed_ns, etag, listed_ns, sha256, recipe, title, media_type, language, metadata,
  access, n_chunks
from documents cross join copies where id = '{note}';
insert into document_texts select tenant, collection, document, text
from document_texts cross join copies where document_id = '{note}';
insert into chunks (tenant, collection, id, document_id, ordinal, start_offset, end_offset, prefix, text, metadata,
  content_hash)
select tenant, collection, chunk, document, ordinal, start_offset, end_offset, prefix, text, metadata, content_hash
from chunks cross join copies where document_id = '{note}';
insert into vectors select tenant, collection, space, chunk, document, content_hash, embedding
from vectors cross join copies where document_id = '{note}';
insert into lexical_segments overriding system value
select tenant, collection, 1000000, 40000, 40000, analysis, '{{"en": 40000}}', 'words',
  (select string_agg(uuid_send(chunk), '' order by n) from copies) from lexical_segments limit 1;
insert into lexical_documents select tenant, collection, 1000000, n - 1, 1, 1, document, version, dead, language
from lexical_documents cross join copies where document_id = '{note}';
insert into lexical_postings select tenant, collection, term, 1000000, postings
from lexical_postings where term = 'one';
analyze"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_large_and_many_documents_take_no_quadratic_time(store: Postgres, connection: "Connection[Any]") -> None:
    large = draft("file:///large.md", *(f"Gäte {n} 🚪 {str(n) * 80}" for n in range(10_000)))
    publish(store, large)
    connection.execute(COPIES.format(note=NOTE.id).encode())
    progress = list[tuple[str, int, int]]()
    assert find_violations(connection, report_progress=lambda *step: progress.append(step)) == []
    assert (SPANS_MATCH, 50_000, 50_003) in progress
    connection.execute("update chunks set text = 'Gate' where id = %s", [large.chunks[-1].id])
    assert find_violations(connection) == [Violation(SPANS_MATCH, TENANT, "document file:///large.md, chunk 9999")]


def test_every_invariant_is_broken_here() -> None:
    tests = (
        test_what_is_wrong_with_a_document_is_reported,
        test_what_is_wrong_with_a_job_is_reported,
        test_what_is_wrong_with_the_graph_is_reported_and_removed,
        test_what_is_wrong_with_a_conversation_is_reported,
    )
    broken = {case[0] for test in tests for mark in test.pytestmark for case in mark.args[1]}
    assert broken == set(INVARIANTS)
