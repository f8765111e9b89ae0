"""The invariants that one store can show, each with a query that finds the rows that break it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from psycopg import Connection
from psycopg.rows import class_row

Tell: TypeAlias = Callable[[str, int, int], None]
"""Gets the invariant that is looked at, how much of it is done, and of how much: 0 if nobody knows."""

SPANS = "I3 every chunk is the span of its document's text that it says it is"
# Cut in this process: to find where a span begins, Postgres reads the text from its beginning, which for all chunks of
# a large document takes squared time. So every text comes once, with the first of its chunks.
CHUNKS = """
select c.tenant, d.uri, c.ordinal, c.start_offset, c.end_offset, c.text, row_number() over each = 1 as first,
  case when row_number() over each = 1 then t.text end as document
from chunks c
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
left join document_texts t on t.tenant = c.tenant and t.collection = c.collection and t.document_id = c.document_id
window each as (partition by c.tenant, c.collection, c.document_id order by c.ordinal)"""
COUNT_CHUNKS = "select count(*) from chunks"
ALL_ROWS = "set local cursor_tuple_fraction = 1"
FETCHED = 200
"""Chunks that are in memory at once, with the texts that begin there."""
TOLD = 10_000

INDEXED = "I2 every chunk is in exactly one live document of the lexical index"
FILLED = "I2 every segment of the lexical index holds its documents and nothing else"
NUMBERED = "I2 every segment of the lexical index names the chunks that its live documents have"
WEIGHTED = "I2 SPLADE's weights are of all chunks of a document that is there"
MENTIONED = "I2 every mention in the graph is of an entity, and in a chunk of its document"
RELATED = "I2 every relation in the graph is between entities that its document mentions"
NAMED = "I2 no entity in the graph that no chunk mentions"
REPAIRS = dict.fromkeys((INDEXED, FILLED, WEIGHTED, MENTIONED, RELATED, NAMED), "rag store maintain")
"""The command that puts it right."""

QUERIES = {
    "I1 every document of a job that has ended is in a terminal state, a failed one with its reason": """
select j.tenant, 'job ' || j.id || ', ' || i.uri as subject from jobs j
join job_items i on i.tenant = j.tenant and i.job_id = j.id
where j.status not in ('queued', 'running') and (i.status = 'queued' or i.status = 'failed' and i.reason is null)""",
    "I1 no part of a document waits for a job that has ended": """
select p.tenant, 'job ' || p.job_id || ', document ' || p.document_id || ', part ' || p.part as subject
from draft_parts p
where not exists (select from jobs j where j.tenant = p.tenant and j.id = p.job_id
  and j.status in ('queued', 'running'))""",
    "I1 no body of a document is kept that has come to its end for good": """
select p.tenant, 'job ' || p.job_id || ', ' || p.uri as subject from pushed_documents p
join jobs j on j.tenant = p.tenant and j.id = p.job_id
left join job_items i on i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri
where j.finished_at is not null and case when i.uri is null then j.status = 'completed'
  else not (i.status = 'failed' and i.retryable) end""",
    "I2 no chunk without its document": """
select c.tenant, 'chunk ' || c.id as subject from chunks c
where not exists (select from documents d
  where d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id)""",
    "I2 no document without the chunks it was completed with": """
select d.tenant, 'document ' || d.uri || ': ' || coalesce(c.n, 0) || ' of ' || d.n_chunks || ' chunks' as subject
from documents d
left join (select tenant, collection, document_id, count(*) as n from chunks group by 1, 2, 3) c
  on c.tenant = d.tenant and c.collection = d.collection and c.document_id = d.id
where d.n_chunks <> coalesce(c.n, 0)""",
    "I2 no chunk without a vector in its collection's space": """
select c.tenant, 'chunk ' || c.id as subject from chunks c
join collections o on o.tenant = c.tenant and o.id = c.collection
where o.space is not null and not exists (select from vectors v
  where v.tenant = c.tenant and v.collection = c.collection and v.space = o.space and v.chunk_id = c.id)""",
    "I2 no vector without its chunk": """
select v.tenant, 'vector of chunk ' || v.chunk_id as subject from vectors v
where not exists (select from chunks c
  where c.tenant = v.tenant and c.collection = v.collection and c.id = v.chunk_id)""",
    INDEXED: """
select tenant, 'document ' || document_id || ': ' || coalesce(l.n, 0) || ' of ' || coalesce(c.n, 0) || ' chunks'
  as subject
from (select tenant, collection, document_id, count(*) as n from chunks group by 1, 2, 3) c
full join (select tenant, collection, document_id, sum(n_chunks) as n from lexical_documents
  where kind = 'words' and not dead group by 1, 2, 3) l using (tenant, collection, document_id)
where c.n is distinct from l.n""",
    WEIGHTED: """
select l.tenant, 'document ' || l.document_id || ': ' || l.n_chunks || ' of ' || coalesce(d.n_chunks, 0) || ' chunks'
  as subject
from lexical_documents l
left join documents d on d.tenant = l.tenant and d.collection = l.collection and d.id = l.document_id
where l.kind = 'splade' and not l.dead and l.n_chunks is distinct from d.n_chunks""",
    FILLED: """
select tenant, 'segment ' || id as subject
from (select tenant, collection, id, n_chunks, octet_length(chunk_ids) / 16 as n_ids, total_length, languages
  from lexical_segments) s
full join (
  select tenant, collection, id, sum(n) as chunks, max(last) as last, sum(length) as length,
    jsonb_object_agg(language, n) as languages
  from (select tenant, collection, segment_id as id, language, sum(n_chunks) as n, max(first_local + n_chunks) as last,
    sum(total_length) as length from lexical_documents group by 1, 2, 3, 4) own
  group by 1, 2, 3) d using (tenant, collection, id)
full join (select tenant, collection, segment_id as id, count(*) as terms from lexical_postings group by 1, 2, 3) p
  using (tenant, collection, id)
where (s.n_chunks, s.n_chunks, s.n_ids, s.total_length, s.languages, s.total_length > 0)
  is distinct from (d.chunks, d.last, d.chunks, d.length, d.languages, p.terms is not null)""",
    NUMBERED: """
select l.tenant, 'document ' || l.document_id as subject
from lexical_documents l
join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
join (select tenant, collection, document_id, string_agg(uuid_send(id), '' order by ordinal) as ids
  from chunks group by 1, 2, 3) c
  on c.tenant = l.tenant and c.collection = l.collection and c.document_id = l.document_id
where not l.dead and octet_length(c.ids) = 16 * l.n_chunks
  and substring(s.chunk_ids from 16 * l.first_local + 1 for 16 * l.n_chunks) <> c.ids""",
    MENTIONED: """
select m.tenant, 'chunk ' || m.chunk_id || ', entity ' || m.entity as subject from mentions m
where not exists (select from entities e where e.tenant = m.tenant and e.collection = m.collection and e.id = m.entity)
union
select m.tenant, 'chunk ' || m.chunk_id || ', entity ' || m.entity from mentions m
where not exists (select from chunks c where c.tenant = m.tenant and c.collection = m.collection and c.id = m.chunk_id
  and c.document_id = m.document_id)""",
    RELATED: """
select r.tenant, 'document ' || r.document_id || ', ' || r.source || ' to ' || r.target as subject from relations r
where not exists (select from mentions m where m.tenant = r.tenant and m.collection = r.collection
  and m.document_id = r.document_id and m.entity = r.source)
union
select r.tenant, 'document ' || r.document_id || ', ' || r.source || ' to ' || r.target from relations r
where not exists (select from mentions m where m.tenant = r.tenant and m.collection = r.collection
  and m.document_id = r.document_id and m.entity = r.target)""",
    NAMED: """
select e.tenant, 'entity ' || e.name as subject from entities e
where not exists (select from mentions m
  where m.tenant = e.tenant and m.collection = e.collection and m.entity = e.id)""",
    "I3 the chunks of a document are numbered from 0 without a gap": """
select tenant, 'document ' || document_id as subject from chunks
group by tenant, collection, document_id having count(*) <> max(ordinal) + 1 or min(ordinal) <> 0""",
    "I4 one live version a document, with the hash of its source": """
select tenant, 'document ' || uri as subject from documents
where status = 'completed' and length(sha256) <> 32
union all
select tenant, 'document ' || uri from documents group by tenant, collection, uri having count(*) <> 1""",
    "I8 a job's events are numbered without a gap": """
select j.tenant, 'job ' || j.id || ': ' || count(e.seq) || ' of ' || j.events || ' events' as subject
from jobs j left join job_events e on e.tenant = j.tenant and e.job_id = j.id
group by j.tenant, j.id, j.events having count(e.seq) <> j.events or coalesce(max(e.seq), 0) <> j.events""",
    "I8 what a job's events count is what its documents say": """
select j.tenant, 'job ' || j.id as subject from jobs j
left join (select e.tenant, e.job_id, sum(d.value::bigint) as n from job_events e
  cross join lateral jsonb_each_text(e.detail) d where e.stage in ('publish', 'delete') group by 1, 2) e
  on e.tenant = j.tenant and e.job_id = j.id
left join (select tenant, job_id, count(*) as n from job_items where status <> 'queued'
  and (status <> 'failed' or stage <> 'job') group by 1, 2) i on i.tenant = j.tenant and i.job_id = j.id
where coalesce(e.n, 0) <> coalesce(i.n, 0)""",
}
INVARIANTS = tuple(sorted([*QUERIES, SPANS]))
# Materialized: a planner that knows of the limit joins as if it could stop after the first rows, in squared time.
FIRST_ROWS = "with broken as materialized ({query}) select %(invariant)s as invariant, * from broken limit %(most)s"


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    tenant: str
    subject: str


def violations(connection: Connection, most: int = 20, tell: Tell = lambda *_: None) -> list[Violation]:
    """At most that many for each invariant. The connection must see all rows: the worker's role, or a superuser's."""
    found = []
    for invariant in INVARIANTS:
        tell(invariant, 0, 0)
        found += _misplaced(connection, most, tell) if invariant == SPANS else _broken(connection, invariant, most)
    return found


def _broken(connection: Connection, invariant: str, most: int) -> list[Violation]:
    statement = FIRST_ROWS.format(query=QUERIES[invariant])
    with connection.cursor(row_factory=class_row(Violation)) as cursor:
        return cursor.execute(statement.encode(), {"invariant": invariant, "most": most}).fetchall()


def _misplaced(connection: Connection, most: int, tell: Tell) -> list[Violation]:
    with connection.transaction():
        return list(islice(_chunks_elsewhere(connection, tell), most))


def _chunks_elsewhere(connection: Connection, tell: Tell) -> Iterator[Violation]:
    row = connection.execute(COUNT_CHUNKS).fetchone()
    chunks, whole = int(row[0]) if row else 0, None
    connection.execute(ALL_ROWS)
    with connection.cursor("chunks") as cursor:
        cursor.itersize = FETCHED
        for n, (tenant, uri, ordinal, start, end, text, first, document) in enumerate(cursor.execute(CHUNKS)):
            if first:
                whole = document
            if whole is None or whole[start:end] != text:
                yield Violation(SPANS, tenant, f"document {uri}, chunk {ordinal}")
            if n % TOLD == 0:
                tell(SPANS, n, chunks)
