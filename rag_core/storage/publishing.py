"""Publishing: writes documents into the corpus, one transaction per batch.

Two numbers protect documents from outdated writers. A job's `fence` changes whenever another process takes the job
over. Every transaction that writes compares the writer's fence with the job's row, and is rolled back if they differ.
So writers of a process that lost the job write nothing.

The other number is a document's `version`: the number of the job that wrote it last. A job's number is called its
`run`. Later jobs have higher numbers, and a job that is taken over can get a new, higher one. A job replaces only
documents with a lower version, so publishing a batch again changes nothing.

Postgres refuses `COPY` into tables with row-level security. Rows are therefore copied into temporary tables and
inserted from there. Unchanged chunks keep their rows and their vectors.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, LiteralString, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import Connection
from psycopg.types.json import Jsonb

from rag_core.errors import DocumentError, StoreError, first_line
from rag_core.storage.filters import comparable_values
from rag_core.storage.graph import writing as graph
from rag_core.storage.ledger import ADD_EVENT, JOIN_WRITERS, fencing_error
from rag_core.storage.lexical import writing as lexical
from rag_core.storage.parts import dump_draft, join_drafts, load_draft
from rag_core.storage.postgres import Postgres, retry_attempts, transaction, translate_connection_errors
from rag_core.types import Draft, Entry, Failure, Metadata, text_hash, vector_hash

T = TypeVar("T")
StoredVector: TypeAlias = NDArray[np.float32]
"""One vector, of shape (dimension,)."""

# In these statements, `%(collection)s` is the collection's id, and "values" are those that filters compare.

# The table, DOCUMENT_TYPES, COPY_DOCUMENTS and `_document_row` list the same columns in the same order. The same holds
# for the table, the types and the function of filter values, and for those of chunks.
CREATE_STAGING = """
create temp table if not exists staged_documents (
  id uuid, source int, uri text, status text, stage text, reason text, retryable boolean, size bigint,
  modified_ns bigint, changed_ns bigint, etag text, sha256 bytea, recipe text, title text, media_type text,
  language text, metadata jsonb, access text[], n_chunks int, embedded int, seconds jsonb, times jsonb, text text,
  removed int not null default 0) on commit delete rows;
create temp table if not exists staged_values (
  document_id uuid, key text, text_value text, number_value double precision) on commit delete rows;
create temp table if not exists staged_chunks (
  id uuid, document_id uuid, ordinal int, start_offset int, end_offset int, page int, prefix text, text text,
  metadata jsonb, content_hash bytea, embedding halfvec) on commit delete rows"""
DOCUMENT_TYPES = [
    "uuid", "int4", "text", "text", "text", "text", "bool", "int8", "int8", "int8", "text",
    "bytea", "text", "text", "text", "text", "jsonb", "text[]", "int4", "int4", "jsonb", "jsonb", "text",
]  # fmt: skip
COPY_DOCUMENTS = """
copy staged_documents (id, source, uri, status, stage, reason, retryable, size, modified_ns, changed_ns, etag,
  sha256, recipe, title, media_type, language, metadata, access, n_chunks, embedded, seconds, times, text)
from stdin (format binary)"""
FILTER_VALUE_TYPES = ["uuid", "text", "text", "float8"]
COPY_FILTER_VALUES = "copy staged_values from stdin (format binary)"
CHUNK_TYPES = ["uuid", "uuid", "int4", "int4", "int4", "int4", "text", "text", "jsonb", "bytea", "halfvec"]
COPY_CHUNKS = "copy staged_chunks from stdin (format binary)"

# While a collection is being loaded, the planner has no statistics of it and assumes that it is empty. A join of staged
# and stored rows would then read the whole collection for every batch. Each such join is therefore repeated as
# `= any(array(select ...))`, which makes the planner use the index. New rows are upserted, which needs no join.
# Statements for stored documents, such as REMOVE_CHUNKS, are skipped for a batch of new ones.

# The first statement of a batch after its documents are staged. It locks the stored documents in the order of their
# ids, and UPSERT_DOCUMENTS inserts the new ones in that order. Of two batches with common documents, one therefore
# waits for the other: they cannot deadlock.
LOCK_DOCUMENTS = """
select from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s
  and d.id = any(array(select id from staged_documents)) order by d.id for no key update"""
# Does not change rows that this run or a newer one wrote. After a temporary failure (`retryable`), the columns that
# describe the contents keep their values, and the stored contents stay searchable. After a permanent failure these
# columns are emptied, because the source no longer has these contents. The statements named REMOVE_* delete the rest.
#
# `user_id` is the user who pushed the document last; other documents have none.
#
# `existed` is true if the document was stored before. Postgres sets `xmax` of a row that was updated, but not of an
# inserted one.
UPSERT_DOCUMENTS = """
insert into documents as d (tenant, collection, id, source, uri, version, status, stage, reason, retryable, size,
  modified_ns, changed_ns, etag, listed_ns, sha256, recipe, title, media_type, language, metadata, access, n_chunks,
  user_id)
select %(tenant)s, %(collection)s, id, source, uri, %(run)s, status, stage, reason, retryable, size, modified_ns,
  changed_ns, etag, %(listed_ns)s, sha256, recipe, title, media_type, language, metadata, access, n_chunks,
  case when starts_with(uri, 'push:') then (select user_id from jobs where tenant = %(tenant)s and id = %(job)s)
    else '' end
from staged_documents where status <> 'same' order by id
on conflict (tenant, collection, id) do update set
  version = excluded.version, status = excluded.status, stage = excluded.stage, reason = excluded.reason,
  retryable = excluded.retryable, size = excluded.size, modified_ns = excluded.modified_ns,
  changed_ns = excluded.changed_ns, etag = excluded.etag, listed_ns = excluded.listed_ns, source = excluded.source,
  sha256 = excluded.sha256, recipe = excluded.recipe, access = excluded.access, user_id = excluded.user_id,
  indexed_at = now(),
  title = case when excluded.retryable then d.title else excluded.title end,
  media_type = case when excluded.retryable then d.media_type else excluded.media_type end,
  language = case when excluded.retryable then d.language else excluded.language end,
  metadata = case when excluded.retryable then d.metadata else excluded.metadata end,
  n_chunks = case when excluded.retryable then d.n_chunks else excluded.n_chunks end
where d.version < excluded.version returning d.id, d.xmax <> 0 as existed"""
# For documents whose bytes have not changed. They have the status 'same'.
TOUCH_DOCUMENTS = """
update documents d set version = %(run)s, size = s.size, modified_ns = s.modified_ns, changed_ns = s.changed_ns,
  etag = s.etag, listed_ns = %(listed_ns)s, access = s.access
from staged_documents s where s.status = 'same' and d.tenant = %(tenant)s and d.collection = %(collection)s
  and d.id = any(array(select id from staged_documents where status = 'same')) and d.id = s.id
  and d.version < %(run)s returning d.id, true as existed"""
# For documents that need no reading. No row is changed that this run or a newer one wrote.
CHANGE_ACCESS = """
update documents set access = %(groups)s, version = %(run)s
where tenant = %(tenant)s and collection = %(collection)s and id = any(%(ids)s::uuid[]) and version < %(run)s"""
FINISH_REGROUPED = """
update job_items i set status = case when d.n_chunks > 0 then 'completed' else 'same' end, chunks = d.n_chunks,
  finished_at = clock_timestamp()
from documents d where d.tenant = %(tenant)s and d.collection = %(collection)s and d.id = any(%(ids)s::uuid[])
  and i.tenant = %(tenant)s and i.job_id = %(job)s and i.document_id = d.id"""
UNSTAGE_REJECTED = "delete from staged_documents where id <> all(%(accepted)s::uuid[])"
REMOVE_CHUNKS = """
with removed_chunks as (
  delete from chunks c using staged_documents s
  where c.tenant = %(tenant)s and c.collection = %(collection)s
    and c.document_id = any(array(select id from staged_documents)) and c.document_id = s.id and s.status <> 'same'
    and not s.retryable and not exists (select from staged_chunks n where n.id = c.id) returning c.id, c.document_id
), removed_vectors as (
  delete from vectors v
  where v.tenant = %(tenant)s and v.collection = %(collection)s
    and v.chunk_id = any(array(select id from removed_chunks))
    and v.document_id = any(array(select document_id from removed_chunks))
)
update staged_documents s set removed = counts.n
from (select document_id, count(*) as n from removed_chunks group by document_id) counts
where s.id = counts.document_id"""
# `text` is never updated: an equal id means an equal text (see `chunk_id`).
ADD_CHUNKS = """
insert into chunks as c (tenant, collection, id, document_id, ordinal, start_offset, end_offset, page, prefix, text,
  metadata, content_hash)
select %(tenant)s, %(collection)s, id, document_id, ordinal, start_offset, end_offset, page, prefix, text, metadata,
  content_hash
from staged_chunks on conflict (tenant, collection, id) do update set
  ordinal = excluded.ordinal, start_offset = excluded.start_offset, end_offset = excluded.end_offset,
  page = excluded.page, prefix = excluded.prefix, metadata = excluded.metadata, content_hash = excluded.content_hash
where (c.ordinal, c.start_offset, c.end_offset, c.page, c.prefix, c.metadata, c.content_hash) is distinct from
  (excluded.ordinal, excluded.start_offset, excluded.end_offset, excluded.page, excluded.prefix, excluded.metadata,
  excluded.content_hash)"""
ADD_VECTORS = """
insert into vectors as v (tenant, collection, space, chunk_id, document_id, content_hash, embedding)
select %(tenant)s, %(collection)s, %(space)s, id, document_id, content_hash, embedding from staged_chunks
on conflict (tenant, collection, space, chunk_id) do update
set content_hash = excluded.content_hash, embedding = excluded.embedding
where v.content_hash <> excluded.content_hash"""
REMOVE_FILTER_VALUES = """
delete from document_values v using staged_documents s
where v.tenant = %(tenant)s and v.collection = %(collection)s
  and v.document_id = any(array(select id from staged_documents)) and v.document_id = s.id
  and s.status <> 'same' and not s.retryable"""
ADD_FILTER_VALUES = """
insert into document_values (tenant, collection, document_id, key, text_value, number_value)
select %(tenant)s, %(collection)s, v.document_id, v.key, v.text_value, v.number_value
from staged_values v join staged_documents s on s.id = v.document_id where s.status <> 'same'"""
# A document with unchanged bytes has one staged filter value: its new modification time.
TOUCH_FILTER_VALUES = """
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
  chunks = s.n_chunks, embedded = s.embedded, removed = s.removed, seconds = s.seconds, times = s.times,
  finished_at = clock_timestamp()
from staged_documents s where i.tenant = %(tenant)s and i.job_id = %(job)s
  and i.document_id = any(array(select id from staged_documents)) and i.document_id = s.id"""
# Checks the fence and reserves numbers for `count` events, at the end of a transaction that publishes or deletes.
# Returns no row if the job has ended or has another fence; the transaction must then be rolled back.
# A transaction that only stores a part of a document has no events: it uses CHECK_FENCE.
RESERVE_EVENTS = """
update jobs set events = events + %(count)s
where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running' returning events"""
# From any collection of the tenant with this space.
FIND_VECTORS = """
select distinct on (content_hash) content_hash, embedding from vectors
where tenant = %(tenant)s and space = %(space)s and content_hash = any(%(hashes)s::bytea[]) order by content_hash"""

# Makes the writers of one document's parts take turns. Returns no row if the document has been published or has failed.
LOCK_ITEM = """
select from job_items where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s
  and status = 'queued' for update"""
ADD_PART = """
insert into draft_parts (tenant, job_id, document_id, part, parts, draft)
values (%(tenant)s, %(job)s, %(document)s, %(part)s, %(parts)s, %(draft)s) on conflict do nothing"""
COUNT_PARTS = """
select count(*) from draft_parts where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s"""
TAKE_PARTS = """
with deleted_parts as (
  delete from draft_parts where tenant = %(tenant)s and job_id = %(job)s and document_id = %(document)s
  returning part, draft
)
select draft from deleted_parts order by part"""
# Returns no row if the job has ended or has another fence.
CHECK_FENCE = """
select from jobs where tenant = %(tenant)s and id = %(job)s and fence = %(fence)s and status = 'running'"""

# Separate from the statements after it, which would lock rows in the order of their plan and not of ids.
LOCK_FOR_UPDATE = """
select from documents where tenant = %(tenant)s and collection = %(collection)s and id = any(%(ids)s::uuid[])
order by id for update"""
DELETE_DOCUMENTS = """
with deleted_documents as (
  delete from documents where tenant = %(tenant)s and collection = %(collection)s and version < %(run)s
    and id = any(%(ids)s::uuid[]) returning id
), deleted_texts as (
  delete from document_texts t using deleted_documents d
  where t.tenant = %(tenant)s and t.collection = %(collection)s and t.document_id = d.id
), deleted_values as (
  delete from document_values v using deleted_documents d
  where v.tenant = %(tenant)s and v.collection = %(collection)s and v.document_id = d.id
), deleted_vectors as (
  delete from vectors v using deleted_documents d
  where v.tenant = %(tenant)s and v.collection = %(collection)s and v.document_id = d.id
), deleted_chunks as (
  delete from chunks c using deleted_documents d
  where c.tenant = %(tenant)s and c.collection = %(collection)s and c.document_id = d.id returning c.document_id
)
update job_items i set status = 'deleted', finished_at = clock_timestamp(),
  removed = (select count(*) from deleted_chunks where document_id = i.document_id)
where i.tenant = %(tenant)s and i.job_id = %(job)s and i.document_id = any(%(ids)s::uuid[])"""

ENCODING_ERRORS = (UnicodeError, OverflowError)
"""The exceptions that psycopg raises for a text or a number that no column can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """The collection that a writer writes to, and the job it writes for.

    It is small and picklable: each worker receives it and opens its own writer.

    `collection` and `space` are ids. `run` is the version of the documents that are written. `fence` is the job's fence
    at the time when the job was taken. `listed_ns` is the time at which the sources were listed, in nanoseconds since
    1970. `store_timeout` is the number of seconds for which a writer retries while the store is unavailable.
    `builds_graph` is true if the graph is built from the documents. `splade` is the fingerprint of the SPLADE model, or
    empty if there is none.
    """

    postgres: Postgres
    tenant: str
    collection: int
    space: int
    job: UUID
    run: int
    listed_ns: int
    fence: int = 0
    store_timeout: float = 60.0
    builds_graph: bool = False
    splade: str = ""

    def open(self) -> "CorpusWriter":
        return CorpusWriter(self)


class CorpusWriter:
    """Publishes documents over one connection. It must be used by one thread at a time."""

    def __init__(self, target: WriteTarget) -> None:
        self._target = target
        for attempt in retry_attempts(target.store_timeout, StoreError):
            with attempt:
                self._connection = self._connect()
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

    def find_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, StoredVector]:
        """The stored vectors of texts with these hashes, by hash.

        Raises FencedError if the job has ended or another process has it, so that nothing is encoded for it any more.
        """

        def read_vectors() -> dict[bytes, StoredVector]:
            with transaction(self._connection, self._target.tenant):
                if self._connection.execute(CHECK_FENCE, self._scope).fetchone() is None:
                    raise fencing_error(self._target.job)
                rows = self._connection.execute(FIND_VECTORS, {**self._scope, "hashes": list(hashes)}, binary=True)
                return {bytes(key): np.asarray(vector.to_numpy(), dtype=np.float32) for key, vector in rows}

        return self._retry(read_vectors)

    def publish(self, drafts: Sequence[Draft]) -> None:
        """Publishes all whole documents in one transaction, and each part of a document in its own.

        If the contents of one document are refused, each document is published in its own transaction. That document is
        then published as failed. A document that this run or a newer one has already written is left unchanged. A part
        is stored until the last part of its document arrives; then the whole document is published.

        Raises FencedError if the job has ended or another process has it. Raises StoreError if the store stays
        unavailable for longer than the target's `store_timeout`. Raises the database's error if it refuses even the
        failed document.
        """
        if whole_drafts := [draft for draft in drafts if draft.is_whole]:
            self._retry(partial(self._publish_batch, whole_drafts))
        for draft in drafts:
            if not draft.is_whole:
                self._retry(partial(self._publish_part, draft))

    def change_access(self, access: Mapping[UUID, Sequence[str]]) -> None:
        """Stores the groups that can read these documents, in one transaction. Nothing else of them is written.

        Raises the same errors as `publish`.
        """
        ids_by_groups = defaultdict[tuple[str, ...], list[UUID]](list)
        for id, groups in access.items():
            ids_by_groups[tuple(groups)].append(id)

        def change_access() -> None:
            with self._write_transaction():
                scope = {**self._scope, "ids": sorted(access)}
                self._connection.execute(LOCK_FOR_UPDATE, scope)
                for groups, ids in ids_by_groups.items():
                    self._connection.execute(CHANGE_ACCESS, {**self._scope, "groups": list(groups), "ids": ids})
                self._connection.execute(FINISH_REGROUPED, scope)
                self._check_fence_and_add_events("publish", "published", {"completed": len(access)})

        self._retry(change_access)

    def delete(self, documents: Sequence[UUID]) -> None:
        """Deletes these documents and their rows in one transaction, and marks their chunks in the lexical index dead.

        A document that this run or a newer one has already written is kept, but also reported as deleted. Raises the
        same errors as `publish`.
        """

        def delete_documents() -> None:
            with self._write_transaction():
                for statement in (LOCK_FOR_UPDATE, DELETE_DOCUMENTS):
                    self._connection.execute(statement, {**self._scope, "ids": sorted(documents)})
                # orphans are the rows of documents that are no longer stored: unchanged documents must stay searchable
                lexical.mark_orphans_dead(self._connection, self._scope, documents)
                graph.remove_orphans(self._connection, self._scope, documents)
                self._check_fence_and_add_events("delete", "deleted", {"deleted": len(documents)})

        self._retry(delete_documents)

    def _retry(self, work: Callable[[], T]) -> T:
        """Repeats `work` on a new connection while the store is unavailable.

        The server rolls back a transaction whose connection is lost.
        """
        for attempt in retry_attempts(self._target.store_timeout, StoreError):
            with attempt:
                if self._connection.closed:
                    self._connection = self._connect()
                return work()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _connect(self) -> Connection:
        connection = self._target.postgres.connect("rag_app")
        try:
            with translate_connection_errors():
                connection.execute(CREATE_STAGING)
                register_vector(connection)
        except StoreError:
            connection.close()
            raise
        return connection

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        """Opens a transaction of the job. The job cannot be ended before the transaction ends."""
        with transaction(self._connection, self._target.tenant):
            self._connection.execute(JOIN_WRITERS, self._scope)
            yield

    def _publish_batch(self, drafts: Sequence[Draft]) -> None:
        """Publishes whole documents in one transaction.

        If the contents of one are refused, publishes each document alone, and that one as failed. Raises StoreError if
        the connection is lost, which is not the fault of a document.
        """
        try:
            segments = self._prepare_segments(drafts)
            with self._write_transaction():
                self._publish_documents(drafts, segments)
        except (psycopg.Error, DocumentError, *ENCODING_ERRORS) as error:
            if len(drafts) > 1:
                for draft in drafts:
                    self._publish_batch([draft])
            elif drafts[0].failure:
                raise  # a failed draft has no contents, so they cannot be the cause
            else:
                self._publish_batch([drafts[0].with_failure(_publishing_failure(error))])

    def _publish_part(self, draft: Draft) -> None:
        """Stores a draft that is a part of a document. Publishes the whole document if no part is missing any more.

        If the contents are refused, publishes the document as failed.
        """
        try:
            with self._write_transaction():
                if whole_draft := self._add_part(draft):
                    # inside the transaction, because the whole document is known only here
                    segments = self._prepare_segments([whole_draft])
                    self._publish_documents([whole_draft], segments)
                elif self._connection.execute(CHECK_FENCE, self._scope).fetchone() is None:
                    raise fencing_error(self._target.job)  # nothing was published, so nothing has checked the fence yet
        except (psycopg.Error, DocumentError, *ENCODING_ERRORS) as error:
            self._publish_batch([replace(draft, part=(0, 1)).with_failure(_publishing_failure(error))])

    def _add_part(self, draft: Draft) -> Draft | None:
        """Stores a part of a document. Returns the whole document if this was the last missing part, else None.

        Returns None as well if the document has already been published or has failed; the part is then not stored.
        """
        number, count = draft.part
        scope = {**self._scope, "document": draft.id, "part": number, "parts": count}
        if self._connection.execute(LOCK_ITEM, scope).fetchone() is None:
            return None
        self._connection.execute(ADD_PART, {**scope, "draft": dump_draft(draft)})
        row = self._connection.execute(COUNT_PARTS, scope).fetchone()
        if row is None or row[0] != count:
            return None
        rows = self._connection.execute(TAKE_PARTS, scope, binary=True).fetchall()
        return join_drafts([load_draft(body) for (body,) in rows])

    def _prepare_segments(self, drafts: Sequence[Draft]) -> list[lexical.PreparedSegments]:
        """Builds the segments of the lexical index: those of the drafts' words, and those of their SPLADE terms.

        Without a SPLADE model there are only the first. See `lexical/segment.py`.
        """
        words = lexical.prepare(drafts, self._target.run)
        if not self._target.splade:
            return [words]
        return [words, lexical.prepare_weights(drafts, self._target.run, self._target.splade)]

    def _publish_documents(self, drafts: Sequence[Draft], segments: Sequence[lexical.PreparedSegments]) -> None:
        """Writes whole documents and their events in the current transaction.

        `segments` were prepared from all `drafts`. If a document is rejected, they are built again without it.
        """
        prepared_graph = graph.prepare(drafts) if self._target.builds_graph else graph.EMPTY_GRAPH
        existed_by_accepted_id = self._upsert_documents(drafts)
        accepted_ids = existed_by_accepted_id.keys()
        accepted = [draft for draft in drafts if draft.id in accepted_ids]
        if len(accepted) < len(drafts):
            self._connection.execute(UNSTAGE_REJECTED, {"accepted": list(accepted_ids)})
        self._write_contents(accepted, any_existed=any(existed_by_accepted_id.values()))
        replaced = [draft.id for draft in accepted if existed_by_accepted_id[draft.id] and _replaces_contents(draft)]
        lexical.mark_dead(self._connection, self._scope, replaced)
        for prepared in segments:
            lexical.add_segments(self._connection, self._scope, prepared.restrict_to(accepted_ids))
        graph.publish(self._connection, self._scope, prepared_graph.restrict_to(accepted_ids), replaced)
        failures = [_failure_detail(draft, draft.failure) for draft in accepted if draft.failure]
        # skipped documents are counted, but have no event of their own
        reported = [failure for failure in failures if failure["status"] != "skipped"]
        self._check_fence_and_add_events("publish", "published", Counter(map(_draft_status, accepted)), reported)

    def _upsert_documents(self, drafts: Sequence[Draft]) -> dict[UUID, bool]:
        """Writes the rows of `documents`. Returns the accepted ids, with True for documents that were stored before.

        A document is rejected if this run or a newer one has already written it.
        """
        _copy_rows(self._connection, COPY_DOCUMENTS, DOCUMENT_TYPES, map(_document_row, drafts))
        self._connection.execute(LOCK_DOCUMENTS, self._scope)
        statements = (UPSERT_DOCUMENTS, TOUCH_DOCUMENTS)
        return dict(row for statement in statements for row in self._connection.execute(statement, self._scope))

    def _write_contents(self, drafts: Sequence[Draft], any_existed: bool) -> None:
        """Writes filter values, chunks, vectors and texts, and records each document's outcome in its job.

        `any_existed` is true if any of these documents was stored before.
        """
        filter_value_rows = (row for draft in drafts for row in _filter_value_rows(draft))
        _copy_rows(self._connection, COPY_FILTER_VALUES, FILTER_VALUE_TYPES, filter_value_rows)
        chunk_rows = (row for draft in drafts for row in _chunk_rows(draft))
        _copy_rows(self._connection, COPY_CHUNKS, CHUNK_TYPES, chunk_rows)
        for_stored_documents = (REMOVE_CHUNKS, REMOVE_FILTER_VALUES, TOUCH_FILTER_VALUES) if any_existed else ()
        for statement in (*for_stored_documents, ADD_CHUNKS, ADD_VECTORS, ADD_FILTER_VALUES, ADD_TEXTS, FINISH_ITEMS):
            self._connection.execute(statement, self._scope)
        if failed_ids := sorted(draft.id for draft in drafts if draft.failure and not draft.failure.retryable):
            self._connection.execute(REMOVE_TEXTS, {**self._scope, "ids": failed_ids})

    def _check_fence_and_add_events(
        self, stage: str, status: str, counts: Mapping[str, int], failures: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Checks the job's fence, then adds an event for each failure, and one with the counts.

        Raises FencedError if the job has ended or another worker has it. `stage` and `status` are those of the event
        with the counts.
        """
        events = [("document", str(failure["status"]), failure) for failure in failures] + [(stage, status, counts)]
        row = self._connection.execute(RESERVE_EVENTS, {**self._scope, "count": len(events)}).fetchone()
        if row is None:
            raise fencing_error(self._target.job)
        first = int(row[0]) - len(events) + 1
        rows = [
            {**self._scope, "seq": seq, "stage": event_stage, "status": event_status, "detail": Jsonb(detail)}
            for seq, (event_stage, event_status, detail) in enumerate(events, first)
        ]
        with self._connection.cursor() as cursor:
            cursor.executemany(ADD_EVENT, rows)


def filterable_metadata(draft: Draft) -> Metadata:
    """The metadata that filters can compare: the document's own, and the fields that all documents have."""
    document, entry = draft.document, draft.entry
    if document is None:
        return {}
    return {
        **document.metadata,
        "uri": entry.uri,
        "title": document.title,
        "media_type": document.media_type,
        "language": document.language,
        "updated_at": _modification_time(entry),
    }


def _modification_time(entry: Entry) -> str:
    """The modification time as `2026-11-21T09:30:00Z`, a format in which the order of texts is the order of times."""
    return datetime.fromtimestamp(entry.modified_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _draft_status(draft: Draft) -> str:
    if draft.failure:
        return draft.failure.status
    return "same" if draft.same else "completed"


def _replaces_contents(draft: Draft) -> bool:
    """True if the stored contents are outdated. They are not if the bytes are unchanged or the failure is temporary."""
    return not draft.same and not (draft.failure and draft.failure.retryable)


def _publishing_failure(error: Exception) -> Failure:
    reason = error.reason if isinstance(error, DocumentError) else first_line(error)
    return Failure(stage="publish", reason=reason)


def _failure_detail(draft: Draft, failure: Failure) -> dict[str, Any]:
    return {
        "document_id": str(draft.id),
        "uri": draft.entry.uri,
        "status": failure.status,
        "stage": failure.stage,
        "reason": failure.reason,
        "retryable": failure.retryable,
    }


def _copy_rows(connection: Connection, statement: LiteralString, types: Sequence[str], rows: Iterable[Any]) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _document_row(draft: Draft) -> tuple[Any, ...]:
    """The columns of `COPY_DOCUMENTS`, in its order."""
    document, failure, entry = draft.document, draft.failure, draft.entry
    return (
        draft.id,
        draft.source,
        entry.uri,
        _draft_status(draft),
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
        list(draft.access),
        len(draft.chunks),
        0 if failure else draft.embedded,
        Jsonb({stage: round(seconds, 6) for stage, seconds in draft.seconds.items()}),
        Jsonb(dict(draft.times)),
        document.text if document else "",
    )


def _filter_value_rows(draft: Draft) -> list[tuple[UUID, str, str | None, float | None]]:
    """Rows of document id, key, text value and number value. One of the two values is None."""
    if draft.same:
        return [(draft.id, "updated_at", _modification_time(draft.entry), None)]
    return [(draft.id, *values) for values in comparable_values(filterable_metadata(draft))]


def _chunk_rows(draft: Draft) -> list[tuple[Any, ...]]:
    """The columns of `staged_chunks`, in its order."""
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
            vector_hash(chunk.embedded_text, vector) if draft.has_given_vectors else text_hash(chunk.embedded_text),
            HalfVector(vector),
        )
        for chunk, vector in zip(draft.chunks, vectors, strict=True)
    ]
