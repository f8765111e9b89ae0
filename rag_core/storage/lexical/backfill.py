"""Adds documents that are missing from the lexical index: stored before it existed, analyzed by another version of the
text analysis, or damaged. Lost SPLADE weights need the model, so the next sync restores them instead.

It searches for missing documents, so after an interruption it continues where it stopped. Each batch is read and built
outside a transaction. A document that a publisher has changed meanwhile is left to the publisher.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from psycopg import Connection

from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.merging import DELETE_SEGMENTS, LOCK_COLLECTION, LOCK_DOCUMENTS
from rag_core.storage.lexical.segment import MAX_CHUNKS, SegmentDocument
from rag_core.storage.lexical.writing import PreparedSegments, add_segments, mark_dead, mark_orphans_dead
from rag_core.storage.postgres import transaction
from rag_core.text import analysis

MAX_BATCH_CHUNKS = 10_000
LOWEST_ID = UUID(int=0)

# Segments whose counts differ from those of their documents, segments that have lost all postings, and remaining rows
# of segments that no longer exist.
BROKEN = """
with recursive posted as (
  (select min(segment_id) as id from lexical_postings where tenant = %(tenant)s and collection = %(collection)s)
  union all
  select (select min(segment_id) from lexical_postings
    where tenant = %(tenant)s and collection = %(collection)s and segment_id > posted.id)
  from posted where posted.id is not null
), filled as (
  select segment_id as id, sum(n_chunks) as chunks, max(last) as last, sum(length) as length,
    jsonb_object_agg(language, n_chunks) as languages
  from (select segment_id, language, sum(n_chunks) as n_chunks, max(first_local + n_chunks) as last,
      sum(total_length) as length
    from lexical_documents where tenant = %(tenant)s and collection = %(collection)s
    group by segment_id, language) by_language
  group by segment_id
), segments as (
  select id, n_chunks, octet_length(chunk_ids) / 16 as n_ids, total_length, languages from lexical_segments
  where tenant = %(tenant)s and collection = %(collection)s
)
select id from segments s full join filled f using (id)
where (s.n_chunks, s.n_chunks, s.n_ids, s.total_length, s.languages)
    is distinct from (f.chunks, f.last, f.chunks, f.length, f.languages)
  or s.total_length > 0 and id not in (select id from posted where id is not null)
union
select id from posted where id is not null and id not in (select id from segments)"""
LOCK_SEGMENTS = """
select from lexical_segments where tenant = %(tenant)s and collection = %(collection)s
  and id = any(%(segments)s::bigint[]) order by id for update"""
# `except` takes linear time whatever statistics the planner has. A join would scan an empty index for each document.
MISSING = """
select d.id, d.n_chunks from (
  select id from documents where tenant = %(tenant)s and collection = %(collection)s and id > %(after)s
    and n_chunks between 1 and %(max_chunks)s
  except
  select l.document_id from lexical_documents l
  join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
  where l.tenant = %(tenant)s and l.collection = %(collection)s and l.document_id > %(after)s and l.kind = %(kind)s
    and not l.dead and s.analysis = %(analysis)s) missing
join documents d on d.tenant = %(tenant)s and d.collection = %(collection)s and d.id = missing.id
order by d.id limit 1000"""
# The same text as `Chunk.embedded_text`.
TEXTS = """
select d.id, d.version, d.language, c.id, concat_ws(E'\\n', nullif(c.prefix, ''), c.text)
from documents d join chunks c on c.tenant = d.tenant and c.collection = d.collection and c.document_id = d.id
where d.tenant = %(tenant)s and d.collection = %(collection)s and d.id = any(%(ids)s::uuid[])
order by d.id, c.ordinal"""
LOCK_UNCHANGED = """
select d.id from documents d join unnest(%(ids)s::uuid[], %(versions)s::bigint[]) as known (id, version)
  on known.id = d.id and known.version = d.version
where d.tenant = %(tenant)s and d.collection = %(collection)s order by d.id for no key update of d"""
INDEXED = """
select l.document_id from lexical_documents l
join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
where l.tenant = %(tenant)s and l.collection = %(collection)s and l.document_id = any(%(ids)s::uuid[])
  and l.kind = %(kind)s and not l.dead and s.analysis = %(analysis)s"""


def backfill(connection: Connection, tenant: str, collection: int) -> int:
    """Adds all missing documents and returns their count.

    Several processes can run it at the same time, even while others publish.
    """
    scope = {"tenant": tenant, "collection": collection, "max_chunks": MAX_CHUNKS}
    with transaction(connection, tenant):
        connection.execute(LOCK_COLLECTION, scope)
        segments = [row[0] for row in connection.execute(BROKEN, scope)]
        if segments:  # their documents then count as missing
            for statement in (LOCK_SEGMENTS, LOCK_DOCUMENTS, *DELETE_SEGMENTS):
                connection.execute(statement.encode(), {**scope, "segments": segments})
        mark_orphans_dead(connection, scope)
    scope |= {"kind": WORDS, "analysis": analysis.VERSION}
    return sum(_add_documents(connection, scope, ids) for ids in _find_missing(connection, scope))


def _find_missing(connection: Connection, scope: Mapping[str, Any]) -> Iterator[list[UUID]]:
    """Yields the ids of missing documents in batches, in ascending order."""
    last = LOWEST_ID
    while True:
        with transaction(connection, scope["tenant"]):
            rows = connection.execute(MISSING, {**scope, "after": last}).fetchall()
        if not rows:
            return
        totals = accumulate(n_chunks for _, n_chunks in rows)
        batch = [id for (id, n_chunks), total in zip(rows, totals, strict=True) if total - n_chunks < MAX_BATCH_CHUNKS]
        yield batch
        last = batch[-1]


def _add_documents(connection: Connection, scope: Mapping[str, Any], ids: Sequence[UUID]) -> int:
    """Indexes these documents. Skips those that have changed, or were indexed, since they were read."""
    with transaction(connection, scope["tenant"]):
        rows = connection.execute(TEXTS, {**scope, "ids": list(ids)}).fetchall()
    documents = [_analyze_document(list(chunks)) for _, chunks in groupby(rows, key=itemgetter(0))]
    prepared = PreparedSegments.build(documents)
    parameters = {
        **scope,
        "ids": [document.id for document in documents],
        "versions": [document.version for document in documents],
    }
    with transaction(connection, scope["tenant"]):
        unchanged = {row[0] for row in connection.execute(LOCK_UNCHANGED, parameters)}
        missing = unchanged - {row[0] for row in connection.execute(INDEXED, parameters)}
        mark_dead(connection, scope, sorted(missing), kinds=[WORDS])
        add_segments(connection, scope, prepared.restrict_to(missing))
    return len(missing)


def _analyze_document(chunk_rows: Sequence[tuple[UUID, int, str, UUID, str]]) -> SegmentDocument:
    id, version, language, *_ = chunk_rows[0]
    terms = [analysis.terms(text, language) for *_, text in chunk_rows]
    return SegmentDocument(id, version, language, [chunk for *_, chunk, _ in chunk_rows], terms)
