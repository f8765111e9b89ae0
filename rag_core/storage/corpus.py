"""The corpus as questions see it: rankings and texts, under one snapshot a retrieval."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, inf, nan
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.sql import SQL, Literal
from psycopg_pool import AsyncConnectionPool

from rag_core.errors import NotFoundError, SpaceError, StoreError
from rag_core.stage import waiting
from rag_core.storage.filters import chunk_filter, compares_chunks
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.postgres import ASSUME_ROLE, OPTIONS, SET_TENANT, Postgres, shown
from rag_core.storage.queue import stands_at
from rag_core.types import Chunk, Hit, Matrix, Origin, Query, Space, TermWeights

T = TypeVar("T")

COLLECTION = """
select c.id, c.space, s.fingerprint, s.model, s.dimension, coalesce((select i.indisvalid from pg_index i
  where i.indexrelid = to_regclass('rag.' || vector_index(c.tenant, c.id, c.space))), false) as indexed
from collections c left join spaces s on s.tenant = c.tenant and s.id = c.space
where c.tenant = %(tenant)s and c.name = %(collection)s"""
# Documents that only groups may read which the asker is not in; almost always none.
HIDDEN = """
select id from documents where tenant = %(tenant)s and collection = %(collection_id)s and access <> '{}'
and not access && %(groups)s::text[]"""
NEAREST = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.document_id not in (select id from hidden) and {filter}
order by v.embedding <#> %(vector)s, v.chunk_id limit %(k)s"""
# As the index has it, which is partial: for its own constants only may a plan be kept. The filter is asked about one
# chunk after another: `offset 0` keeps the planner from turning it into a join, which would read all that passes first.
# Iterative scans return rows slightly out of order.
NEAREST_INDEXED = """
select v.chunk_id, -(v.embedding::halfvec({dimension}) <#> %(vector)s) as score from vectors v
where v.tenant = {tenant} and v.collection = {collection_id} and v.space = {space}
  and v.document_id not in (select id from hidden)
  and exists (select from (values (v.document_id, v.chunk_id)) as v (document_id, chunk_id) where {filter} offset 0)
order by v.embedding::halfvec({dimension}) <#> %(vector)s limit {k}"""
SEARCH_BROADLY = "set local hnsw.ef_search = {breadth}"
SIMILARITIES = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.chunk_id = any(%(ids)s::uuid[])"""
BEGIN = "begin isolation level repeatable read read only"
OPENED = "savepoint opened"
LIMIT_TURN = "set local statement_timeout = {milliseconds}"
UNDO_TURN = "rollback to savepoint opened"
# Counted until they are too many.
DOCUMENTS_PASSING = """
select count(*) < %(most_documents)s and coalesce(sum(n), 0) < %(most_chunks)s from (
  select v.n_chunks as n from documents v where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}
  limit %(most_documents)s) passing"""
CHUNKS_PASSING = """
select count(*) < %(most_chunks)s from (
  select from chunks v where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}
  limit %(most_chunks)s) passing"""
FETCH = """
select c.id, c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.prefix, c.metadata,
  d.uri, d.title, d.language, d.metadata, d.modified_ns
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = wanted.id
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
order by wanted.place"""
AROUND = """
select wanted.place, n.id, n.document_id, n.ordinal, n.text, n.start_offset, n.end_offset, n.prefix, n.metadata
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = wanted.id
join chunks n on n.tenant = c.tenant and n.collection = c.collection and n.document_id = c.document_id
  and n.ordinal between c.ordinal - %(before)s and c.ordinal + %(after)s and n.id <> c.id
order by wanted.place, n.ordinal"""

BREADTH, BREADTH_FILTERED, MOST_BREADTH = 100, 400, 1_000
"""How many candidates the index is searched for. With 100 a filter that one in ten passes costs 6 % of the recall."""

USUAL_BREADTH = 200
"""Of a leg that is asked for 100: what a connection begins with."""

# Index lookups for a few thousand rows, and hash tables of all documents that pass a filter, without a file. Plans are
# kept, which saves a quarter of a millisecond a statement, but for filters, whose values decide about them.
READING = (
    " -c random_page_cost=1.1 -c work_mem=32MB -c plan_cache_mode=auto"
    f" -c hnsw.iterative_scan=relaxed_order -c hnsw.ef_search={USUAL_BREADTH}"
)

FEW_DOCUMENTS, FEW_CHUNKS = 1_250, 5_000
"""Of fewer that pass a filter every vector is compared: as quick at 100,000 chunks as the index is, and exact."""

SERVER_GRACE = 0.1
"""Seconds that the server goes on after a turn's time, at least: the client's own cancellation comes first, if it is
alive."""

CONNECTIONS = min(8, 2 * (os.cpu_count() or 1))
"""Of a process: retrievals that are read at once. More than CPUs can serve only make each other late."""

CONNECTION_WAIT, RECONNECTION = 10.0, 8.0
"""Seconds that a read waits for a connection, and that the pool tries to replace a lost one. Its tries come ever
further apart, so they end: the next read then begins anew. The wait is longer, so that those who ask again after it
find the tries over."""

CACHED_BYTES, CACHED_CHUNK_BYTES = 64 << 20, 256 << 20
"""Of posting lists, and of the ids of chunks (seven million), of words, and as many of SPLADE's, in each process that
reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One REPEATABLE READ view of a collection: every statement on it sees the same corpus.

    `kept` is what has been read `once`, by its key.
    """

    connection: AsyncConnection
    scope: Mapping[str, Any]
    kept: dict[object, Any] = field(default_factory=dict)

    async def once(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """What a leg finds out about a question to rank, and needs again to score."""
        if key not in self.kept:
            self.kept[key] = await read()
        found: T = self.kept[key]
        return found

    def suits(self, query: Query) -> bool:
        """Whether the query asks for what this was opened for, and may see the same of it."""
        opened_for = self.scope["tenant"], self.scope["collection"], self.scope["groups"]
        return opened_for == (query.tenant, query.collection, list(query.groups))


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What the reads of one retrieval share: the snapshot that the first of them opens, the time limit that the server
    has for its statements, if it is known, and whose turn it is."""

    query: Query
    snapshot: Snapshot | None = None
    milliseconds: int | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    def suits(self, query: Query) -> bool:
        own = self.query
        return (own.tenant, own.collection, own.groups) == (query.tenant, query.collection, query.groups)


_open: ContextVar[Snapshot | None] = ContextVar("snapshot", default=None)
_reading: ContextVar[_Reading | None] = ContextVar("reading", default=None)


class CorpusReader:
    """Rankings and texts. Its connections belong to the event loop that first asks."""

    def __init__(self, postgres: Postgres, cached_bytes: int = CACHED_BYTES) -> None:
        self._words, self._weights = (SegmentCache(cached_bytes, CACHED_CHUNK_BYTES) for _ in range(2))
        self._pool = AsyncConnectionPool(
            postgres.dsn,
            kwargs={"options": OPTIONS + READING, "autocommit": True},
            configure=_configure,
            check=_check_open,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECTION_WAIT,
            reconnect_timeout=RECONNECTION,
            open=False,
        )
        self._shown = shown(postgres.dsn)

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def reading(self, query: Query) -> AsyncIterator[_Reading]:
        """All that is read in the block is of one snapshot, which opens when something first is.

        Tasks of the block may read side by side: each `snapshot` of theirs is a turn.
        """
        held, outer = _open.get(), _reading.get()
        if held is not None and held.suits(query):
            shared = _Reading(query=query, snapshot=held)
        elif outer is not None and outer.suits(query):
            yield outer
            return
        else:
            shared = _Reading(query=query)
        tokens = _open.set(None), _reading.set(shared)
        try:
            async with shared.opened:
                yield shared
        except psycopg.OperationalError as error:
            raise self._lost(error) from error
        finally:
            _open.reset(tokens[0])
            _reading.reset(tokens[1])

    @asynccontextmanager
    async def snapshot(self, query: Query) -> AsyncIterator[Snapshot]:
        """A turn on the snapshot of the `reading` around it, for the same eyes, or on one of its own.

        A turn has the connection for itself. It ends with the time of the stage that it is in, on the server, too; if
        it fails, or is cancelled, the snapshot serves the others as before. Within a turn there are no others.
        NotFoundError without such a collection; StoreError for whatever the store refuses.
        """
        held = _open.get()
        if held is not None and held.suits(query):
            yield held
            return
        async with self.reading(query) as shared:
            with waiting():
                await shared.turn.acquire()
            try:
                async with self._turn(shared) as snapshot:
                    token = _open.set(snapshot)
                    try:
                        yield snapshot
                    finally:
                        _open.reset(token)
            finally:
                shared.turn.release()

    @asynccontextmanager
    async def _turn(self, shared: _Reading) -> AsyncIterator[Snapshot]:
        try:
            with waiting() as left:
                snapshot = shared.snapshot or await self._opened(shared, left)
                await _limit(shared, snapshot.connection, left)
            try:
                yield snapshot
            except BaseException:
                with waiting(), suppress(psycopg.OperationalError):  # a connection that is gone serves nobody
                    await snapshot.connection.execute(UNDO_TURN)
                    shared.milliseconds = None
                raise
        except psycopg.Error as error:
            raise self._lost(error) from error

    def _lost(self, error: psycopg.Error) -> StoreError:
        return StoreError(f"cannot read from the store at {self._shown}: {error}")

    async def _opened(self, shared: _Reading, seconds: float) -> Snapshot:
        await self._pool.open()
        shared.milliseconds = None  # if an earlier try failed: it was another connection's
        async with AsyncExitStack() as opening:
            connection = await opening.enter_async_context(self._pool.connection())
            async with connection.pipeline():
                await connection.execute(BEGIN)
                await connection.execute(SET_TENANT, {"tenant": shared.query.tenant})
                await _limit(shared, connection, seconds)
                await connection.execute(OPENED)
                scope = await _scope(connection, shared.query)
            shared.snapshot = Snapshot(connection=connection, scope=scope)
            await shared.opened.enter_async_context(opening.pop_all())
        return shared.snapshot

    async def nearest(self, query: Query, vector: Matrix, space: Space, k: int) -> list[tuple[UUID, float]]:
        """Chunk ids and inner products with `vector`, shape (dimension,), best first; ties by id.

        Exact unless the collection has an index and more than a few thousand of its chunks pass the filter.
        """
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            ranking: list[tuple[UUID, float]] = []
            if snapshot.scope["indexed"] and not await _few_pass(snapshot, query):
                ranking = await _nearest_indexed(snapshot, query, vector, k)
            return ranking if len(ranking) == k else await _nearest(snapshot, NEAREST, query, vector, k)

    async def bm25(self, query: Query, k: int, parameters: Bm25) -> list[tuple[UUID, float]]:
        """Chunks that have a term of the question, and their exact scores, best first; ties by id."""
        from rag_core.storage.lexical import reading  # compiles, or loads what is compiled: not for who does not ask

        async with self.snapshot(query) as snapshot:
            return await reading.rank(snapshot, self._words, query, parameters, k)

    async def bm25_scores(self, query: Query, ids: Sequence[UUID], parameters: Bm25) -> list[float]:
        """What `bm25` would give these chunks, in the order given; 0 for a chunk without any term of the question."""
        from rag_core.storage.lexical import reading

        async with self.snapshot(query) as snapshot:
            return await reading.score(snapshot, self._words, query, parameters, ids)

    async def idf(self, query: Query) -> Mapping[str, float]:
        """How rare each term of the question is, in whatever language of the collection; 0 or more."""
        from rag_core.storage.lexical import rarity

        async with self.snapshot(query) as snapshot:
            return await rarity.idf(snapshot, self._words, query)

    async def splade(self, query: Query, weights: TermWeights, fingerprint: str, k: int) -> list[tuple[UUID, float]]:
        """Chunks that have a term of the question's `weights`, and their dot products with it, best first; ties by id.

        SpaceError if the collection holds no weights of the model of that fingerprint.
        """
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.rank(snapshot, self._weights, query, weights, fingerprint, k)

    async def splade_scores(
        self, query: Query, weights: TermWeights, fingerprint: str, ids: Sequence[UUID]
    ) -> list[float]:
        """What `splade` would give these chunks, in the order given; NaN for a chunk that has no weights."""
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.score(snapshot, self._weights, query, weights, fingerprint, ids)

    async def similarities(self, query: Query, vector: Matrix, space: Space, ids: Sequence[UUID]) -> list[float]:
        """Exact inner products with `vector`, shape (dimension,), in the order given; NaN for what has no vector."""
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            parameters = {**snapshot.scope, "vector": HalfVector(vector), "ids": list(ids)}
            rows = await snapshot.connection.execute(SIMILARITIES, parameters, binary=True)
            scores: dict[UUID, float] = dict(await rows.fetchall())
        return [scores.get(id, nan) for id in ids]

    async def hits(self, query: Query, stage: str, ranking: Sequence[tuple[UUID, float]]) -> list[Hit]:
        """The ranking with its texts, in its order."""
        async with self.snapshot(query) as snapshot:
            rows = await snapshot.connection.execute(FETCH, {**snapshot.scope, "ids": [id for id, _ in ranking]})
            scores = dict(ranking)
            return [_hit(row, stage, scores[row[0]]) for row in await rows.fetchall()]

    async def neighbours(self, query: Query, hits: Sequence[Hit], before: int, after: int) -> list[list[Chunk]]:
        """For each hit the chunks of its document next to it, so many before and after, in text order, without its own.

        They are of the version that was searched if this is asked in the snapshot of the search.
        """
        found: list[list[Chunk]] = [[] for _ in hits]
        async with self.snapshot(query) as snapshot:
            wanted = {"ids": [hit.chunk.id for hit in hits], "before": before, "after": after}
            async for place, *row in await snapshot.connection.execute(AROUND, {**snapshot.scope, **wanted}):
                found[place - 1].append(_chunk(row))
        return found


async def _limit(shared: _Reading, connection: AsyncConnection, seconds: float) -> None:
    """For the statements of a turn; rounded up to a power of 2, so that most turns have the limit of the one before."""
    limit = 0 if seconds == inf else 1 << ceil(1000 * (max(0.0, seconds) + SERVER_GRACE)).bit_length()
    if limit != shared.milliseconds:
        await connection.execute(LIMIT_TURN.format(milliseconds=limit).encode())
        shared.milliseconds = limit


async def _few_pass(snapshot: Snapshot, query: Query) -> bool:
    if query.filters is None:
        return False
    if compares_chunks(query.filters):
        statement, columns = CHUNKS_PASSING, ("v.document_id", "v.id")
    else:
        statement, columns = DOCUMENTS_PASSING, ("v.id", "v.id")
    condition, values = chunk_filter(query.filters, *columns)
    parameters = {**snapshot.scope, **values, "most_documents": FEW_DOCUMENTS, "most_chunks": FEW_CHUNKS}
    rows = await snapshot.connection.execute(SQL(statement).format(filter=condition), parameters, prepare=False)
    return await rows.fetchone() == (True,)


async def _nearest_indexed(snapshot: Snapshot, query: Query, vector: Matrix, k: int) -> list[tuple[UUID, float]]:
    breadth = min(max(BREADTH_FILTERED if query.filters else BREADTH, 2 * k), MOST_BREADTH)
    if breadth != USUAL_BREADTH:
        await snapshot.connection.execute(SEARCH_BROADLY.format(breadth=breadth).encode())
    ranking = await _nearest(snapshot, NEAREST_INDEXED, query, vector, k)
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


async def _nearest(
    snapshot: Snapshot, nearest: LiteralString, query: Query, vector: Matrix, k: int
) -> list[tuple[UUID, float]]:
    condition, values = chunk_filter(query.filters, "v.document_id", "v.chunk_id")
    constants = {name: Literal(snapshot.scope[name]) for name in ("tenant", "collection_id", "space", "dimension")}
    statement = SQL("with hidden as materialized ({hidden}) {nearest}").format(
        hidden=SQL(HIDDEN), nearest=SQL(nearest).format(filter=condition, k=Literal(k), **constants)
    )
    parameters = {**snapshot.scope, **values, "vector": HalfVector(vector), "k": k}
    rows = await snapshot.connection.execute(statement, parameters, prepare=_kept(query), binary=True)
    return [(id, score) for id, score in await rows.fetchall()]


def _kept(query: Query) -> bool | None:
    """Whether a plan may be kept: as psycopg thinks best, but never one with a filter."""
    return None if query.filters is None else False


async def _configure(connection: AsyncConnection) -> None:
    await connection.execute(ASSUME_ROLE, {"role": "rag_app"})
    await register_vector_async(connection)


async def _check_open(connection: AsyncConnection) -> None:
    """OperationalError if the server has closed it, as a restart does. Asks the socket, and so costs no round trip."""
    for _ in range(2):  # the server's last words, then the end
        connection.pgconn.consume_input()


async def _scope(connection: AsyncConnection, query: Query) -> dict[str, Any]:
    cursor = await connection.execute(COLLECTION, {"tenant": query.tenant, "collection": query.collection})
    row = await cursor.fetchone()
    if row is None:
        raise NotFoundError(
            f"there is no collection {query.collection!r}; `rag collections list` shows those there are"
        )
    collection, space, fingerprint, model, dimension, indexed = row
    return {
        "tenant": query.tenant,
        "collection": query.collection,
        "collection_id": collection,
        "space": space,
        "fingerprint": fingerprint,
        "model": model,
        "dimension": dimension,
        "indexed": indexed,
        "groups": list(query.groups),
    }


def _check_space(query: Query, scope: Mapping[str, Any], space: Space) -> None:
    if scope["space"] is not None and scope["fingerprint"] != space.fingerprint:
        raise SpaceError(
            f"collection {query.collection!r} holds vectors of {scope['model']}, but the profile embeds with "
            f"{space.model}: search with that model, or ingest the collection again with this one"
        )


def _hit(row: Sequence[Any], stage: str, score: float) -> Hit:
    *own, uri, title, language, about, modified_ns = row
    updated_at = datetime.fromtimestamp(modified_ns / 1e9, UTC) if modified_ns else None
    place = stands_at(uri, about)
    origin = Origin(uri=place, title=title, language=language, updated_at=updated_at, metadata=about)
    return Hit(chunk=_chunk(own), origin=origin, score=score, scores={stage: score})


def _chunk(row: Sequence[Any]) -> Chunk:
    id, document_id, ordinal, text, start, end, prefix, metadata = row
    return Chunk(
        id=id,
        document_id=document_id,
        ordinal=ordinal,
        text=text,
        start=start,
        end=end,
        prefix=prefix,
        metadata=metadata,
    )
