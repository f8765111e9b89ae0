"""Vector indexes come and go with the size of what they serve, lexical segments are completed and merged, the graph is
rid of what breaks its invariants, and statistics follow what was loaded.

One partial HNSW index for each collection and space that is large; small ones are scanned, and pay nothing on insert.
All is built and dropped concurrently, in the way of no reader and no publish.
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
from rag_core.storage.graph.repair import repair
from rag_core.storage.lexical.backfill import backfill
from rag_core.storage.lexical.merging import merge
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.statistics import analyze, analyze_stale

POLL = 0.2
LOCK = "select pg_try_advisory_lock(hashtextextended('rag.maintenance', 0))"
UNLOCK = "select pg_advisory_unlock(hashtextextended('rag.maintenance', 0))"
# A gigabyte, or the server's buffers, a quarter of its memory by custom; an administrator may have granted more.
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
# Counted no further than it matters.
PLACES = """
select vector_index(c.tenant, c.id, s.id) as index, c.id as collection, c.name, s.id as space, s.dimension,
  (select count(*) from (select from vectors v where v.tenant = %(tenant)s and v.collection = c.id and v.space = s.id
   limit %(most)s) counted) as vectors
from collections c join spaces s on s.tenant = c.tenant
where c.tenant = %(tenant)s and (%(collection)s::int is null or c.id = %(collection)s) order by c.id, s.id"""
# The tenant's, or one collection's. One that is not valid was left behind by a build that was killed.
INDEXES = """
select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = 'rag.vectors'::regclass
  and starts_with(c.relname, vector_index(%(tenant)s, %(collection)s, null) || '_') order by c.relname"""
BUILD = """
create index concurrently {index} on vectors using hnsw ((embedding::halfvec({dimension})) halfvec_ip_ops)
with (m = 16, ef_construction = 64) where tenant = {tenant} and collection = {collection} and space = {space}"""
DROP = "drop index concurrently if exists {index}"
INDEX = """
select relname from pg_class
where oid = to_regclass('rag.' || vector_index(%(tenant)s, %(collection)s, %(space)s))"""
STORED = """
select count(*) from (select from documents where tenant = %(tenant)s and collection = %(collection)s
limit %(most)s) counted"""

Action: TypeAlias = Literal["built", "dropped", "analyzed", "completed", "merged", "removed"]
Work: TypeAlias = tuple[Action, str, Callable[[Connection, str, int], int]]
LEXICAL: tuple[Work, ...] = (("completed", "lexical documents", backfill), ("merged", "lexical segments", merge))
GRAPH: tuple[Work, ...] = (("removed", "graph rows", repair),)
"""Not after every sync: it reads all of the graph, which syncs keep right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done to which index or table; `collection` is empty where it serves no collection, or more than one."""

    action: Action
    subject: str
    collection: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Place:
    index: str
    collection: int
    name: str
    space: int
    dimension: int
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """`build_from` and `drop_below` count the vectors of one collection in one space; in between all stays as it is.

    A bulk load is one of at least `bulk_from` documents, and of more than `bulk_share` of those that are stored.
    """

    build_from: int = 20_000
    drop_below: int = 10_000
    bulk_from: int = 1_000
    bulk_share: float = 0.2

    def run(self, postgres: Postgres, tenant: str, collection: int | None = None) -> list[Change]:
        """What the tenant's collections, or that one, need now. Waits while another process is at it.

        StoreError if it cannot be done; the next run then begins again with what is left.
        """
        with _session(postgres) as connection:
            collections = _collections(connection, tenant, collection)
            analyzed = _analyzed(connection, tenant, collections)  # first: what was loaded is looked through next
            completed = list(_completed(postgres, tenant, collections, LEXICAL if collection else LEXICAL + GRAPH))
            with _turn(connection):
                return [*analyzed, *completed, *self._indexed(connection, tenant, collection)]

    def run_all(self, postgres: Postgres, tenant: str) -> list[Change]:
        """For every tenant; a login without roles sees only the rows of this one."""
        with postgres.connect("rag_worker") as connection, transaction(connection, tenant):
            tenants = [str(row[0]) for row in connection.execute(TENANTS)]
        return [change for each in tenants for change in self.run(postgres, each)]

    def analyze(self, postgres: Postgres, tenant: str, collection: int) -> list[Change]:
        """While a collection is loaded: what the planner does not know of it yet. StoreError if it cannot be done."""
        with _session(postgres) as connection:
            return _analyzed(connection, tenant, [collection])

    def make_way(self, postgres: Postgres, tenant: str, collection: int, space: int, documents: int) -> list[Change]:
        """Before so many documents are loaded: drops the index if to build it again is quicker than to add to it.

        Until `run` has built it, searches scan.
        """
        if documents < self.bulk_from:
            return []
        most = round(documents / self.bulk_share)
        scope = {"tenant": tenant, "collection": collection, "space": space, "most": most}
        with _session(postgres) as connection:
            analyze(connection, "job_items")  # every batch looks up its own there
            with transaction(connection, tenant):
                index = _first(connection, INDEX, scope)
                bulk = index and _first(connection, STORED, scope) < most
            if not bulk:
                return []
            with _turn(connection):
                return [_drop(connection, index, "")]

    def _indexed(self, connection: Connection, tenant: str, collection: int | None) -> Iterator[Change]:
        scope = {"tenant": tenant, "collection": collection, "most": self.build_from}
        with transaction(connection, tenant), connection.cursor(row_factory=class_row(_Place)) as cursor:
            places = {place.index: place for place in cursor.execute(PLACES, scope)}
            valid = {str(name): bool(is_valid) for name, is_valid in connection.execute(INDEXES, scope)}
        for index in valid:
            place = places.get(index)
            if place is None or not valid[index] or place.vectors < self.drop_below:
                yield _drop(connection, index, place.name if place else "")
        for place in places.values():
            if place.vectors >= self.build_from and not valid.get(place.index):
                yield _build(connection, place, tenant)


def _collections(connection: Connection, tenant: str, collection: int | None) -> dict[int, str]:
    """The tenant's, or that one: names by id."""
    with transaction(connection, tenant):
        return dict(connection.execute(COLLECTIONS, {"tenant": tenant, "collection": collection}).fetchall())


def _completed(
    postgres: Postgres, tenant: str, collections: Mapping[int, str], todo: Sequence[Work]
) -> Iterator[Change]:
    """Several processes may be at it at once, and publishers and searches beside them."""
    try:
        with postgres.connect() as connection:
            for id, name in collections.items():
                for action, what, work in todo:
                    began = time.perf_counter()
                    if count := work(connection, tenant, id):
                        subject = f"{count} {what}"
                        yield Change(action=action, subject=subject, collection=name, seconds=_since(began))
    except psycopg.Error as error:
        raise StoreError(f"segments and graph could not be brought up to date: {str(error).strip()}") from error


@contextmanager
def _session(postgres: Postgres) -> Iterator[Connection]:
    try:
        with postgres.connect("rag_owner") as connection:
            connection.execute(SETTINGS)
            yield connection
    except psycopg.Error as error:
        raise StoreError(f"the vector indexes could not be brought up to date: {str(error).strip()}") from error


@contextmanager
def _turn(connection: Connection) -> Iterator[None]:
    """One process at a time in the whole store: two that build on the same table would wait for each other."""
    while not _first(connection, LOCK, {}):
        time.sleep(POLL)  # and not a lock that waits, because a statement that waits is one that a build waits for
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(UNLOCK)


def _build(connection: Connection, place: _Place, tenant: str) -> Change:
    build = SQL(BUILD).format(
        index=Identifier(place.index),
        dimension=Constant(place.dimension),
        tenant=Constant(tenant),
        collection=Constant(place.collection),
        space=Constant(place.space),
    )
    began = time.perf_counter()
    connection.execute(build)
    return Change(action="built", subject=place.index, collection=place.name, seconds=_since(began))


def _drop(connection: Connection, index: str, collection: str) -> Change:
    began = time.perf_counter()
    connection.execute(SQL(DROP).format(index=Identifier("rag", index)))
    return Change(action="dropped", subject=index, collection=collection, seconds=_since(began))


def _analyzed(connection: Connection, tenant: str, collections: Collection[int]) -> list[Change]:
    return [
        Change(action="analyzed", subject=table, collection="", seconds=seconds)
        for table, seconds in analyze_stale(connection, tenant, collections).items()
    ]


def _first(connection: Connection, statement: LiteralString | Composed, scope: Mapping[str, Any]) -> Any:
    row = connection.execute(statement, scope).fetchone()
    return row[0] if row else None


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 3)
