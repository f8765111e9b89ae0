"""The trace of one document: its stored state, the job that wrote it, and its chunks that pass a query's filter.

A document that the caller may not read looks like one that was never stored.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.sql import SQL

from rag_core.storage.filters import chunk_filter
from rag_core.storage.snapshot import Snapshot
from rag_core.types import Chunk, Query, document_id

DOCUMENT = """
select d.status, coalesce(d.stage, '') as stage, coalesce(d.reason, '') as reason, d.retryable, d.access as groups,
  j.id as job
from documents d left join jobs j on j.tenant = d.tenant and j.run = d.version
where d.tenant = %(tenant)s and d.collection = %(collection_id)s and d.id = %(id)s
  and (d.access = '{}' or d.access && %(groups)s::text[])"""
LAST_JOB = """
select i.job_id as job, i.status = 'deleted' as deleted
from jobs j join job_items i on i.tenant = j.tenant and i.job_id = j.id and i.document_id = %(id)s
where j.tenant = %(tenant)s and j.collection = %(collection_id)s and i.status in ('completed', 'same', 'deleted')
  and not exists (select from documents d
    where d.tenant = %(tenant)s and d.collection = %(collection_id)s and d.id = %(id)s)
order by j.run desc limit 1"""
COLLECTIONS = "select id, name from collections where tenant = %(tenant)s order by name"
OTHER_COLLECTIONS = """
select c.name from unnest(%(collections)s::int[], %(ids)s::uuid[]) as candidate (collection, id)
join documents d on d.tenant = %(tenant)s and d.collection = candidate.collection and d.id = candidate.id
  and d.n_chunks > 0 and (d.access = '{}' or d.access && %(groups)s::text[])
join collections c on c.tenant = d.tenant and c.id = d.collection
where d.collection <> %(collection_id)s order by c.name"""
CHUNKS = """
select c.id, c.document_id, c.ordinal, c.text, c.start_offset as start, c.end_offset as end, c.prefix, c.metadata
from chunks c where c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.document_id = %(id)s
order by c.ordinal"""
PASSING_CHUNKS = """
select v.id from chunks v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.document_id = %(id)s and {filter}"""
TEXT = """
select text from document_texts
where tenant = %(tenant)s and collection = %(collection_id)s and document_id = %(id)s"""
CHUNK_COUNT = "select count(*) as chunks from chunks where tenant = %(tenant)s and collection = %(collection_id)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTrace:
    """The stored state of a document. `status` is empty if it is not stored; `deleted` is True if it was in the past.

    `job` is the job that wrote or deleted the document last, or None. `other_collections` are those that have a
    document of this uri. `passing_chunks` are the ids of chunks that pass the query's filter. `collection_chunks` is
    the number of chunks in the collection.
    """

    uri: str
    collection: str
    status: str = ""
    stage: str = ""
    reason: str = ""
    retryable: bool = False
    groups: tuple[str, ...] = ()
    job: UUID | None = None
    deleted: bool = False
    other_collections: tuple[str, ...] = ()
    text: str = ""
    chunks: tuple[Chunk, ...] = ()
    passing_chunks: frozenset[UUID] = frozenset()
    collection_chunks: int = 0


async def trace_document(snapshot: Snapshot, query: Query, uri: str) -> DocumentTrace:
    scope = {**snapshot.scope, "id": document_id(query.tenant, query.collection, uri)}
    rows = await _fetch_rows(snapshot, DOCUMENT, scope)
    facts = await _document_facts(snapshot, query, scope, rows[0]) if rows else await _deletion_facts(snapshot, scope)
    collections = await _other_collections(snapshot, query, uri, scope)
    return DocumentTrace(uri=uri, collection=query.collection, other_collections=collections, **facts)


async def _document_facts(
    snapshot: Snapshot, query: Query, scope: dict[str, Any], document: dict[str, Any]
) -> dict[str, Any]:
    condition, values = chunk_filter(query.filters, "v.document_id", "v.id")
    statement = SQL(PASSING_CHUNKS).format(filter=condition)
    passing_chunks = await snapshot.connection.execute(statement, {**scope, **values})
    texts = await _fetch_rows(snapshot, TEXT, scope)
    return {
        **document,
        "groups": tuple(document["groups"]),
        "text": texts[0]["text"] if texts else "",
        "chunks": tuple(Chunk(**row) for row in await _fetch_rows(snapshot, CHUNKS, scope)),
        "passing_chunks": frozenset([row[0] async for row in passing_chunks]),
        "collection_chunks": (await _fetch_rows(snapshot, CHUNK_COUNT, scope))[0]["chunks"],
    }


async def _deletion_facts(snapshot: Snapshot, scope: dict[str, Any]) -> dict[str, Any]:
    """Facts about a document that is not stored.

    If its last job completed it, no job deleted it: `rag documents delete` or `rag sources drop` did.
    """
    rows = await _fetch_rows(snapshot, LAST_JOB, scope)
    if not rows:
        return {}
    return {"deleted": True, "job": rows[0]["job"] if rows[0]["deleted"] else None}


async def _other_collections(snapshot: Snapshot, query: Query, uri: str, scope: dict[str, Any]) -> tuple[str, ...]:
    """The names of the other collections that have a document of that uri, which the caller may read."""
    collections = await _fetch_rows(snapshot, COLLECTIONS, scope)
    candidates = {
        "collections": [row["id"] for row in collections],
        "ids": [document_id(query.tenant, row["name"], uri) for row in collections],
    }
    return tuple(row["name"] for row in await _fetch_rows(snapshot, OTHER_COLLECTIONS, {**scope, **candidates}))


async def _fetch_rows(snapshot: Snapshot, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    async with snapshot.connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall()
