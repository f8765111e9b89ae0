"""The catalog: collections, their sources, their embedding spaces, and the stored state of every document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row, dict_row

from rag_core.errors import NotFoundError, SourceError
from rag_core.storage.audit import Change, record
from rag_core.storage.graph.writing import DROP as DROP_GRAPH
from rag_core.storage.graph.writing import remove_orphans
from rag_core.storage.lexical.writing import mark_orphans_dead
from rag_core.storage.missing_collection import COLLECTION_NAMES, missing_collection_error
from rag_core.storage.postgres import read_transaction, transaction
from rag_core.types import Entry, Space, StoredDocument, document_id

ENSURE_COLLECTION = """
insert into collections (tenant, name) values (%(tenant)s, %(name)s) on conflict (tenant, name) do nothing"""
COLLECTION = "select id, name, space from collections where tenant = %(tenant)s and name = %(name)s"
# The profile is that of the last completed job.
COLLECTION_PIPELINE = """
select s.fingerprint, (select j.profile from jobs j where j.tenant = c.tenant and j.collection = c.id
    and j.status = 'completed' order by j.run desc limit 1) as profile
from collections c join spaces s on s.tenant = c.tenant and s.id = c.space
where c.tenant = %(tenant)s and c.name = %(name)s"""
COLLECTIONS = """
select c.name, s.model, s.dimension,
  (select count(*) from sources o where o.tenant = c.tenant and o.collection = c.id) as sources,
  (select count(*) from documents d where d.tenant = c.tenant and d.collection = c.id and d.n_chunks > 0) as documents,
  (select count(*) from chunks k where k.tenant = c.tenant and k.collection = c.id) as chunks
from collections c left join spaces s on s.tenant = c.tenant and s.id = c.space
where c.tenant = %(tenant)s order by c.name"""
ENSURE_SPACE = """
insert into spaces (tenant, fingerprint, model, dimension)
values (%(tenant)s, %(fingerprint)s, %(model)s, %(dimension)s)
on conflict (tenant, fingerprint) do nothing"""
SPACE = "select id from spaces where tenant = %(tenant)s and fingerprint = %(fingerprint)s"
# One index lookup per key. `distinct` would read every value.
METADATA_KEYS = """
with recursive keys (key) as (
  (select key from document_values where tenant = %(tenant)s and collection = %(collection)s order by key limit 1)
  union all
  select (select v.key from document_values v where v.tenant = %(tenant)s and v.collection = %(collection)s
    and v.key > keys.key order by v.key limit 1) from keys where keys.key is not null)
select key from keys where key is not null"""
# Succeeds only if every chunk has a vector in the new space. DELETE_OTHER_VECTORS then deletes those of other spaces.
MOVE_TO_SPACE = """
update collections set space = %(space)s where tenant = %(tenant)s and id = %(collection)s
  and (select count(*) from chunks k where k.tenant = %(tenant)s and k.collection = %(collection)s)
    = (select count(*) from vectors v
       where v.tenant = %(tenant)s and v.collection = %(collection)s and v.space = %(space)s)
returning id"""
DELETE_OTHER_VECTORS = """
delete from vectors where tenant = %(tenant)s and collection = %(collection)s and space <> %(space)s"""
SOURCES = """
select s.id, s.uri, s.listed_at, c.name as collection,
  (select count(*) from documents d
   where d.tenant = s.tenant and d.collection = s.collection and d.source = s.id) as documents
from sources s join collections c on c.tenant = s.tenant and c.id = s.collection
where s.tenant = %(tenant)s and (%(collection)s::text is null or c.name = %(collection)s) order by c.name, s.uri"""
ADD_SOURCE = """
insert into sources (tenant, collection, uri) values (%(tenant)s, %(collection)s, %(uri)s)
on conflict (tenant, collection, md5(uri)) do update set uri = excluded.uri returning id"""
RECORD_LISTING = """
update sources set listed_at = to_timestamp(%(listed_ns)s::numeric / 1000000000)
where tenant = %(tenant)s and collection = %(collection)s and id = any(%(sources)s::int[])"""
MANIFEST = """
select id, uri, size, modified_ns, changed_ns, etag, sha256, recipe, status, retryable, listed_ns, released, access,
  (select jsonb_object_agg(key, metadata -> key) from unnest(%(keys)s::text[]) key where metadata ? key)
from documents where tenant = %(tenant)s and collection = %(collection)s and source = %(source)s"""
MANIFEST_OF_DOCUMENTS = f"{MANIFEST} and id = any(%(ids)s::uuid[])"
# A cheap check: the chunks and vectors of each document are counted only if these totals differ.
TOTALS = """
select (select coalesce(sum(n_chunks), 0) from documents where tenant = %(tenant)s and collection = %(collection)s),
  (select count(*) from chunks where tenant = %(tenant)s and collection = %(collection)s),
  (select count(*) from vectors where tenant = %(tenant)s and collection = %(collection)s and space = %(space)s)"""
DOCUMENTS_WITH_LOST_ROWS = """
select d.id from documents d
left join (select document_id, count(*) as n from chunks
  where tenant = %(tenant)s and collection = %(collection)s
    and (%(ids)s::uuid[] is null or document_id = any(%(ids)s)) group by 1) c on c.document_id = d.id
left join (select document_id, count(*) as n from vectors
  where tenant = %(tenant)s and collection = %(collection)s and space = %(space)s
    and (%(ids)s::uuid[] is null or document_id = any(%(ids)s)) group by 1) v on v.document_id = d.id
where d.tenant = %(tenant)s and d.collection = %(collection)s
  and (%(ids)s::uuid[] is null or d.id = any(%(ids)s))
  and (d.n_chunks <> coalesce(c.n, 0) or d.n_chunks <> coalesce(v.n, 0))"""
DOCUMENTS_WITH_LOST_WEIGHTS = """
select d.id from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s and d.n_chunks > 0
  and (%(ids)s::uuid[] is null or d.id = any(%(ids)s))
  and not exists (select from lexical_documents l
    join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
    where l.tenant = d.tenant and l.collection = d.collection and l.document_id = d.id and l.kind = 'splade'
      and not l.dead and l.n_chunks = d.n_chunks and s.analysis = %(splade)s)"""
DOCUMENTS = """
select d.id, d.uri, d.title, d.status, d.stage, d.reason, d.n_chunks as chunks, d.version, d.media_type, d.language,
  d.metadata, d.size, d.indexed_at, to_timestamp(d.modified_ns::numeric / 1000000000) as updated_at,
  d.access as groups, c.name as collection
from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
where d.tenant = %(tenant)s and c.name = %(collection)s and (%(status)s::text is null or d.status = %(status)s)
  and (%(id)s::uuid is null or d.id = %(id)s) and d.uri > %(after)s order by d.uri limit %(limit)s"""
RELEASE = """
update documents d set released = d.sha256 from collections c
where d.tenant = %(tenant)s and c.tenant = d.tenant and c.id = d.collection and c.name = %(collection)s
  and d.id = %(id)s and d.status = 'quarantined' returning d.reason"""
CHUNKS = """
select k.id, k.ordinal, k.start_offset as start, k.end_offset as end, k.prefix, k.text, k.metadata
from chunks k where k.tenant = %(tenant)s and k.document_id = %(id)s order by k.ordinal"""
CHUNK_SPANS = """
select k.id, d.uri, k.start_offset as start, k.end_offset as end from chunks k
join documents d on d.tenant = k.tenant and d.collection = k.collection and d.id = k.document_id
join collections c on c.tenant = k.tenant and c.id = k.collection
where k.tenant = %(tenant)s and c.name = %(collection)s and k.id = any(%(ids)s::uuid[])"""
TEXT = "select text from document_texts where tenant = %(tenant)s and document_id = %(id)s"
CHUNK_COUNT = """
select coalesce(sum(d.n_chunks), 0)::int as n
from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
where d.tenant = %(tenant)s and c.name = %(collection)s"""
# The READABLE statements omit documents whose `access` lists groups, but none of the caller's.
READABLE_COLLECTIONS = """
select c.name, s.model, s.dimension, coalesce(d.documents, 0) as documents, coalesce(d.chunks, 0)::int as chunks
from collections c left join spaces s on s.tenant = c.tenant and s.id = c.space
left join lateral (select count(*) filter (where n_chunks > 0) as documents, sum(n_chunks) as chunks from documents
  where tenant = c.tenant and collection = c.id and (access = '{}' or access && %(groups)s::text[])) d on true
where c.tenant = %(tenant)s and c.name > %(after)s order by c.name limit %(limit)s"""
READABLE_DOCUMENTS = """
select d.id, d.uri, d.title, d.status, d.n_chunks as chunks, d.version, d.metadata,
  to_timestamp(nullif(d.modified_ns, 0)::numeric / 1000000000) as updated_at
from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s and d.id > %(after)s
  and (%(status)s::text is null or d.status = %(status)s) and (d.access = '{}' or d.access && %(groups)s::text[])
order by d.id limit %(limit)s"""
READABLE_DOCUMENT = """
select d.id, d.uri, d.title, d.status, d.n_chunks as chunks, d.version, d.metadata,
  to_timestamp(nullif(d.modified_ns, 0)::numeric / 1000000000) as updated_at,
  c.name as collection, d.stage, d.reason, d.collection as collection_id, d.source
from collections c join documents d on d.tenant = c.tenant and d.collection = c.id and d.id = %(id)s
where c.tenant = %(tenant)s and (d.access = '{}' or d.access && %(groups)s::text[])"""
CONTENT = """
select text from document_texts
where tenant = %(tenant)s and collection = %(collection)s and document_id = %(document)s"""
CHUNK_PAGE = """
select id, ordinal, start_offset as start, end_offset as end, prefix, text, metadata from chunks
where tenant = %(tenant)s and collection = %(collection)s and document_id = %(document)s and ordinal > %(after)s
order by ordinal limit %(limit)s"""
READABLE_SPAN = """
select k.id as chunk_id, k.document_id, c.name as collection, d.title, d.language, k.metadata,
  case when starts_with(d.uri, 'push:') then coalesce(d.metadata ->> 'url', d.uri) else d.uri end as url,
  to_timestamp(nullif(d.modified_ns, 0)::numeric / 1000000000) as updated_at, k.start_offset as start,
  k.end_offset as end, t.text
from collections c join chunks k on k.tenant = c.tenant and k.collection = c.id and k.id = %(chunk)s
join documents d on d.tenant = k.tenant and d.collection = k.collection and d.id = k.document_id
join document_texts t on t.tenant = d.tenant and t.collection = d.collection and t.document_id = d.id
where c.tenant = %(tenant)s and (d.access = '{}' or d.access && %(groups)s::text[])"""
DELETE_UNUSED = (
    """delete from sources s where s.tenant = %(tenant)s and s.collection = %(collection)s
       and s.id = any(%(sources)s::int[]) and s.listed_at is null and not exists (select from documents d
         where d.tenant = s.tenant and d.collection = s.collection and d.source = s.id)""",
    """delete from collections c where c.tenant = %(tenant)s and c.id = %(collection)s and c.space is null
       and not exists (select from sources s where s.tenant = c.tenant and s.collection = c.id)""",
)
# The collection's row is deleted first. A running merge of its segments holds a lock on that row, so the other rows are
# deleted after the merge has ended.
DROP_COLLECTION = (
    "delete from collections where tenant = %(tenant)s and id = %(collection)s",
    "delete from lexical_postings where tenant = %(tenant)s and collection = %(collection)s",
    "delete from lexical_documents where tenant = %(tenant)s and collection = %(collection)s",
    "delete from lexical_segments where tenant = %(tenant)s and collection = %(collection)s",
    *DROP_GRAPH,
    "delete from vectors where tenant = %(tenant)s and collection = %(collection)s",
    "delete from chunks where tenant = %(tenant)s and collection = %(collection)s",
    "delete from document_values where tenant = %(tenant)s and collection = %(collection)s",
    "delete from document_texts where tenant = %(tenant)s and collection = %(collection)s",
    "delete from documents where tenant = %(tenant)s and collection = %(collection)s",
    "delete from sources where tenant = %(tenant)s and collection = %(collection)s",
)
DROP_DOCUMENTS = (
    # locks rows in the order of ids, as all statements do: otherwise two of them could deadlock
    """select from documents where tenant = %(tenant)s and collection = %(collection)s and id = any(%(ids)s::uuid[])
       order by id for update""",
    """delete from vectors
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
    """delete from chunks
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
    """delete from document_values
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
    """delete from document_texts
       where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])""",
    "delete from documents where tenant = %(tenant)s and collection = %(collection)s and id = any(%(ids)s::uuid[])",
)
DROP_SOURCE = (
    """delete from vectors v using documents d where v.tenant = %(tenant)s and v.collection = %(collection)s
       and d.tenant = v.tenant and d.collection = v.collection and d.id = v.document_id and d.source = %(source)s""",
    """delete from chunks k using documents d where k.tenant = %(tenant)s and k.collection = %(collection)s
       and d.tenant = k.tenant and d.collection = k.collection and d.id = k.document_id and d.source = %(source)s""",
    """delete from document_values f using documents d where f.tenant = %(tenant)s and f.collection = %(collection)s
       and d.tenant = f.tenant and d.collection = f.collection and d.id = f.document_id and d.source = %(source)s""",
    """delete from document_texts t using documents d where t.tenant = %(tenant)s and t.collection = %(collection)s
       and d.tenant = t.tenant and d.collection = t.collection and d.id = t.document_id and d.source = %(source)s""",
    "delete from documents where tenant = %(tenant)s and collection = %(collection)s and source = %(source)s",
    "delete from sources where tenant = %(tenant)s and collection = %(collection)s and id = %(source)s",
)


@dataclass(frozen=True, slots=True)
class Collection:
    """A stored collection. `space` is the embedding space that is searched, or None before the first sync."""

    id: int
    name: str
    space: int | None


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source of a collection. `documents` is their number; `listed_at` is None before the first complete listing."""

    id: int
    uri: str
    listed_at: datetime | None
    collection: str
    documents: int


class Catalog:
    """One tenant's catalog, over one connection."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self.connection = connection
        self._tenant = tenant

    def collection(self, name: str) -> Collection:
        """The collection of that name. Raises NotFoundError if there is none."""
        with self._transaction():
            collection = self._find_collection(name)
        if collection is None:
            raise missing_collection_error(name, [row["name"] for row in self._rows(COLLECTION_NAMES)])
        return collection

    def find_pipeline(self, name: str) -> tuple[str, str]:
        """The fingerprint of the collection's embedding space and its last profile; empty if it has no documents."""
        rows = self._rows(COLLECTION_PIPELINE, name=name)
        return (rows[0]["fingerprint"], rows[0]["profile"] or "") if rows else ("", "")

    def ensure_collection(self, name: str) -> Collection:
        with self._transaction():
            self.connection.execute(ENSURE_COLLECTION, self._scope(name=name))
            collection = self._find_collection(name)
        if collection is None:
            raise NotFoundError(f"collection {name!r} was dropped meanwhile")
        return collection

    def collections(self) -> list[dict[str, Any]]:
        return self._rows(COLLECTIONS)

    def metadata_keys(self, collection: str) -> list[str]:
        """The metadata keys of the collection's documents, sorted. Raises NotFoundError if it does not exist."""
        return [row["key"] for row in self._rows(METADATA_KEYS, collection=self.collection(collection).id)]

    def drop_collection(self, name: str) -> None:
        """Deletes a collection and all its contents. Raises NotFoundError if there is none of that name."""
        collection = self.collection(name)
        with self._transaction():
            self._execute_all(DROP_COLLECTION, collection=collection.id)
            self._record(Change(operation="collections.drop", kind="collection", ids=[name]))

    def ensure_space(self, space: Space) -> int:
        values = self._scope(fingerprint=space.fingerprint, model=space.model, dimension=space.dimension)
        with self._transaction():
            self.connection.execute(ENSURE_SPACE, values)
            row = self.connection.execute(SPACE, values).fetchone()
        if row is None:
            raise NotFoundError(f"the embedding space of {space.model} was dropped meanwhile")
        return int(row[0])

    def move_to_space(self, collection: int, space: int) -> bool:
        """Makes searches use the vectors of that space. Returns False, and changes nothing, if a chunk lacks one."""
        scope = self._scope(collection=collection, space=space)
        with self._transaction():
            moved = self.connection.execute(MOVE_TO_SPACE, scope).fetchone() is not None
            if moved:
                self.connection.execute(DELETE_OTHER_VECTORS, scope)
        return moved

    def sources(self, collection: str | None = None) -> list[StoredSource]:
        """The sources of one collection, or of all collections, in the order of collection name and uri."""
        with self._transaction(), self.connection.cursor(row_factory=class_row(StoredSource)) as cursor:
            return cursor.execute(SOURCES, self._scope(collection=collection)).fetchall()

    def ensure_sources(self, collection: Collection, uris: Sequence[str]) -> list[int]:
        """Adds the missing sources in one transaction, and returns the ids of all.

        Raises SourceError, and adds none, if one of them overlaps another source.
        """
        with self._transaction():
            return [self.ensure_source(collection, uri) for uri in uris]

    def ensure_source(self, collection: Collection, uri: str) -> int:
        """Adds the source if it is missing, and returns its id.

        Raises SourceError if it overlaps another source of the collection, because a document must belong to only one.
        """
        for source in self.sources(collection.name):
            if source.uri == uri:
                return source.id
            if _is_uri_inside(source.uri, uri) or _is_uri_inside(uri, source.uri):
                raise SourceError(
                    f"source {uri} overlaps source {source.uri} of collection {collection.name!r}; sync the outer one, "
                    "or choose another collection with --collection"
                )
        with self._transaction():
            row = self.connection.execute(ADD_SOURCE, self._scope(collection=collection.id, uri=uri)).fetchone()
        return int(row[0]) if row else 0

    def delete_unused_sources(self, collection: int, sources: Sequence[int]) -> None:
        """Deletes those of the sources that were never listed and have no documents; then an unused collection.

        The caller must have claimed the sources, so that no other job is using them.
        """
        self._execute_all(DELETE_UNUSED, collection=collection, sources=list(sources))

    def record_listing(self, collection: int, sources: Sequence[int], listed_ns: int) -> None:
        """Stores the time at which a complete listing of the sources began, in nanoseconds since 1970."""
        with self._transaction():
            scope = self._scope(collection=collection, sources=list(sources), listed_ns=listed_ns)
            self.connection.execute(RECORD_LISTING, scope)

    def drop_source(self, collection: str, uri: str) -> None:
        """Deletes a source and its documents. Raises NotFoundError if the collection has no such source."""
        ids = {source.uri: source.id for source in self.sources(collection)}
        if uri not in ids:
            raise NotFoundError(f"collection {collection!r} has no source {uri}; `rag sources list` shows its sources")
        scope = self._scope(collection=self.collection(collection).id)
        with self._transaction():
            self._execute_all(DROP_SOURCE, **scope, source=ids[uri])
            mark_orphans_dead(self.connection, scope)
            remove_orphans(self.connection, scope)
            detail = {"collection": collection}
            self._record(Change(operation="sources.drop", kind="source", ids=[str(ids[uri])], detail=detail))

    def manifest(self, collection: int, source: int, keys: Sequence[str] = ()) -> dict[str, StoredDocument]:
        """The stored documents of a source, by uri, with their metadata of these keys."""
        with self._transaction():
            scope = self._scope(collection=collection, source=source, keys=list(keys))
            return {row[1]: _document_from_row(row) for row in self.connection.execute(MANIFEST, scope, binary=True)}

    def manifest_of_documents(
        self, collection: int, source: int, documents: Sequence[UUID], keys: Sequence[str] = ()
    ) -> dict[str, StoredDocument]:
        """Those of the documents that are stored for the source, as in `manifest`."""
        with self._transaction():
            scope = self._scope(collection=collection, source=source, ids=list(documents), keys=list(keys))
            rows = self.connection.execute(MANIFEST_OF_DOCUMENTS.encode(), scope, binary=True)
            return {row[1]: _document_from_row(row) for row in rows}

    def manifest_by_uri(self, collection: str, uri: str, keys: Sequence[str] = ()) -> dict[str, StoredDocument]:
        """The `manifest` of the source with that uri; empty if there is no such collection or source."""
        ids = {source.uri: source.id for source in self.sources(collection)}
        return self.manifest(self.collection(collection).id, ids[uri], keys) if uri in ids else {}

    def find_damaged_documents(
        self, collection: int, space: int, splade: str = "", documents: Sequence[UUID] | None = None
    ) -> frozenset[UUID]:
        """The ids of documents that lack some of their chunks, vectors in `space` or SPLADE weights.

        Jobs do not cause such damage. `splade` is the fingerprint of the SPLADE model; if it is empty, weights are not
        checked. `documents` limits the check to these ids.
        """
        scope = self._scope(collection=collection, space=space, splade=splade, ids=documents)
        with self._transaction():
            statements = [DOCUMENTS_WITH_LOST_WEIGHTS] if splade else []
            if documents is not None or len(set(self.connection.execute(TOTALS, scope).fetchone() or (0,))) > 1:
                statements.append(DOCUMENTS_WITH_LOST_ROWS)
            return frozenset(row[0] for query in statements for row in self.connection.execute(query.encode(), scope))

    def documents(
        self, collection: str, status: str | None = None, after: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """A page of documents in the order of their uris, beginning after the uri `after`."""
        return self._rows(DOCUMENTS, collection=collection, status=status, id=None, after=after, limit=limit)

    def document(self, collection: str, uri: str) -> dict[str, Any]:
        """The document of that uri. Raises NotFoundError if the collection has none."""
        id = document_id(self._tenant, collection, uri)
        rows = self._rows(DOCUMENTS, collection=collection, status=None, id=id, after="", limit=1)
        if not rows:
            raise NotFoundError(
                f"collection {collection!r} has no document {uri}; `rag documents list` shows its documents"
            )
        return rows[0]

    def drop_documents(self, collection: str, documents: Sequence[UUID]) -> None:
        """Deletes documents and all rows that belong to them. The next sync adds those that their source still has."""
        scope = self._scope(collection=self.collection(collection).id)
        with self._transaction():
            self._execute_all(DROP_DOCUMENTS, **scope, ids=list(documents))
            mark_orphans_dead(self.connection, scope, documents)
            remove_orphans(self.connection, scope, documents)
            detail = {"collection": collection}
            self._record(Change(operation="documents.delete", kind="document", ids=documents, detail=detail))

    def release(self, collection: str, uri: str) -> str:
        """Releases a document from quarantine: the next sync ingests it if its bytes are still the same.

        Returns the reason for which it was quarantined. Raises NotFoundError if no such document is in quarantine.
        """
        id, detail = document_id(self._tenant, collection, uri), {"collection": collection}
        with self._transaction():
            rows = self._rows(RELEASE, collection=collection, id=id)
            if rows:
                self._record(Change(operation="documents.release", kind="document", ids=[id], detail=detail))
        if not rows:
            raise NotFoundError(
                f"collection {collection!r} has no document {uri} in quarantine; "
                "`rag documents list --status quarantined` shows those"
            )
        return str(rows[0]["reason"])

    def count_chunks(self, collection: str) -> int:
        return int(self._rows(CHUNK_COUNT, collection=collection)[0]["n"])

    def chunks(self, document: UUID) -> list[dict[str, Any]]:
        """The chunks of a document, in text order."""
        return self._rows(CHUNKS, id=document)

    def chunk_spans(self, collection: str, chunks: Sequence[UUID]) -> list[dict[str, Any]]:
        """The `uri` of each chunk's document, and `start` and `end` in its text. Missing chunks are left out."""
        return self._rows(CHUNK_SPANS, collection=collection, ids=list(chunks))

    def text(self, document: UUID) -> str:
        """The text of a document, or an empty string if none is stored."""
        rows = self._rows(TEXT, id=document)
        return str(rows[0]["text"]) if rows else ""

    def readable_collections(self, groups: Sequence[str], after: str, limit: int) -> list[dict[str, Any]]:
        """A page of collections in the order of their names. Only documents that `groups` may read are counted."""
        return self._readable_rows(READABLE_COLLECTIONS, groups, after=after, limit=limit)

    def readable_documents(
        self, collection: str, groups: Sequence[str], status: str | None, after: UUID, limit: int
    ) -> list[dict[str, Any]]:
        """A page of the documents that members of `groups` may read, in the order of their ids.

        Raises NotFoundError if there is no such collection.
        """
        id = self.collection(collection).id
        return self._readable_rows(READABLE_DOCUMENTS, groups, collection=id, status=status, after=after, limit=limit)

    def readable_document(self, id: UUID, groups: Sequence[str]) -> dict[str, Any]:
        """A document. Raises NotFoundError if there is none, or if members of `groups` may not read it."""
        rows = self._readable_rows(READABLE_DOCUMENT, groups, id=id)
        if not rows:
            raise NotFoundError(f"there is no document {id}; /v1/documents lists the readable ones")
        return rows[0]

    def readable_span(self, chunk: UUID, groups: Sequence[str]) -> dict[str, Any]:
        """A chunk's position in its document, and the document's text.

        Raises NotFoundError if there is no such chunk, or if members of `groups` may not read its document.
        """
        rows = self._readable_rows(READABLE_SPAN, groups, chunk=chunk)
        if not rows:
            raise NotFoundError(f"there is no chunk {chunk}; ids are those of search results and citations")
        return rows[0]

    def content(self, collection: int, document: UUID, groups: Sequence[str]) -> str:
        """The text of a document. Raises NotFoundError if none is stored, for example because the document failed."""
        rows = self._readable_rows(CONTENT, groups, collection=collection, document=document)
        if not rows:
            raise NotFoundError(f"no text of document {document} is stored")
        return str(rows[0]["text"])

    def chunk_page(
        self, collection: int, document: UUID, groups: Sequence[str], after: int, limit: int
    ) -> list[dict[str, Any]]:
        """A page of a document's chunks in text order, beginning after the ordinal `after`."""
        return self._readable_rows(
            CHUNK_PAGE, groups, collection=collection, document=document, after=after, limit=limit
        )

    def _find_collection(self, name: str) -> Collection | None:
        with self.connection.cursor(row_factory=class_row(Collection)) as cursor:
            return cursor.execute(COLLECTION, self._scope(name=name)).fetchone()

    def _rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        with self._transaction(), self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), self._scope(**values)).fetchall()

    def _readable_rows(self, statement: str, groups: Sequence[str], **values: object) -> list[dict[str, Any]]:
        with (
            read_transaction(self.connection, self._tenant, groups),
            self.connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement.encode(), self._scope(**values, groups=list(groups))).fetchall()

    def _execute_all(self, statements: Sequence[str], **values: object) -> None:
        with self._transaction():
            for statement in statements:
                self.connection.execute(statement.encode(), self._scope(**values))

    def _record(self, change: Change) -> None:
        record(self.connection, self._tenant, change)

    def _scope(self, **values: object) -> Mapping[str, object]:
        return {"tenant": self._tenant, **values}

    def _transaction(self) -> Any:
        return transaction(self.connection, self._tenant)


def _is_uri_inside(uri: str, root: str) -> bool:
    return uri.startswith(root.rstrip("/") + "/")


def _document_from_row(row: Sequence[Any]) -> StoredDocument:
    (id, uri, size, modified_ns, changed_ns, etag, sha256, recipe, status, retryable, listed_ns, released, access,
     metadata) = row  # fmt: skip
    entry = Entry(uri=uri, size=size, modified_ns=modified_ns, changed_ns=changed_ns, etag=etag)
    return StoredDocument(
        id=id,
        entry=entry,
        sha256=bytes(sha256),
        recipe=recipe,
        status=status,
        retryable=retryable,
        listed_ns=listed_ns,
        released=bytes(released),
        access=tuple(access),
        metadata=metadata or {},
    )
