"""What there is: collections, their sources, embedding spaces, and what is remembered of every document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row, dict_row

from rag_core.errors import NotFoundError, SourceError
from rag_core.storage.graph.writing import DROP as DROP_GRAPH
from rag_core.storage.graph.writing import remove_orphans
from rag_core.storage.lexical.writing import bury_orphans
from rag_core.storage.postgres import transaction
from rag_core.types import Entry, Space, StoredDocument, document_id

ENSURE_COLLECTION = """
insert into collections (tenant, name) values (%(tenant)s, %(name)s) on conflict (tenant, name) do nothing"""
COLLECTION = "select id, name, space from collections where tenant = %(tenant)s and name = %(name)s"
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
# A collection is searched in its new space only when every chunk has its vector there; then the old ones go.
MOVE_TO_SPACE = """
update collections set space = %(space)s where tenant = %(tenant)s and id = %(collection)s
  and (select count(*) from chunks k where k.tenant = %(tenant)s and k.collection = %(collection)s)
    = (select count(*) from vectors v
       where v.tenant = %(tenant)s and v.collection = %(collection)s and v.space = %(space)s)
returning id"""
LEAVE_SPACES = """
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
LISTED = """
update sources set listed_at = to_timestamp(%(listed_ns)s::numeric / 1000000000)
where tenant = %(tenant)s and collection = %(collection)s and id = any(%(sources)s::int[])"""
MANIFEST = """
select id, uri, size, modified_ns, changed_ns, etag, sha256, recipe, status, retryable, listed_ns, released
from documents where tenant = %(tenant)s and collection = %(collection)s and source = %(source)s"""
SOME_OF_MANIFEST = f"{MANIFEST} and id = any(%(ids)s::uuid[])"
# Cheap where nothing is wrong: only when the totals differ is every document counted.
TOTALS = """
select (select coalesce(sum(n_chunks), 0) from documents where tenant = %(tenant)s and collection = %(collection)s),
  (select count(*) from chunks where tenant = %(tenant)s and collection = %(collection)s),
  (select count(*) from vectors where tenant = %(tenant)s and collection = %(collection)s and space = %(space)s)"""
DAMAGED = """
select d.id from documents d
left join (select document_id, count(*) as n from chunks
  where tenant = %(tenant)s and collection = %(collection)s
    and (%(among)s::uuid[] is null or document_id = any(%(among)s)) group by 1) c on c.document_id = d.id
left join (select document_id, count(*) as n from vectors
  where tenant = %(tenant)s and collection = %(collection)s and space = %(space)s
    and (%(among)s::uuid[] is null or document_id = any(%(among)s)) group by 1) v on v.document_id = d.id
where d.tenant = %(tenant)s and d.collection = %(collection)s
  and (%(among)s::uuid[] is null or d.id = any(%(among)s))
  and (d.n_chunks <> coalesce(c.n, 0) or d.n_chunks <> coalesce(v.n, 0))"""
WEIGHTLESS = """
select d.id from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s and d.n_chunks > 0
  and (%(among)s::uuid[] is null or d.id = any(%(among)s))
  and not exists (select from lexical_documents l
    join lexical_segments s on s.tenant = l.tenant and s.collection = l.collection and s.id = l.segment_id
    where l.tenant = d.tenant and l.collection = d.collection and l.document_id = d.id and l.kind = 'splade'
      and not l.dead and l.n_chunks = d.n_chunks and s.analysis = %(splade)s)"""
DOCUMENTS = """
select d.id, d.uri, d.title, d.status, d.stage, d.reason, d.n_chunks as chunks, d.version, d.media_type, d.language,
  d.metadata, d.size, d.indexed_at, to_timestamp(d.modified_ns::numeric / 1000000000) as updated_at,
  c.name as collection
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
CHUNK_PLACES = """
select k.id, d.uri, k.start_offset as start, k.end_offset as end from chunks k
join documents d on d.tenant = k.tenant and d.collection = k.collection and d.id = k.document_id
join collections c on c.tenant = k.tenant and c.id = k.collection
where k.tenant = %(tenant)s and c.name = %(collection)s and k.id = any(%(ids)s::uuid[])"""
TEXT = "select text from document_texts where tenant = %(tenant)s and document_id = %(id)s"
CHUNK_COUNT = """
select coalesce(sum(d.n_chunks), 0)::int as n
from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
where d.tenant = %(tenant)s and c.name = %(collection)s"""
# As they are told of to others: without what only groups may read that the asker is not in.
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
SOME_CHUNKS = """
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
DISCARD_UNUSED = (
    """delete from sources s where s.tenant = %(tenant)s and s.collection = %(collection)s
       and s.id = any(%(sources)s::int[]) and s.listed_at is null and not exists (select from documents d
         where d.tenant = s.tenant and d.collection = s.collection and d.source = s.id)""",
    """delete from collections c where c.tenant = %(tenant)s and c.id = %(collection)s and c.space is null
       and not exists (select from sources s where s.tenant = c.tenant and s.collection = c.id)""",
)
# Its own row first: a merge of its segments holds that, and may end before the rest goes.
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
    # in the order of ids, as every statement that locks rows
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
    """`space` is None before the first sync."""

    id: int
    name: str
    space: int | None


@dataclass(frozen=True, slots=True)
class KnownSource:
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
        """NotFoundError if there is none of that name."""
        with self._transaction():
            found = self._collection(name)
        if found is None:
            raise NotFoundError(f"no collection {name!r}; `rag collections list` shows the existing ones")
        return found

    def ensure_collection(self, name: str) -> Collection:
        with self._transaction():
            self.connection.execute(ENSURE_COLLECTION, self._scope(name=name))
            found = self._collection(name)
        if found is None:
            raise NotFoundError(f"collection {name!r} was dropped meanwhile")
        return found

    def collections(self) -> list[dict[str, Any]]:
        return self._rows(COLLECTIONS)

    def drop_collection(self, name: str) -> None:
        """With all that is in it. NotFoundError if there is none of that name."""
        collection = self.collection(name)
        self._run(DROP_COLLECTION, collection=collection.id)

    def ensure_space(self, space: Space) -> int:
        values = self._scope(fingerprint=space.fingerprint, model=space.model, dimension=space.dimension)
        with self._transaction():
            self.connection.execute(ENSURE_SPACE, values)
            row = self.connection.execute(SPACE, values).fetchone()
        if row is None:
            raise NotFoundError(f"the embedding space of {space.model} was dropped meanwhile")
        return int(row[0])

    def move_to_space(self, collection: int, space: int) -> bool:
        """Searches the collection in that space from now on, if every chunk has a vector there."""
        scope = self._scope(collection=collection, space=space)
        with self._transaction():
            moved = self.connection.execute(MOVE_TO_SPACE, scope).fetchone() is not None
            if moved:
                self.connection.execute(LEAVE_SPACES, scope)
        return moved

    def sources(self, collection: str | None = None) -> list[KnownSource]:
        with self._transaction(), self.connection.cursor(row_factory=class_row(KnownSource)) as cursor:
            return cursor.execute(SOURCES, self._scope(collection=collection)).fetchall()

    def ensure_sources(self, collection: Collection, uris: Sequence[str]) -> list[int]:
        """All, or where one is refused none."""
        with self._transaction():
            return [self.ensure_source(collection, uri) for uri in uris]

    def ensure_source(self, collection: Collection, uri: str) -> int:
        """SourceError if it overlaps another source of the collection: then no document would know whose it is."""
        for known in self.sources(collection.name):
            if known.uri == uri:
                return known.id
            if _within(known.uri, uri) or _within(uri, known.uri):
                raise SourceError(f"source {uri} overlaps source {known.uri} of collection {collection.name!r}")
        with self._transaction():
            row = self.connection.execute(ADD_SOURCE, self._scope(collection=collection.id, uri=uri)).fetchone()
        return int(row[0]) if row else 0

    def discard_unused(self, collection: int, sources: Sequence[int]) -> None:
        """Forgets those of these sources that were never listed and hold nothing, and the collection if it has none.

        Whoever asks has claimed them: others may be new because a job has just begun with them.
        """
        self._run(DISCARD_UNUSED, collection=collection, sources=list(sources))

    def listed(self, collection: int, sources: Sequence[int], listed_ns: int) -> None:
        """Remembers that the sources were listed to their end, beginning at that time."""
        with self._transaction():
            scope = self._scope(collection=collection, sources=list(sources), listed_ns=listed_ns)
            self.connection.execute(LISTED, scope)

    def drop_source(self, collection: str, uri: str) -> None:
        """With its documents. NotFoundError if the collection has no such source."""
        known = {source.uri: source.id for source in self.sources(collection)}
        if uri not in known:
            raise NotFoundError(f"collection {collection!r} has no source {uri}; `rag sources list` shows those it has")
        scope = self._scope(collection=self.collection(collection).id)
        with self._transaction():
            self._run(DROP_SOURCE, **scope, source=known[uri])
            bury_orphans(self.connection, scope)
            remove_orphans(self.connection, scope)

    def manifest(self, collection: int, source: int) -> dict[str, StoredDocument]:
        """What is stored of the source, by uri."""
        with self._transaction():
            scope = self._scope(collection=collection, source=source)
            return {row[1]: _stored(row) for row in self.connection.execute(MANIFEST, scope, binary=True)}

    def some_of_manifest(self, collection: int, source: int, documents: Sequence[UUID]) -> dict[str, StoredDocument]:
        """What is stored of these documents of the source, by uri."""
        with self._transaction():
            scope = self._scope(collection=collection, source=source, ids=list(documents))
            rows = self.connection.execute(SOME_OF_MANIFEST.encode(), scope, binary=True)
            return {row[1]: _stored(row) for row in rows}

    def manifest_of(self, collection: str, uri: str) -> dict[str, StoredDocument]:
        """What is stored of the source of that uri; nothing where collection or source are not known yet."""
        known = {source.uri: source.id for source in self.sources(collection)}
        return self.manifest(self.collection(collection).id, known[uri]) if uri in known else {}

    def damaged(
        self, collection: int, space: int, splade: str = "", among: Sequence[UUID] | None = None
    ) -> frozenset[UUID]:
        """Documents, of all or `among` these, that have lost chunks, vectors in that space, or the weights of that
        SPLADE model, if it is one, behind the back of every job."""
        scope = self._scope(collection=collection, space=space, splade=splade, among=among)
        with self._transaction():
            suspected = among is not None or len(set(self.connection.execute(TOTALS, scope).fetchone() or (0,))) > 1
            statements = [DAMAGED] * suspected + [WEIGHTLESS] * bool(splade)
            return frozenset(row[0] for each in statements for row in self.connection.execute(each.encode(), scope))

    def documents(
        self, collection: str, status: str | None = None, after: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """In the order of their uri, from the first one behind `after` on."""
        return self._rows(DOCUMENTS, collection=collection, status=status, id=None, after=after, limit=limit)

    def document(self, collection: str, uri: str) -> dict[str, Any]:
        """NotFoundError if the collection has no such document."""
        id = document_id(self._tenant, collection, uri)
        found = self._rows(DOCUMENTS, collection=collection, status=None, id=id, after="", limit=1)
        if not found:
            raise NotFoundError(f"collection {collection!r} has no document {uri}")
        return found[0]

    def drop_documents(self, collection: str, documents: Sequence[UUID]) -> None:
        """With all that hangs on them. The next sync brings back what is still at its source."""
        scope = self._scope(collection=self.collection(collection).id)
        with self._transaction():
            self._run(DROP_DOCUMENTS, **scope, ids=list(documents))
            bury_orphans(self.connection, scope, documents)
            remove_orphans(self.connection, scope, documents)

    def release(self, collection: str, uri: str) -> str:
        """The next sync ingests exactly the bytes that were quarantined; what is told is why they were.

        NotFoundError if the collection has no such document in quarantine.
        """
        found = self._rows(RELEASE, collection=collection, id=document_id(self._tenant, collection, uri))
        if not found:
            raise NotFoundError(f"collection {collection!r} has no document {uri} in quarantine")
        return str(found[0]["reason"])

    def chunk_count(self, collection: str) -> int:
        return int(self._rows(CHUNK_COUNT, collection=collection)[0]["n"])

    def chunks(self, document: UUID) -> list[dict[str, Any]]:
        """In text order."""
        return self._rows(CHUNKS, id=document)

    def chunk_places(self, collection: str, chunks: Sequence[UUID]) -> list[dict[str, Any]]:
        """The `uri` of each chunk's document, and `start` and `end` there; those that are not there are left out."""
        return self._rows(CHUNK_PLACES, collection=collection, ids=list(chunks))

    def text(self, document: UUID) -> str:
        rows = self._rows(TEXT, id=document)
        return str(rows[0]["text"]) if rows else ""

    def readable_collections(self, groups: Sequence[str], after: str, limit: int) -> list[dict[str, Any]]:
        """In the order of their names, with what members of those groups may read in them."""
        return self._rows(READABLE_COLLECTIONS, groups=list(groups), after=after, limit=limit)

    def readable_documents(
        self, collection: str, groups: Sequence[str], status: str | None, after: UUID, limit: int
    ) -> list[dict[str, Any]]:
        """What members of those groups may read, in the order of ids. NotFoundError if there is no such collection."""
        known = self.collection(collection).id
        return self._rows(
            READABLE_DOCUMENTS, collection=known, groups=list(groups), status=status, after=after, limit=limit
        )

    def readable_document(self, id: UUID, groups: Sequence[str]) -> dict[str, Any]:
        """NotFoundError also where it is there, and nobody of those groups may read it."""
        found = self._rows(READABLE_DOCUMENT, id=id, groups=list(groups))
        if not found:
            raise NotFoundError(f"there is no document {id}")
        return found[0]

    def readable_span(self, chunk: UUID, groups: Sequence[str]) -> dict[str, Any]:
        """A chunk's place in its document, and the document's text. NotFoundError as for `readable_document`."""
        found = self._rows(READABLE_SPAN, chunk=chunk, groups=list(groups))
        if not found:
            raise NotFoundError(f"there is no chunk {chunk}")
        return found[0]

    def content(self, collection: int, document: UUID) -> str:
        """NotFoundError where no text of it is stored, as of one that failed."""
        found = self._rows(CONTENT, collection=collection, document=document)
        if not found:
            raise NotFoundError(f"no text of document {document} is stored")
        return str(found[0]["text"])

    def some_chunks(self, collection: int, document: UUID, after: int, limit: int) -> list[dict[str, Any]]:
        """In text order, from the first one behind the ordinal `after` on."""
        return self._rows(SOME_CHUNKS, collection=collection, document=document, after=after, limit=limit)

    def _collection(self, name: str) -> Collection | None:
        with self.connection.cursor(row_factory=class_row(Collection)) as cursor:
            return cursor.execute(COLLECTION, self._scope(name=name)).fetchone()

    def _rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        with self._transaction(), self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), self._scope(**values)).fetchall()

    def _run(self, statements: Sequence[str], **values: object) -> None:
        with self._transaction():
            for statement in statements:
                self.connection.execute(statement.encode(), self._scope(**values))

    def _scope(self, **values: object) -> Mapping[str, object]:
        return {"tenant": self._tenant, **values}

    def _transaction(self) -> Any:
        return transaction(self.connection, self._tenant)


def _within(uri: str, root: str) -> bool:
    return uri.startswith(root.rstrip("/") + "/")


def _stored(row: Sequence[Any]) -> StoredDocument:
    id, uri, size, modified_ns, changed_ns, etag, sha256, recipe, status, retryable, listed_ns, released = row
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
    )
