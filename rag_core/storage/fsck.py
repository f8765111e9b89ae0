"""The invariants that one store can show, each a query that finds the rows that break it."""

from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import class_row

TEXTS_MATCH = """
select d.tenant, 'document ' || d.uri || ', chunk ' || c.ordinal as subject
from chunks c
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
left join document_texts t on t.tenant = c.tenant and t.collection = c.collection and t.document_id = c.document_id
where t.text is null or substr(t.text, c.start_offset + 1, c.end_offset - c.start_offset) <> c.text"""

INVARIANTS = {
    "I1 every document of a job that has ended is in a terminal state, a failed one with its reason": """
select j.tenant, 'job ' || j.id || ', ' || i.uri as subject from jobs j
join job_items i on i.tenant = j.tenant and i.job_id = j.id
where j.status <> 'running' and (i.status = 'queued' or i.status = 'failed' and i.reason is null)""",
    "I1 no part of a document waits for a job that has ended": """
select p.tenant, 'job ' || p.job_id || ', document ' || p.document_id || ', part ' || p.part as subject
from draft_parts p
where not exists (select from jobs j where j.tenant = p.tenant and j.id = p.job_id and j.status = 'running')""",
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
    "I3 the chunks of a document are numbered from 0 without a gap": """
select tenant, 'document ' || document_id as subject from chunks
group by tenant, collection, document_id having count(*) <> max(ordinal) + 1 or min(ordinal) <> 0""",
    "I3 every chunk is the span of its document's text that it says it is": TEXTS_MATCH,
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


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    tenant: str
    subject: str


def violations(connection: Connection, most: int = 20) -> list[Violation]:
    """At most that many for each invariant. The connection must see all rows: the worker's role, or a superuser's."""
    found = []
    for invariant, query in INVARIANTS.items():
        with connection.cursor(row_factory=class_row(Violation)) as cursor:
            statement = f"select %(invariant)s as invariant, * from ({query}) broken limit %(most)s"  # noqa: S608
            found += cursor.execute(statement.encode(), {"invariant": invariant, "most": most}).fetchall()
    return found
