"""Whole documents into the corpus: a batch a transaction, fenced by run, idempotent.

`COPY` into a table with row-level security is refused, so rows are copied into temporary tables and inserted from
there. Unchanged chunks keep their row and their vector.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import Connection
from psycopg.types.json import Jsonb

from rag_core.errors import DocumentError, StoreError
from rag_core.storage.graph import writing as graph
from rag_core.storage.ledger import ADD_EVENT, WRITE_AS, fenced
from rag_core.storage.lexical import writing as lexical
from rag_core.storage.parts import dumped, joined, loaded
from rag_core.storage.postgres import Postgres, transaction, while_away
from rag_core.types import Draft, Entry, Failure, Matrix, Value, text_hash

T = TypeVar("T")

STAGE = """
create temp table if not exists staged_documents (
  id uuid, source int, uri text, status text, stage text, reason text, retryable boolean, size bigint,
  modified_ns bigint, changed_ns bigint, etag text, sha256 bytea, recipe text, title text, media_type text,
  language text, metadata jsonb, n_chunks int, embedded int, seconds jsonb, text text,
  removed int not null default 0) on commit delete rows;
create temp table if not exists staged_values (
  document_id uuid, key text, text_value text, number_value double precision) on commit delete rows;
create temp table if not exists staged_chunks (
  id uuid, document_id uuid, ordinal int, start_offset int, end_offset int, page int, prefix text, text text,
  metadata jsonb, content_hash bytea, embedding halfvec) on commit delete rows"""
DOCUMENT_TYPES = (
    *("uuid", "int4", "text", "text", "text", "text", "bool", "int8", "int8", "int8", "text", "bytea"),
    *("text", "text", "text", "text", "jsonb", "int4", "int4", "jsonb", "text"),
)
COPY_DOCUMENTS = """
copy staged_documents (id, source, uri, status, stage, reason, retryable, size, modified_ns, changed_ns, etag,
  sha256, recipe, title, media_type, language, metadata, n_chunks, embedded, seconds, text)
from stdin (format binary)"""
VALUE_TYPES = ["uuid", "text", "text", "float8"]
COPY_VALUES = "copy staged_values from stdin (format binary)"
CHUNK_TYPES = ["uuid", "uuid", "int4", "int4", "int4", "int4", "text", "text", "jsonb", "bytea", "halfvec"]
COPY_CHUNKS = "copy staged_chunks from stdin (format binary)"

# Arrays of ids, upserts, and nothing to replace where all is new: the planner has no statistics of a collection that is
# being loaded, takes it for empty, and joins would read all of it for every batch.
# Before anything else, and in the order of ids: two batches with documents in common wait for each other in turn.
LOCK_DOCUMENTS = """
select from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s
  and d.id = any(array(select id from staged_documents)) order by d.id for no key update"""
# In the order of ids, as every statement that locks rows. A row that a newer run wrote stays as it is. What fails for
# the moment only keeps the version that is searched; what fails for good is no longer what the source says.
ACCEPT = """
insert into documents as d (tenant, collection, id, source, uri, version, status, stage, reason, retryable, size,
  modified_ns, changed_ns, etag, listed_ns, sha256, recipe, title, media_type, language, metadata, n_chunks)
select %(tenant)s, %(collection)s, id, source, uri, %(run)s, status, stage, reason, retryable, size, modified_ns,
  changed_ns, etag, %(listed_ns)s, sha256, recipe, title, media_type, language, metadata, n_chunks
from staged_documents where status <> 'same' order by id
on conflict (tenant, collection, id) do update set
  version = excluded.version, status = excluded.status, stage = excluded.stage, reason = excluded.reason,
  retryable = excluded.retryable, size = excluded.size, modified_ns = excluded.modified_ns,
  changed_ns = excluded.changed_ns, etag = excluded.etag, listed_ns = excluded.listed_ns, source = excluded.source,
  sha256 = excluded.sha256, recipe = excluded.recipe, indexed_at = now(),
  title = case when excluded.retryable then d.title else excluded.title end,
  media_type = case when excluded.retryable then d.media_type else excluded.media_type end,
  language = case when excluded.retryable then d.language else excluded.language end,
  metadata = case when excluded.retryable then d.metadata else excluded.metadata end,
  n_chunks = case when excluded.retryable then d.n_chunks else excluded.n_chunks end
where d.version < excluded.version returning d.id, d.xmax <> 0 as stored"""
TOUCH = """
update documents d set version = %(run)s, size = s.size, modified_ns = s.modified_ns, changed_ns = s.changed_ns,
  etag = s.etag, listed_ns = %(listed_ns)s
from staged_documents s where s.status = 'same' and d.tenant = %(tenant)s and d.collection = %(collection)s
  and d.id = any(array(select id from staged_documents where status = 'same')) and d.id = s.id
  and d.version < %(run)s returning d.id, true as stored"""
LEAVE_OUT = "delete from staged_documents where id <> all(%(accepted)s::uuid[])"
REMOVE_CHUNKS = """
with gone as (
  delete from chunks c using staged_documents s
  where c.tenant = %(tenant)s and c.collection = %(collection)s
    and c.document_id = any(array(select id from staged_documents)) and c.document_id = s.id and s.status <> 'same'
    and not s.retryable and not exists (select from staged_chunks n where n.id = c.id) returning c.id, c.document_id
), vectorless as (
  delete from vectors v
  where v.tenant = %(tenant)s and v.collection = %(collection)s and v.chunk_id = any(array(select id from gone))
    and v.document_id = any(array(select document_id from gone))
)
update staged_documents s set removed = g.n
from (select document_id, count(*) as n from gone group by document_id) g where s.id = g.document_id"""
ADD_CHUNKS = """
insert into chunks as c (tenant, collection, id, document_id, ordinal, start_offset, end_offset, page, prefix, text,
  metadata, content_hash)
select %(tenant)s, %(collection)s, id, document_id, ordinal, start_offset, end_offset, page, prefix, text, metadata,
  content_hash
from staged_chunks on conflict (tenant, collection, id) do update set
  ordinal = excluded.ordinal, start_offset = excluded.start_offset, end_offset = excluded.end_offset,
  page = excluded.page, prefix = excluded.prefix, metadata = excluded.metadata, content_hash = excluded.content_hash
where (c.ordinal, c.start_offset, c.end_offset, c.page, c.prefix, c.metadata) is distinct from (excluded.ordinal,
  excluded.start_offset, excluded.end_offset, excluded.page, excluded.prefix, excluded.metadata)"""
ADD_VECTORS = """
insert into vectors as v (tenant, collection, space, chunk_id, document_id, content_hash, embedding)
select %(tenant)s, %(collection)s, %(space)s, id, document_id, content_hash, embedding from staged_chunks
on conflict (tenant, collection, space, chunk_id) do update
set content_hash = excluded.content_hash, embedding = excluded.embedding
where v.content_hash <> excluded.content_hash"""
REPLACE_VALUES = """
delete from document_values v using staged_documents s
where v.tenant = %(tenant)s and v.collection = %(collection)s
  and v.document_id = any(array(select id from staged_documents)) and v.document_id = s.id
  and s.status <> 'same' and not s.retryable"""
ADD_VALUES = """
insert into document_values (tenant, collection, document_id, key, text_value, number_value)
select %(tenant)s, %(collection)s, v.document_id, v.key, v.text_value, v.number_value
from staged_values v join staged_documents s on s.id = v.document_id where s.status <> 'same'"""
# Of a document whose bytes are the stored ones only the time is staged: it was touched.
TOUCH_VALUES = """
update document_values v set text_value = n.text_value
from staged_values n join staged_documents s on s.id = n.document_id and s.status = 'same'
where v.tenant = %(tenant)s and v.collection = %(collection)s
  and v.document_id = any(array(select id from staged_documents where status = 'same'))
  and v.document_id = n.document_id and v.key = n.key"""
REMOVE_TEXTS = """
delete from document_texts
where tenant = %(tenant)s and collection = %(collection)s and document_id = any(%(ids)s::uuid[])"""
ADD_TEXTS = """
insert into document_texts as t (tenant, collection, document_id, text)
select %(tenant)s, %(collection)s, id, text from staged_documents where status = 'completed'
on conflict (tenant, collection, document_id) do update set text = excluded.text where t.text <> excluded.text"""
FINISH_ITEMS = """
update job_items i set status = s.status, stage = s.stage, reason = s.reason, retryable = s.retryable,
  chunks = s.n_chunks, embedded = s.embedded, removed = s.removed, seconds = s.seconds, finished_at = clock_timestamp()
from staged_documents s where i.tenant = %(tenant)s and i.job_id = %(job)s
  and i.document_id = any(array(select id from staged_documents)) and i.document_id = s.id"""
# The last statement of every transaction of a job: numbers its event, and finds out whether the job may still write.
NEXT_EVENT = """
update jobs set events = events + %(count)s
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running' returning events"""
KNOWN_VECTORS = """
select distinct on (content_hash) content_hash, embedding from vectors
where tenant = %(tenant)s and space = %(space)s and content_hash = any(%(hashes)s::bytea[]) order by content_hash"""

# Writers of parts of the same document come in turn. No row: the document has come to its end already.
LOCK_ITEM = """
select from job_items where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s
  and status = 'queued' for update"""
ADD_PART = """
insert into draft_parts (tenant, job_id, document_id, part, parts, draft)
values (%(tenant)s, %(job)s, %(document)s, %(part)s, %(parts)s, %(draft)s) on conflict do nothing"""
COUNT_PARTS = """
select count(*) from draft_parts where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s"""
TAKE_PARTS = """
with taken as (
  delete from draft_parts where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s
  returning part, draft
)
select draft from taken order by part"""
MAY_WRITE = """
select from jobs where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running'"""

# A statement of its own: within the one that deletes, rows are locked in whatever order it comes to them.
LOCK_DELETED = """
select from documents where tenant = %(tenant)s and collection = %(collection)s and id = any(%(ids)s::uuid[])
order by id for update"""
DELETE_DOCUMENTS = """
with gone as (
  delete from documents where tenant = %(tenant)s and collection = %(collection)s and version < %(run)s
    and id = any(%(ids)s::uuid[]) returning id
), texts as (
  delete from document_texts t using gone
  where t.tenant = %(tenant)s and t.collection = %(collection)s and t.document_id = gone.id
), values as (
  delete from document_values v using gone
  where v.tenant = %(tenant)s and v.collection = %(collection)s and v.document_id = gone.id
), vectors as (
  delete from vectors v using gone
  where v.tenant = %(tenant)s and v.collection = %(collection)s and v.document_id = gone.id
), chunks as (
  delete from chunks c using gone
  where c.tenant = %(tenant)s and c.collection = %(collection)s and c.document_id = gone.id returning c.document_id
)
update job_items i set status = 'deleted', finished_at = clock_timestamp(),
  removed = (select count(*) from chunks where document_id = i.document_id)
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.document_id = any(%(ids)s::uuid[])"""

COMPARABLE_BYTES = 2000
"""A longer text, such as an abstract, does not fit an entry of an index: filters do not see it."""

UNWRITABLE = (UnicodeError, OverflowError)
"""What psycopg lets through of a text or number that no column can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a job writes, and as which run. Small and picklable: workers open their own writer from it.

    `fence` is that of who holds the job; `patience` is for how many seconds a writer waits for a store that is away;
    `graph` is whether documents also go into the graph, and `splade` the fingerprint of the model that weighs their
    terms, empty where none does.
    """

    postgres: Postgres
    tenant: str
    collection: int
    space: int
    job: UUID
    run: int
    listed_ns: int
    fence: int = 0
    patience: float = 60.0
    graph: bool = False
    splade: str = ""

    def open(self) -> "CorpusWriter":
        return CorpusWriter(self)


class CorpusWriter:
    """Publishes whole documents. One connection, used by one thread at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = self._connected()
        self._scope = {
            "tenant": target.tenant,
            "collection": target.collection,
            "space": target.space,
            "job": target.job,
            "run": target.run,
            "fence": target.fence,
            "listed_ns": target.listed_ns,
        }

    def close(self) -> None:
        self._connection.close()

    def known_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Matrix]:
        """The stored vectors of those texts, each of shape (dimension,)."""
        return self._patiently(partial(self._known_vectors, hashes))

    def publish(self, drafts: Sequence[Draft]) -> None:
        """One transaction; one a document where that fails, so that a bad one costs no other, nor a deadlock any.

        A part of a document waits in the store for the others; with the last of them the document is published.
        A draft that this or a newer run has already published changes nothing. FencedError if the job was ended,
        StoreError if the store stays away for longer than the target's patience.
        """
        if whole := [draft for draft in drafts if draft.is_whole]:
            self._patiently(partial(self._publish_batch, whole))
        for draft in drafts:
            if not draft.is_whole:
                self._patiently(partial(self._publish_part, draft))

    def delete(self, documents: Sequence[UUID]) -> None:
        """Documents and all that hangs on them, in one transaction. Raises what `publish` raises."""
        self._patiently(partial(self._delete, documents))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Again, on a new connection, while the store is away: what was under way has been rolled back."""
        for attempt in while_away(self._target.patience, StoreError):
            with attempt:
                if self._connection.closed:
                    self._connection = self._connected()
                return work()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _connected(self) -> Connection:
        connection = self._target.postgres.connect("rag_app")
        try:
            connection.execute(STAGE)
            register_vector(connection)
        except psycopg.OperationalError as error:
            connection.close()
            raise StoreError(f"lost the store: {error}") from error
        return connection

    def _known_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Matrix]:
        with transaction(self._connection, self._target.tenant):
            rows = self._connection.execute(KNOWN_VECTORS, {**self._scope, "hashes": list(hashes)}, binary=True)
            return {bytes(key): _numpy(vector) for key, vector in rows}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction of the job, which nobody ends meanwhile."""
        with transaction(self._connection, self._target.tenant):
            self._connection.execute(WRITE_AS, self._scope)
            yield

    def _publish_batch(self, drafts: Sequence[Draft]) -> None:
        try:
            prepared = self._prepared(drafts)
            with self._writing():
                self._publish(drafts, prepared)
        except (psycopg.Error, DocumentError, *UNWRITABLE) as error:
            if len(drafts) == 1 and drafts[0].failure:
                raise  # not for what is in it: there is nothing left in it
            if len(drafts) == 1:
                self._publish_batch([drafts[0].with_failure(Failure(stage="publish", reason=_reason(error)))])
            else:
                for draft in drafts:
                    self._publish_batch([draft])

    def _publish_part(self, draft: Draft) -> None:
        try:
            with self._writing():
                self._add_part(draft)
        except (psycopg.Error, DocumentError, *UNWRITABLE) as error:
            failure = Failure(stage="publish", reason=_reason(error))
            self._publish_batch([replace(draft, part=(0, 1)).with_failure(failure)])

    def _add_part(self, draft: Draft) -> None:
        number, count = draft.part
        scope = {**self._scope, "document": draft.id, "part": number, "parts": count}
        if self._connection.execute(LOCK_ITEM, scope).fetchone() is not None:
            self._connection.execute(ADD_PART, {**scope, "draft": dumped(draft)})
            row = self._connection.execute(COUNT_PARTS, scope).fetchone()
            if row and row[0] == count:
                parts = self._connection.execute(TAKE_PARTS, scope, binary=True).fetchall()
                whole = joined([loaded(body) for (body,) in parts])
                return self._publish([whole], self._prepared([whole]))
        if self._connection.execute(MAY_WRITE, self._scope).fetchone() is None:
            raise fenced(self._target.job)
        return None

    def _delete(self, documents: Sequence[UUID]) -> None:
        with self._writing():
            for statement in (LOCK_DELETED, DELETE_DOCUMENTS):
                self._connection.execute(statement, {**self._scope, "ids": sorted(documents)})
            lexical.bury_orphans(self._connection, self._scope, documents)
            graph.remove_orphans(self._connection, self._scope, documents)
            self._tell("delete", "deleted", {"deleted": len(documents)})

    def _prepared(self, drafts: Sequence[Draft]) -> list[lexical.Prepared]:
        words = lexical.prepared(drafts, self._target.run)
        if not self._target.splade:
            return [words]
        return [words, lexical.prepared_weights(drafts, self._target.run, self._target.splade)]

    def _publish(self, drafts: Sequence[Draft], prepared: Sequence[lexical.Prepared]) -> None:
        said = graph.prepared(drafts) if self._target.graph else graph.NOTHING
        self._stage_documents(drafts)
        accepted = self._accept()  # and whether it was stored before
        kept = [draft for draft in drafts if draft.id in accepted]
        if len(kept) < len(drafts):
            self._connection.execute(LEAVE_OUT, {"accepted": list(accepted)})
        self._stage_contents(kept)
        if any(accepted.values()):
            for statement in (REMOVE_CHUNKS, REPLACE_VALUES, TOUCH_VALUES):
                self._connection.execute(statement, self._scope)
        for statement in (ADD_CHUNKS, ADD_VECTORS, ADD_VALUES, ADD_TEXTS, FINISH_ITEMS):
            self._connection.execute(statement, self._scope)
        if gone := sorted(draft.id for draft in kept if draft.failure and not draft.failure.retryable):
            self._connection.execute(REMOVE_TEXTS, {**self._scope, "ids": gone})
        replaced = [draft.id for draft in kept if accepted[draft.id] and _replaces(draft)]
        lexical.bury(self._connection, self._scope, replaced)
        for terms in prepared:
            lexical.add(self._connection, self._scope, terms.only(accepted))
        graph.publish(self._connection, self._scope, said.only(accepted), replaced)
        kept_out = [_told(draft, draft.failure) for draft in kept if draft.failure]
        self._tell("publish", "published", _counts(kept), [each for each in kept_out if each["status"] != "skipped"])

    def _accept(self) -> dict[UUID, bool]:
        self._connection.execute(LOCK_DOCUMENTS, self._scope)
        return dict(row for statement in (ACCEPT, TOUCH) for row in self._connection.execute(statement, self._scope))

    def _stage_documents(self, drafts: Sequence[Draft]) -> None:
        _copy(self._connection, COPY_DOCUMENTS, DOCUMENT_TYPES, (_document_row(draft) for draft in drafts))

    def _stage_contents(self, drafts: Sequence[Draft]) -> None:
        _copy(self._connection, COPY_VALUES, VALUE_TYPES, (row for draft in drafts for row in _value_rows(draft)))
        _copy(self._connection, COPY_CHUNKS, CHUNK_TYPES, (row for draft in drafts for row in _chunk_rows(draft)))

    def _tell(
        self, stage: str, status: str, counts: Mapping[str, int], kept_out: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """An event for each document that was kept out, and one for all together."""
        events = [("document", str(each["status"]), each) for each in kept_out] + [(stage, status, counts)]
        row = self._connection.execute(NEXT_EVENT, {**self._scope, "count": len(events)}).fetchone()
        if row is None:
            raise fenced(self._target.job)
        with self._connection.cursor() as cursor:
            cursor.executemany(
                ADD_EVENT,
                [
                    {**self._scope, "seq": seq, "stage": stage, "status": status, "detail": Jsonb(detail)}
                    for seq, (stage, status, detail) in enumerate(events, int(row[0]) - len(events) + 1)
                ],
            )


def _copy(connection: Connection, statement: LiteralString, types: Sequence[str], rows: Iterable[Any]) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _document_row(draft: Draft) -> tuple[Any, ...]:
    document, failure, entry = draft.document, draft.failure, draft.entry
    return (
        draft.id,
        draft.source,
        entry.uri,
        _status(draft),
        failure.stage if failure else None,
        failure.reason if failure else None,
        failure is not None and failure.retryable,
        entry.size,
        entry.modified_ns,
        entry.changed_ns,
        entry.etag,
        draft.sha256,
        draft.recipe,
        document.title if document else "",
        document.media_type if document else "",
        document.language if document else "",
        Jsonb(dict(document.metadata) if document else {}),
        len(draft.chunks),
        0 if failure else draft.embedded,
        Jsonb({stage: round(seconds, 6) for stage, seconds in draft.seconds.items()}),
        document.text if document else "",
    )


def _replaces(draft: Draft) -> bool:
    return not draft.same and not (draft.failure and draft.failure.retryable)


def _status(draft: Draft) -> str:
    if draft.failure:
        return draft.failure.status
    return "same" if draft.same else "completed"


def _told(draft: Draft, failure: Failure) -> dict[str, Any]:
    return {
        "document_id": str(draft.id),
        "uri": draft.entry.uri,
        "status": failure.status,
        "stage": failure.stage,
        "reason": failure.reason,
        "retryable": failure.retryable,
    }


def _counts(drafts: Sequence[Draft]) -> dict[str, int]:
    statuses = [_status(draft) for draft in drafts]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def _value_rows(draft: Draft) -> list[tuple[UUID, str, str | None, float | None]]:
    if draft.same:
        return [(draft.id, "updated_at", _modified(draft.entry), None)]
    return [(draft.id, key, *_typed(value)) for key, values in filter_values(draft).items() for value in values]


def filter_values(draft: Draft) -> dict[str, list[Value]]:
    """What filters can compare of a document: its metadata, and what every document has."""
    document, entry = draft.document, draft.entry
    if document is None:
        return {}
    own: dict[str, Value] = {
        "uri": entry.uri,
        "title": document.title,
        "media_type": document.media_type,
        "language": document.language,
        "updated_at": _modified(entry),
    }
    merged = {**document.metadata, **own}
    listed = {key: list(value) if isinstance(value, list | tuple) else [value] for key, value in merged.items()}
    return {key: [value for value in values if _comparable(key, value)] for key, values in listed.items()}


def _comparable(key: str, value: Value) -> bool:
    return not isinstance(value, str) or len(key.encode()) + len(value.encode()) <= COMPARABLE_BYTES


def _modified(entry: Entry) -> str:
    """In one form always, so that times compare as text: `2026-11-21T09:30:00Z`."""
    return datetime.fromtimestamp(entry.modified_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _typed(value: Value) -> tuple[str | None, float | None]:
    if isinstance(value, bool):
        return str(value).lower(), None
    return (None, float(value)) if isinstance(value, int | float) else (str(value), None)


def _chunk_rows(draft: Draft) -> list[tuple[Any, ...]]:
    if draft.vectors is None:
        return []
    vectors = draft.vectors.astype(np.float16)
    return [
        (
            chunk.id,
            chunk.document_id,
            chunk.ordinal,
            chunk.start,
            chunk.end,
            chunk.metadata.get("page"),
            chunk.prefix,
            chunk.text,
            Jsonb(dict(chunk.metadata)),
            text_hash(chunk.embedded_text),
            HalfVector(vector),
        )
        for chunk, vector in zip(draft.chunks, vectors, strict=True)
    ]


def _numpy(vector: Any) -> Matrix:
    return np.asarray(vector.to_numpy(), dtype=np.float32)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, DocumentError) else str(error).strip().splitlines()[0]
