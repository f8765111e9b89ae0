"""Snapshots: each retrieval reads one REPEATABLE READ view of a collection, however many statements it takes."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection

from rag_core.errors import StoreError
from rag_core.stage import pause_timeout
from rag_core.storage.missing_collection import COLLECTION_NAMES, missing_collection_error
from rag_core.storage.pools import assume_app_role, build_pool
from rag_core.storage.postgres import ASSUME_READER, SET_CALLER, Postgres, redact_dsn
from rag_core.types import Query

T = TypeVar("T")

COLLECTION = """
select c.id, c.space, s.fingerprint, s.model, s.dimension, coalesce((select i.indisvalid from pg_index i
  where i.indexrelid = to_regclass('rag.' || vector_index(c.tenant, c.id, c.space))), false) as indexed,
  exists (select from restricted_documents r
    where r.tenant = c.tenant and r.collection = c.id and not r.access && %(groups)s::text[]) as has_hidden
from collections c left join spaces s on s.tenant = c.tenant and s.id = c.space
where c.tenant = %(tenant)s and c.name = %(collection)s"""
BEGIN = "begin isolation level repeatable read read only"
OPENED = "savepoint opened"
LIMIT_TURN = "set local statement_timeout = {milliseconds}"
UNDO_TURN = "rollback to savepoint opened"
# A subquery of other statements: the documents that the caller's groups may not read. Nearly always empty.
HIDDEN = """
select id from restricted_documents where tenant = %(tenant)s and collection = %(collection_id)s
and not access && %(groups)s::text[]"""

USUAL_BREADTH = 200
"""The value of `hnsw.ef_search` on a new connection: the breadth of a leg that ranks 100 chunks."""

# The planner should prefer index lookups for a few thousand rows, and hash all documents that pass a filter in memory.
# Keeping plans saves a quarter of a millisecond a statement; statements with a filter are planned each time.
READING = (
    " -c random_page_cost=1.1 -c work_mem=32MB -c plan_cache_mode=auto"
    f" -c hnsw.iterative_scan=relaxed_order -c hnsw.ef_search={USUAL_BREADTH}"
)

SERVER_GRACE = 0.1
"""Seconds after a turn's timeout at which the server cancels its statement. The client cancels first if it is alive."""

CONNECTIONS = min(8, 2 * (os.cpu_count() or 1))
"""Connections of a process, each serving one retrieval. More than the CPUs can serve only delay one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One REPEATABLE READ view of a collection: every statement on it sees the same corpus.

    `owner` opened it. `scope` holds the parameters that every statement takes. `kept` holds the results of `once`, by
    key.
    """

    owner: "Snapshots"
    connection: AsyncConnection
    scope: Mapping[str, Any]
    kept: dict[object, Any] = field(default_factory=dict)

    async def once(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """The result of `read`, which runs for the first caller only: a leg reads to rank and again to score."""
        if key not in self.kept:
            self.kept[key] = await read()
        value: T = self.kept[key]
        return value

    def suits(self, owner: "Snapshots", query: Query) -> bool:
        """True if this owner opened it for the query's tenant, collection and groups.

        A retriever can search another store, in another event loop, which cannot use this connection.
        """
        opened_for = self.scope["tenant"], self.scope["collection"], self.scope["groups"]
        return self.owner is owner and opened_for == (query.tenant, query.collection, list(query.groups))


@dataclass(slots=True, kw_only=True)
class Reading:
    """The state that the reads of one retrieval share.

    The first read opens `snapshot`; `turn` serialises the reads. `milliseconds` is the statement timeout that the
    server has now, None if it is unknown.
    """

    owner: "Snapshots"
    query: Query
    snapshot: Snapshot | None = None
    milliseconds: int | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    def suits(self, owner: "Snapshots", query: Query) -> bool:
        """True like that of a Snapshot."""
        own = self.query
        is_same = (own.tenant, own.collection, own.groups) == (query.tenant, query.collection, query.groups)
        return self.owner is owner and is_same


_open: ContextVar[Snapshot | None] = ContextVar("snapshot", default=None)
_reading: ContextVar[Reading | None] = ContextVar("reading", default=None)


class Snapshots:
    """Opens snapshots of a store. Its connections belong to the event loop that reads first.

    `protect` surrounds the beginning of each snapshot.
    """

    def __init__(self, postgres: Postgres, protect: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._protect = protect
        self._pool = build_pool(postgres, READING, configure_reader, min_size=1, max_size=CONNECTIONS)
        self._shown = redact_dsn(postgres.dsn)

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def reading(self, query: Query) -> AsyncIterator[Reading]:
        """Makes all reads of the block share one snapshot, which the first of them opens.

        Concurrent tasks of the block take turns: each enters `snapshot`.
        """
        held, outer = _open.get(), _reading.get()
        if held is not None and held.suits(self, query):
            shared = Reading(owner=self, query=query, snapshot=held)
        elif outer is not None and outer.suits(self, query):
            yield outer
            return
        else:
            shared = Reading(owner=self, query=query)
        tokens = _open.set(None), _reading.set(shared)
        try:
            async with shared.opened:
                yield shared
        except psycopg.OperationalError as error:
            raise self._read_error(error) from error
        finally:
            _open.reset(tokens[0])
            _reading.reset(tokens[1])

    @asynccontextmanager
    async def snapshot(self, query: Query) -> AsyncIterator[Snapshot]:
        """Takes a turn on the snapshot of the enclosing `reading` if it suits the query, else on a new one.

        The connection is exclusive during a turn. A turn ends when its stage times out, on the server too; after a
        failure or a cancellation the snapshot still serves the others. A `snapshot` within a turn joins that turn.
        Raises NotFoundError if there is no such collection, and StoreError for whatever the store refuses.
        """
        held = _open.get()
        if held is not None and held.suits(self, query):
            yield held
            return
        async with self.reading(query) as shared:
            with pause_timeout():
                await shared.turn.acquire()
            try:
                async with self._take_turn(shared) as snapshot:
                    token = _open.set(snapshot)
                    try:
                        yield snapshot
                    finally:
                        _open.reset(token)
            finally:
                shared.turn.release()

    @asynccontextmanager
    async def _take_turn(self, shared: Reading) -> AsyncIterator[Snapshot]:
        try:
            with pause_timeout() as left:
                snapshot = shared.snapshot or await self._begin(shared, left)
                await _limit_statements(shared, snapshot.connection, left)
            try:
                yield snapshot
            except BaseException:
                with pause_timeout(), suppress(psycopg.OperationalError):  # a lost connection cannot be rolled back
                    await snapshot.connection.execute(UNDO_TURN)
                    shared.milliseconds = None
                raise
        except psycopg.Error as error:
            raise self._read_error(error) from error

    def _read_error(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"cannot read from the store at {self._shown}: {error}")

    async def _begin(self, shared: Reading, seconds: float) -> Snapshot:
        await self._pool.open()
        shared.milliseconds = None  # a failed attempt before may have set it for another connection
        async with AsyncExitStack() as opening:
            with self._protect():
                connection = await opening.enter_async_context(self._pool.connection())
                async with connection.pipeline():
                    await connection.execute(BEGIN)
                    caller = {"tenant": shared.query.tenant, "groups": list(shared.query.groups)}
                    await connection.execute(SET_CALLER, caller)
                    await _limit_statements(shared, connection, seconds)
                    await connection.execute(OPENED)
                    scope = await _read_scope(connection, shared.query)
            shared.snapshot = Snapshot(owner=self, connection=connection, scope=scope)
            await shared.opened.enter_async_context(opening.pop_all())
        return shared.snapshot


async def _limit_statements(shared: Reading, connection: AsyncConnection, seconds: float) -> None:
    """Sets the server's timeout for a turn. Rounding it up to a power of 2 spares most turns the statement."""
    limit = 0 if seconds == inf else 1 << ceil(1000 * (max(0.0, seconds) + SERVER_GRACE)).bit_length()
    if limit != shared.milliseconds:
        await connection.execute(LIMIT_TURN.format(milliseconds=limit).encode())
        shared.milliseconds = limit


async def configure_connection(connection: AsyncConnection) -> None:
    await assume_app_role(connection)
    await register_vector_async(connection)


async def configure_reader(connection: AsyncConnection) -> None:
    await configure_connection(connection)
    await connection.execute(ASSUME_READER, {"local": False})


async def _read_scope(connection: AsyncConnection, query: Query) -> dict[str, Any]:
    values = {"tenant": query.tenant, "collection": query.collection, "groups": list(query.groups)}
    cursor = await connection.execute(COLLECTION, values)
    row = await cursor.fetchone()
    if row is None:
        names = await (await connection.execute(COLLECTION_NAMES, {"tenant": query.tenant})).fetchall()
        raise missing_collection_error(query.collection, [name for (name,) in names])
    collection, space, fingerprint, model, dimension, indexed, has_hidden = row
    return {
        **values,
        "collection_id": collection,
        "space": space,
        "fingerprint": fingerprint,
        "model": model,
        "dimension": dimension,
        "indexed": indexed,
        "has_hidden": has_hidden,
    }
