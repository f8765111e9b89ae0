"""The invariants of a store, and the queries that find the rows that break them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from psycopg import Connection
from psycopg.rows import class_row

ProgressListener: TypeAlias = Callable[[str, int, int], None]
"""Receives the invariant that is being checked, the number of chunks checked so far, and their total, or 0 if it is not
known."""

SPANS_MATCH = "I3 the text of every chunk equals its span of the document's text"
# The spans are compared in this process. Postgres would read the text from its beginning to find each span, so all
# chunks of a large document would take quadratic time. Every text is returned once, with the first of its chunks.
CHUNKS = """
select c.tenant, d.uri, c.ordinal, c.start_offset, c.end_offset, c.text, row_number() over document_chunks = 1 as first,
  case when row_number() over document_chunks = 1 then t.text end as document
from chunks c
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
left join document_texts t on t.tenant = c.tenant and t.collection = c.collection and t.document_id = c.document_id
window document_chunks as (partition by c.tenant, c.collection, c.document_id order by c.ordinal)"""
COUNT_CHUNKS = "select count(*) from chunks"
PLAN_FOR_ALL_ROWS = "set local cursor_tuple_fraction = 1"
CURSOR_ROWS = 200
"""Chunks that are in memory at once, with the texts of documents whose first chunk is among them."""
PROGRESS_ROWS = 10_000
"""Chunks between two reports of progress."""

CHUNKS_INDEXED = "I2 every chunk is in exactly one live document of the lexical index"
SEGMENTS_COMPLETE = "I2 every segment of the lexical index contains exactly its documents"
SEGMENT_CHUNK_IDS = "I2 every segment of the lexical index has the chunk ids of its live documents"
SPLADE_COMPLETE = "I2 SPLADE weights cover all chunks of an existing document"
MENTIONS_VALID = "I2 every mention in the graph refers to an entity and to a chunk of its document"
RELATIONS_VALID = "I2 every relation in the graph connects entities that its document mentions"
ENTITIES_MENTIONED = "I2 every entity in the graph is mentioned by a chunk"
REPAIRS = dict.fromkeys(
    (CHUNKS_INDEXED, SEGMENTS_COMPLETE, SPLADE_COMPLETE, MENTIONS_VALID, RELATIONS_VALID, ENTITIES_MENTIONED),
    "rag store maintain",
)
"""The command that repairs each of these invariants."""

QUERIES = {
    "I1 every document of an ended job is in a terminal state, and a failed one has a reason": """
select j.tenant, 'job ' || j.id || ', ' || i.uri as subject from jobs j
join job_items i on i.tenant = j.tenant and i.job_id = j.id
where j.status not in ('queued', 'running') and (i.status = 'queued' or i.status = 'failed' and i.reason is null)""",
    "I1 no part of a document is stored for a job that has ended": """
select p.tenant, 'job ' || p.job_id || ', document ' || p.document_id || ', part ' || p.part as subject
from draft_parts p
where not exists (select from jobs j where j.tenant = p.tenant and j.id = p.job_id
  and j.status in ('queued', 'running'))""",
    "I1 the body of a pushed document is stored only while a retry can need it": """
select p.tenant, 'job ' || p.job_id || ', ' || p.uri as subject from pushed_documents p
join jobs j on j.tenant = p.tenant and j.id = p.job_id
left join job_items i on i.tenant = p.tenant and i.job_id = p.job_id and i.uri = p.uri
where j.finished_at is not null and case when i.uri is null then j.status = 'completed'
  else not i.retryable end""",
    "I2 no chunk without its document": """
select c.tenant, 'chunk ' || c.id as subject from chunks c
where not exists (select from documents d
  where d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id)""",
    "I2 no document without all of its chunks": """
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
    CHUNKS_INDEXED: """
select tenant, 'document ' || document_id || ': ' || coalesce(l.n, 0) || ' of ' || coalesce(c.n, 0) || ' chunks'
  as subject
from (select tenant, collection, document_id, count(*) as n from chunks group by 1, 2, 3) c
full join (select tenant, collection, document_id, sum(n_chunks) as n from lexical_documents
  where kind = 'words' and not dead group by 1, 2, 3) l using (tenant, collection, document_id)
where c.n is distinct from l.n""",
    SPLADE_COMPLETE: """
select l.tenant, 'document ' || l.document_id || ': ' || l.n_chunks || ' of ' || coalesce(d.n_chunks, 0) || ' chunks'
  as subject
from lexical_documents l
left join documents d on d.tenant = l.tenant and d.collection = l.collection and d.id = l.document_id
where l.kind = 'splade' and not l.dead and l.n_chunks is distinct from d.n_chunks""",
    SEGMENTS_COMPLETE: """
select tenant, 'segment ' || id as subject
from (select tenant, collection, id, n_chunks, octet_length(chunk_ids) / 16 as n_ids, total_length, languages
  from lexical_segments) s
full join (
  select tenant, collection, id, sum(n) as chunks, max(last) as last, sum(length) as length,
    jsonb_object_agg(language, n) as languages
  from (select tenant, collection, segment_id as id, language, sum(n_chunks) as n, max(first_local + n_chunks) as last,
    sum(total_length) as length from lexical_documents group by 1, 2, 3, 4) by_language
  group by 1, 2, 3) d using (tenant, collection, id)
full join (select tenant, collection, segment_id as id, count(*) as terms from lexical_postings group by 1, 2, 3) p
  using (tenant, collection, id)
where (s.n_chunks, s.n_chunks, s.n_ids, s.total_length, s.languages, s.total_length > 0)
  is distinct from (d.chunks, d.last, d.chunks, d.length, d.languages, p.terms is not null)""",
    SEGMENT_CHUNK_IDS: """
select l.tenant, 'document ' || l.document_id as subject
from lexical_documents l
join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
join (select tenant, collection, document_id, string_agg(uuid_send(id), '' order by ordinal) as ids
  from chunks group by 1, 2, 3) c
  on c.tenant = l.tenant and c.collection = l.collection and c.document_id = l.document_id
where not l.dead and octet_length(c.ids) = 16 * l.n_chunks
  and substring(s.chunk_ids from 16 * l.first_local + 1 for 16 * l.n_chunks) <> c.ids""",
    MENTIONS_VALID: """
select m.tenant, 'chunk ' || m.chunk_id || ', entity ' || m.entity as subject from mentions m
where not exists (select from entities e where e.tenant = m.tenant and e.collection = m.collection and e.id = m.entity)
union
select m.tenant, 'chunk ' || m.chunk_id || ', entity ' || m.entity from mentions m
where not exists (select from chunks c where c.tenant = m.tenant and c.collection = m.collection and c.id = m.chunk_id
  and c.document_id = m.document_id)""",
    RELATIONS_VALID: """
select r.tenant, 'document ' || r.document_id || ', ' || r.source || ' to ' || r.target as subject from relations r
where not exists (select from mentions m where m.tenant = r.tenant and m.collection = r.collection
  and m.document_id = r.document_id and m.entity = r.source)
union
select r.tenant, 'document ' || r.document_id || ', ' || r.source || ' to ' || r.target from relations r
where not exists (select from mentions m where m.tenant = r.tenant and m.collection = r.collection
  and m.document_id = r.document_id and m.entity = r.target)""",
    ENTITIES_MENTIONED: """
select e.tenant, 'entity ' || e.name as subject from entities e
where not exists (select from mentions m
  where m.tenant = e.tenant and m.collection = e.collection and m.entity = e.id)""",
    "I3 the chunks of a document are numbered from 0 without a gap": """
select tenant, 'document ' || document_id as subject from chunks
group by tenant, collection, document_id having count(*) <> max(ordinal) + 1 or min(ordinal) <> 0""",
    "I4 every document has one live version, with the hash of its source": """
select tenant, 'document ' || uri as subject from documents
where status = 'completed' and length(sha256) <> 32
union all
select tenant, 'document ' || uri from documents group by tenant, collection, uri having count(*) <> 1""",
    "I8 a job's events are numbered without a gap": """
select j.tenant, 'job ' || j.id || ': ' || count(e.seq) || ' of ' || j.events || ' events' as subject
from jobs j left join job_events e on e.tenant = j.tenant and e.job_id = j.id
group by j.tenant, j.id, j.events having count(e.seq) <> j.events or coalesce(max(e.seq), 0) <> j.events""",
    "I8 the counts in a job's events match the states of its documents": """
select j.tenant, 'job ' || j.id as subject from jobs j
left join (select e.tenant, e.job_id, sum(d.value::bigint) as n from job_events e
  cross join lateral jsonb_each_text(e.detail) d where e.stage in ('publish', 'delete') group by 1, 2) e
  on e.tenant = j.tenant and e.job_id = j.id
left join (select tenant, job_id, count(*) as n from job_items where status <> 'queued'
  and stage is distinct from 'job' group by 1, 2) i on i.tenant = j.tenant and i.job_id = j.id
where j.events > 0 and coalesce(e.n, 0) <> coalesce(i.n, 0)""",
    "I9 the messages of a conversation are numbered from 1 without a gap": """
select c.tenant, 'conversation ' || c.id || ': ' || count(m.n) || ' of ' || c.n_messages || ' messages' as subject
from conversations c left join messages m on m.tenant = c.tenant and m.conversation_id = c.id
group by c.tenant, c.id, c.n_messages
having count(m.n) <> c.n_messages or coalesce(max(m.n), 0) <> c.n_messages""",
    "I9 the turns of a conversation are its questions, in order": """
select c.tenant, 'conversation ' || c.id || ', message ' || m.n as subject
from conversations c
join (select tenant, conversation_id, n, turn,
    count(*) filter (where role = 'user') over (partition by tenant, conversation_id order by n) as questions
  from messages) m on m.tenant = c.tenant and m.conversation_id = c.id
where m.turn <> m.questions
union all
select c.tenant, 'conversation ' || c.id || ': ' || c.n_turns || ' turns' from conversations c
where c.n_turns <> (select count(*) from messages m
  where m.tenant = c.tenant and m.conversation_id = c.id and m.role = 'user')""",
}
INVARIANTS = tuple(sorted([*QUERIES, SPANS_MATCH]))
# Materialized, because a planner that knows the limit chooses joins that are fast for the first rows but take quadratic
# time if there are none.
FIRST_ROWS = "with broken as materialized ({query}) select %(invariant)s as invariant, * from broken limit %(limit)s"


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that breaks an invariant. `subject` describes the row."""

    invariant: str
    tenant: str
    subject: str


def find_violations(
    connection: Connection, limit: int = 20, report_progress: ProgressListener = lambda *_: None
) -> list[Violation]:
    """Returns at most `limit` violations of each invariant.

    The connection must see the rows of all tenants, as the worker's role or a superuser.
    """
    violations: list[Violation] = []
    for invariant in INVARIANTS:
        report_progress(invariant, 0, 0)
        if invariant == SPANS_MATCH:
            with connection.transaction():
                violations += islice(_find_wrong_spans(connection, report_progress), limit)
        else:
            statement = FIRST_ROWS.format(query=QUERIES[invariant]).encode()
            with connection.cursor(row_factory=class_row(Violation)) as cursor:
                violations += cursor.execute(statement, {"invariant": invariant, "limit": limit}).fetchall()
    return violations


def _find_wrong_spans(connection: Connection, report_progress: ProgressListener) -> Iterator[Violation]:
    row = connection.execute(COUNT_CHUNKS).fetchone()
    total, document_text = int(row[0]) if row else 0, None
    connection.execute(PLAN_FOR_ALL_ROWS)
    with connection.cursor("chunks") as cursor:
        cursor.itersize = CURSOR_ROWS
        for n, (tenant, uri, ordinal, start, end, text, is_first, document) in enumerate(cursor.execute(CHUNKS)):
            if is_first:
                document_text = document
            if document_text is None or document_text[start:end] != text:
                yield Violation(SPANS_MATCH, tenant, f"document {uri}, chunk {ordinal}")
            if n % PROGRESS_ROWS == 0:
                report_progress(SPANS_MATCH, n, total)
