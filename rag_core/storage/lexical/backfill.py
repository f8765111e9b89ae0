"""Brings the lexical index in step with the corpus: what was stored before there was one or analyzed otherwise, and
what was damaged since. What is lost of SPLADE's, which takes its model to make, the next sync brings back.

It looks for documents that are missing, so it goes on where it was stopped. Each batch is read and built outside of a
transaction; what a publisher has changed meanwhile is left to him.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from psycopg import Connection

from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.merging import DROP, HOLD_COLLECTION, LOCK_DOCUMENTS
from rag_core.storage.lexical.segment import MOST_CHUNKS, SegmentDocument
from rag_core.storage.lexical.writing import Prepared, add, bury, bury_orphans
from rag_core.storage.postgres import transaction
from rag_core.text import analysis

CHUNKS_AT_ONCE = 10_000
FIRST = UUID(int=0)

# Segments that their documents do not fill exactly, or that have lost all postings, and what is left of others.
BROKEN = """
with recursive held as (
  (select min(segment_id) as id from lexical_postings where tenant = %(tenant)s and collection = %(collection)s)
  union all
  select (select min(segment_id) from lexical_postings
    where tenant = %(tenant)s and collection = %(collection)s and segment_id > held.id)
  from held where held.id is not null
), filled as (
  select segment_id as id, sum(n_chunks) as chunks, max(last) as last, sum(length) as length,
    jsonb_object_agg(language, n_chunks) as languages
  from (select segment_id, language, sum(n_chunks) as n_chunks, max(first_local + n_chunks) as last,
      sum(total_length) as length
    from lexical_documents where tenant = %(tenant)s and collection = %(collection)s group by segment_id, language) own
  group by segment_id
), segments as (
  select id, n_chunks, octet_length(chunk_ids) / 16 as n_ids, total_length, languages from lexical_segments
  where tenant = %(tenant)s and collection = %(collection)s
)
select id from segments s full join filled f using (id)
where (s.n_chunks, s.n_chunks, s.n_ids, s.total_length, s.languages)
    is distinct from (f.chunks, f.last, f.chunks, f.length, f.languages)
  or s.total_length > 0 and id not in (select id from held where id is not null)
union
select id from held where id is not null and id not in (select id from segments)"""
LOCK_SEGMENTS = """
select from lexical_segments where tenant = %(tenant)s and collection = %(collection)s
  and id = any(%(segments)s::bigint[]) order by id for update"""
# By `except`, which is linear whatever the planner knows: where nothing is analyzed yet, it would look through the
# index for each document.
MISSING = """
select d.id, d.n_chunks from (
  select id from documents where tenant = %(tenant)s and collection = %(collection)s and id > %(after)s
    and n_chunks between 1 and %(most)s
  except
  select l.document_id from lexical_documents l
  join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
  where l.tenant = %(tenant)s and l.collection = %(collection)s and l.document_id > %(after)s and l.kind = %(kind)s
    and not l.dead and s.analysis = %(analysis)s) missing
join documents d on d.tenant = %(tenant)s and d.collection = %(collection)s and d.id = missing.id
order by d.id limit 1000"""
# As Chunk.embedded_text.
TEXTS = """
select d.id, d.version, d.language, c.id, concat_ws(E'\\n', nullif(c.prefix, ''), c.text)
from documents d join chunks c on c.tenant = d.tenant and c.collection = d.collection and c.document_id = d.id
where d.tenant = %(tenant)s and d.collection = %(collection)s and d.id = any(%(ids)s::uuid[])
order by d.id, c.ordinal"""
LOCK_UNCHANGED = """
select d.id from documents d join unnest(%(ids)s::uuid[], %(versions)s::bigint[]) as was (id, version)
  on was.id = d.id and was.version = d.version
where d.tenant = %(tenant)s and d.collection = %(collection)s order by d.id for no key update of d"""
DONE = """
select l.document_id from lexical_documents l
join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
where l.tenant = %(tenant)s and l.collection = %(collection)s and l.document_id = any(%(ids)s::uuid[])
  and l.kind = %(kind)s and not l.dead and s.analysis = %(analysis)s"""


def backfill(connection: Connection, tenant: str, collection: int) -> int:
    """How many documents had to be written. Any number of processes may do it at once, beside publishers."""
    scope = {"tenant": tenant, "collection": collection, "most": MOST_CHUNKS}
    with transaction(connection, tenant):
        _discard_broken(connection, scope)
        bury_orphans(connection, scope)
    scope |= {"kind": WORDS, "analysis": analysis.VERSION}
    return sum(_add(connection, scope, ids) for ids in _missing(connection, scope))


def _discard_broken(connection: Connection, scope: Mapping[str, Any]) -> None:
    """Their documents are missing then."""
    connection.execute(HOLD_COLLECTION, scope)
    segments = [row[0] for row in connection.execute(BROKEN, scope)]
    if segments:
        for statement in (LOCK_SEGMENTS, LOCK_DOCUMENTS, *DROP):
            connection.execute(statement.encode(), {**scope, "segments": segments})


def _missing(connection: Connection, scope: Mapping[str, Any]) -> Iterator[list[UUID]]:
    after = FIRST
    while True:
        with transaction(connection, scope["tenant"]):
            found = connection.execute(MISSING, {**scope, "after": after}).fetchall()
        if not found:
            return
        totals = accumulate(n_chunks for _, n_chunks in found)
        batch = [id for (id, n_chunks), total in zip(found, totals, strict=True) if total - n_chunks < CHUNKS_AT_ONCE]
        yield batch
        after = batch[-1]


def _add(connection: Connection, scope: Mapping[str, Any], ids: Sequence[UUID]) -> int:
    with transaction(connection, scope["tenant"]):
        rows = connection.execute(TEXTS, {**scope, "ids": list(ids)}).fetchall()
    prepared = Prepared.of([_document(list(own)) for _, own in groupby(rows, key=itemgetter(0))])
    read = {"ids": [document.id for document in prepared.documents]}
    versions = [document.version for document in prepared.documents]
    with transaction(connection, scope["tenant"]):
        unchanged = {row[0] for row in connection.execute(LOCK_UNCHANGED, {**scope, **read, "versions": versions})}
        missing = unchanged - {row[0] for row in connection.execute(DONE, {**scope, **read})}
        bury(connection, scope, sorted(missing), kinds=[WORDS])
        add(connection, scope, prepared.only(missing))
    return len(missing)


def _document(rows: Sequence[tuple[UUID, int, str, UUID, str]]) -> SegmentDocument:
    id, version, language, *_ = rows[0]
    terms = [analysis.terms(text, language) for *_, text in rows]
    return SegmentDocument(id, version, language, [chunk for *_, chunk, _ in rows], terms)
