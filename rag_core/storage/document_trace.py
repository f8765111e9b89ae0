"""What became of one document on its way into the collection, and which of its chunks a query may see.

One that the asker may not read is told of as one that was never stored.
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
HOLDING = """
select c.name from unnest(%(collections)s::int[], %(ids)s::uuid[]) as wanted (collection, id)
join documents d on d.tenant = %(tenant)s and d.collection = wanted.collection and d.id = wanted.id and d.n_chunks > 0
  and (d.access = '{}' or d.access && %(groups)s::text[])
join collections c on c.tenant = d.tenant and c.id = d.collection
where d.collection <> %(collection_id)s order by c.name"""
CHUNKS = """
select c.id, c.document_id, c.ordinal, c.text, c.start_offset as start, c.end_offset as end, c.prefix, c.metadata
from chunks c where c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.document_id = %(id)s
order by c.ordinal"""
PASSING = """
select v.id from chunks v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.document_id = %(id)s and {filter}"""
TEXT = """
select text from document_texts
where tenant = %(tenant)s and collection = %(collection_id)s and document_id = %(id)s"""
SIZE = "select count(*) as chunks from chunks where tenant = %(tenant)s and collection = %(collection_id)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """`status` is empty where the collection holds no such document; then `deleted` says whether it once did.

    `job` wrote it last, or deleted it; None where no job did. `elsewhere` are other collections that have it.
    `passing` are the chunks that the query's filter lets through. `collection_chunks` is how many can be ranked at all.
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
    elsewhere: tuple[str, ...] = ()
    text: str = ""
    chunks: tuple[Chunk, ...] = ()
    passing: frozenset[UUID] = frozenset()
    collection_chunks: int = 0


async def whereabouts(snapshot: Snapshot, query: Query, uri: str) -> Whereabouts:
    about = {**snapshot.scope, "id": document_id(query.tenant, query.collection, uri)}
    found = await _rows(snapshot, DOCUMENT, about)
    known = await _stored(snapshot, query, about, found[0]) if found else await _gone(snapshot, about)
    return Whereabouts(
        uri=uri, collection=query.collection, elsewhere=await _elsewhere(snapshot, query, uri, about), **known
    )


async def _stored(snapshot: Snapshot, query: Query, about: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    condition, values = chunk_filter(query.filters, "v.document_id", "v.id")
    passing = await snapshot.connection.execute(SQL(PASSING).format(filter=condition), {**about, **values})
    texts = await _rows(snapshot, TEXT, about)
    return {
        **document,
        "groups": tuple(document["groups"]),
        "text": texts[0]["text"] if texts else "",
        "chunks": tuple(Chunk(**row) for row in await _rows(snapshot, CHUNKS, about)),
        "passing": frozenset([row[0] async for row in passing]),
        "collection_chunks": (await _rows(snapshot, SIZE, about))[0]["chunks"],
    }


async def _gone(snapshot: Snapshot, about: dict[str, Any]) -> dict[str, Any]:
    """What `rag documents delete` and `rag sources drop` took away, the last job had brought to its end."""
    found = await _rows(snapshot, LAST_JOB, about)
    if not found:
        return {}
    return {"deleted": True, "job": found[0]["job"] if found[0]["deleted"] else None}


async def _elsewhere(snapshot: Snapshot, query: Query, uri: str, about: dict[str, Any]) -> tuple[str, ...]:
    collections = await _rows(snapshot, COLLECTIONS, about)
    wanted = {
        "collections": [row["id"] for row in collections],
        "ids": [document_id(query.tenant, row["name"], uri) for row in collections],
    }
    return tuple(row["name"] for row in await _rows(snapshot, HOLDING, {**about, **wanted}))


async def _rows(snapshot: Snapshot, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    async with snapshot.connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall()
