"""Maintenance of a store: vector indexes, lexical segments, the graph, and the planner's statistics.

The vectors of one collection in one space have their own partial HNSW index if there are many of them. A small number
is scanned, because an index would slow down inserts. Indexes are built and dropped concurrently, which blocks neither
searches nor publishing.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, LiteralString, TypeAlias

import psycopg
from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composed, Identifier
from psycopg.sql import Literal as Constant

from rag_core.errors import StoreError
from rag_core.storage.audit_retention import keep_audit_months
from rag_core.storage.conversation_list import delete_old_conversations
from rag_core.storage.graph.repair import repair
from rag_core.storage.lexical.backfill import backfill
from rag_core.storage.lexical.merging import merge
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.replies import delete_old_replies
from rag_core.storage.statistics import analyze_stale_tables, analyze_table

POLL_SECONDS = 0.2
INDEXED_VECTORS = 20_000
"""The number of vectors from which a collection has an HNSW index."""
LOCK = "select pg_try_advisory_lock(hashtextextended('rag.maintenance', 0))"
UNLOCK = "select pg_advisory_unlock(hashtextextended('rag.maintenance', 0))"
# The memory for building an index is a gigabyte, or the size of the server's shared buffers if they are smaller; they
# are usually a quarter of the server's memory. A higher setting of the administrator stays.
SETTINGS = """
select set_config('maintenance_work_mem',
  greatest(granted.setting::bigint, least(1024 * 1024, buffers.setting::bigint * 8)) || 'kB', false),
  set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)
from pg_settings granted, pg_settings buffers
where granted.name = 'maintenance_work_mem' and buffers.name = 'shared_buffers'"""
COLLECTIONS = """
select id, name from collections
where tenant = %(tenant)s and (%(collection)s::int is null or id = %(collection)s) order by id"""
TENANTS = "select distinct tenant from spaces order by tenant"
# Vectors are counted up to the number at which an index is built.
VECTOR_SETS = """
select vector_index(c.tenant, c.id, s.id) as index, c.id as collection, c.name, s.id as space, s.dimension,
  (select count(*) from (select from vectors v where v.tenant = %(tenant)s and v.collection = c.id and v.space = s.id
   limit %(limit)s) limited_vectors) as count
from collections c join spaces s on s.tenant = c.tenant
where c.tenant = %(tenant)s and (%(collection)s::int is null or c.id = %(collection)s) order by c.id, s.id"""
# The indexes of the tenant, or of one collection. An invalid index is the remains of a build that was killed.
INDEXES = """
select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = 'rag.vectors'::regclass
  and starts_with(c.relname, vector_index(%(tenant)s, %(collection)s, null) || '_') order by c.relname"""
BUILD_INDEX = """
create index concurrently {index} on vectors using hnsw ((embedding::halfvec({dimension})) halfvec_ip_ops)
with (m = 16, ef_construction = 64) where tenant = {tenant} and collection = {collection} and space = {space}"""
DROP_INDEX = "drop index concurrently if exists {index}"
INDEX_NAME = """
select relname from pg_class
where oid = to_regclass('rag.' || vector_index(%(tenant)s, %(collection)s, %(space)s))"""
COUNT_DOCUMENTS = """
select count(*) from (select from documents where tenant = %(tenant)s and collection = %(collection)s
limit %(limit)s) limited_documents"""

Action: TypeAlias = Literal["built", "dropped", "analyzed", "completed", "merged", "removed"]
Task: TypeAlias = tuple[Action, str, Callable[[Connection, str, int], int]]
"""An action, the rows that it changes, and a function that does it for one collection and returns their number."""

LEXICAL: tuple[Task, ...] = (("completed", "lexical documents", backfill), ("merged", "lexical segments", merge))
GRAPH: tuple[Task, ...] = (("removed", "graph rows", repair),)
"""Tasks that do not run after a sync: they read the whole graph, and syncs keep the graph consistent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to an index, a table or rows, and the seconds that it took.

    `collection` is empty if the change concerns no collection, or several.
    """

    action: Action
    subject: str
    collection: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _VectorSet:
    """The vectors of one collection in one space. `index` is the name that their index has, or would have."""

    index: str
    collection: int
    name: str
    space: int
    dimension: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Rules for vector indexes, and the work that they require.

    An index is built for `build_at` vectors or more of one collection in one space, and dropped below `drop_below`. A
    bulk load adds at least `bulk_documents` documents, and more than `bulk_share` of the number of stored ones.
    """

    build_at: int = INDEXED_VECTORS
    drop_below: int = 10_000
    bulk_documents: int = 1_000
    bulk_share: float = 0.2

    def run(self, postgres: Postgres, tenant: str, collection: int | None = None) -> list[Change]:
        """Does all work that is necessary now, for one collection or for all of the tenant.

        Graphs are repaired only if `collection` is None. Waits while another process builds or drops indexes. Raises
        StoreError if something fails; the next run then does the remaining work.
        """
        with _owner_session(postgres) as connection:
            with transaction(connection, tenant):
                scope = {"tenant": tenant, "collection": collection}
                names: dict[int, str] = dict(connection.execute(COLLECTIONS, scope).fetchall())
            # first, because the next steps query the rows that were loaded
            analyzed = _analyze_collections(connection, tenant, names)
            completed = list(_run_tasks(postgres, tenant, names, LEXICAL if collection else LEXICAL + GRAPH))
            with _exclusive_turn(connection):
                return [*analyzed, *completed, *self._update_indexes(connection, tenant, collection)]

    def run_all(self, postgres: Postgres, tenant: str) -> list[Change]:
        """Runs for every tenant. A login without the store's roles sees only the rows of `tenant`."""
        with postgres.connect("rag_worker") as connection, transaction(connection, tenant):
            tenants = [str(row[0]) for row in connection.execute(TENANTS)]
        return [change for name in tenants for change in self.run(postgres, name)]

    def analyze(self, postgres: Postgres, tenant: str, collection: int) -> list[Change]:
        """Updates the planner's statistics while a collection is being loaded. Raises StoreError if that fails."""
        with _owner_session(postgres) as connection:
            return _analyze_collections(connection, tenant, [collection])

    def prepare_bulk_load(
        self, postgres: Postgres, tenant: str, collection: int, space: int, documents: int
    ) -> list[Change]:
        """Drops the index before `documents` are loaded, if building it again is faster than adding to it.

        Searches scan the vectors until `run` has built the index again. Raises StoreError if it cannot be dropped.
        """
        if documents < self.bulk_documents:
            return []
        limit = round(documents / self.bulk_share)
        scope = {"tenant": tenant, "collection": collection, "space": space, "limit": limit}
        with _owner_session(postgres) as connection:
            analyze_table(connection, "job_items")  # every batch looks up its own rows there
            with transaction(connection, tenant):
                index = _first_column(connection, INDEX_NAME, scope)
                is_bulk_load = index and _first_column(connection, COUNT_DOCUMENTS, scope) < limit
            if not is_bulk_load:
                return []
            with _exclusive_turn(connection):
                return [_drop_index(connection, index, "")]

    def _update_indexes(self, connection: Connection, tenant: str, collection: int | None) -> Iterator[Change]:
        scope = {"tenant": tenant, "collection": collection, "limit": self.build_at}
        with transaction(connection, tenant), connection.cursor(row_factory=class_row(_VectorSet)) as cursor:
            vector_sets = {vectors.index: vectors for vectors in cursor.execute(VECTOR_SETS, scope)}
            is_valid = {str(index): bool(valid) for index, valid in connection.execute(INDEXES, scope)}
        for index in is_valid:
            vectors = vector_sets.get(index)
            if vectors is None or not is_valid[index] or vectors.count < self.drop_below:
                yield _drop_index(connection, index, vectors.name if vectors else "")
        for vectors in vector_sets.values():
            if vectors.count >= self.build_at and not is_valid.get(vectors.index):
                yield _build_index(connection, vectors, tenant)


def remove_old_replies(postgres: Postgres, tenant: str, days: int) -> list[Change]:
    """Deletes old answers and their feedback: see `delete_old_replies`. Raises StoreError if that fails."""
    return _remove_old_rows("replies", lambda: delete_old_replies(postgres, tenant, days))


def remove_old_conversations(postgres: Postgres, tenant: str, days: int) -> list[Change]:
    """Deletes old conversations: see `delete_old_conversations`. Raises StoreError if that fails."""
    return _remove_old_rows("conversations", lambda: delete_old_conversations(postgres, tenant, days))


def remove_old_audit_months(postgres: Postgres, days: int) -> list[Change]:
    """Deletes old months of the audit: see `keep_audit_months`. Raises StoreError if that fails."""
    return _remove_old_rows("months of the audit", lambda: len(keep_audit_months(postgres, days)))


def _remove_old_rows(subject: str, delete: Callable[[], int]) -> list[Change]:
    started = time.perf_counter()
    try:
        count = delete()
    except psycopg.Error as error:
        raise StoreError(f"old {subject} could not be deleted: {str(error).strip()}") from error
    seconds = _seconds_since(started)
    return [Change(action="removed", subject=f"{count} {subject}", collection="", seconds=seconds)] if count else []


def _run_tasks(
    postgres: Postgres, tenant: str, collections: Mapping[int, str], tasks: Sequence[Task]
) -> Iterator[Change]:
    """Runs tasks that can run in several processes at once, and together with publishing and searches."""
    try:
        with postgres.connect() as connection:
            for id, name in collections.items():
                for action, subject, work in tasks:
                    started = time.perf_counter()
                    if count := work(connection, tenant, id):
                        seconds = _seconds_since(started)
                        yield Change(action=action, subject=f"{count} {subject}", collection=name, seconds=seconds)
    except psycopg.Error as error:
        raise StoreError(f"segments and graph could not be brought up to date: {str(error).strip()}") from error


@contextmanager
def _owner_session(postgres: Postgres) -> Iterator[Connection]:
    try:
        with postgres.connect("rag_owner") as connection:
            connection.execute(SETTINGS)
            yield connection
    except psycopg.Error as error:
        raise StoreError(f"the vector indexes could not be brought up to date: {str(error).strip()}") from error


@contextmanager
def _exclusive_turn(connection: Connection) -> Iterator[None]:
    """Excludes all other processes of the store: two that build indexes on the same table would deadlock."""
    while not _first_column(connection, LOCK, {}):
        time.sleep(
            POLL_SECONDS
        )  # instead of a waiting statement, because a concurrent build waits for running statements
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(UNLOCK)


def _build_index(connection: Connection, vectors: _VectorSet, tenant: str) -> Change:
    statement = SQL(BUILD_INDEX).format(
        index=Identifier(vectors.index),
        dimension=Constant(vectors.dimension),
        tenant=Constant(tenant),
        collection=Constant(vectors.collection),
        space=Constant(vectors.space),
    )
    started = time.perf_counter()
    connection.execute(statement)
    return Change(action="built", subject=vectors.index, collection=vectors.name, seconds=_seconds_since(started))


def _drop_index(connection: Connection, index: str, collection: str) -> Change:
    started = time.perf_counter()
    connection.execute(SQL(DROP_INDEX).format(index=Identifier("rag", index)))
    return Change(action="dropped", subject=index, collection=collection, seconds=_seconds_since(started))


def _analyze_collections(connection: Connection, tenant: str, collections: Collection[int]) -> list[Change]:
    return [
        Change(action="analyzed", subject=table, collection="", seconds=seconds)
        for table, seconds in analyze_stale_tables(connection, tenant, collections).items()
    ]


def _first_column(connection: Connection, statement: LiteralString | Composed, scope: Mapping[str, Any]) -> Any:
    row = connection.execute(statement, scope).fetchone()
    return row[0] if row else None


def _seconds_since(started: float) -> float:
    return round(time.perf_counter() - started, 3)
