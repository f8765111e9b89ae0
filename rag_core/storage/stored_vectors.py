"""The vectors that a program computes itself, apart from the corpus.

A search is exact: it compares every vector that passes the filter, ten thousand in about a millisecond.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
from anyio import to_thread
from pgvector import Vector
from psycopg import AsyncConnection
from psycopg.sql import SQL
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from rag_core.errors import SpaceError, StoreError
from rag_core.storage.filters import comparable_values, vector_filter
from rag_core.storage.postgres import OPTIONS, SET_TENANT, Postgres, redact_dsn
from rag_core.storage.snapshot import configure_connection
from rag_core.types import Filter, Matrix, Metadata

CREATE_STORE = """
insert into vector_stores (tenant, name, dimension) values (%(tenant)s, %(name)s, %(dimension)s)
on conflict (tenant, name) do nothing"""
STORE = "select id, dimension from vector_stores where tenant = %(tenant)s and name = %(name)s"
ADD = """
insert into stored_vectors (tenant, store, id, embedding, metadata)
values (%(tenant)s, %(store)s, %(id)s, %(embedding)s, %(metadata)s)
on conflict (tenant, store, id) do update set embedding = excluded.embedding, metadata = excluded.metadata"""
REMOVE_VALUES = """
delete from stored_vector_values where tenant = %(tenant)s and store = %(store)s and id = any(%(ids)s::text[])"""
ADD_VALUES = """
insert into stored_vector_values (tenant, store, id, key, text_value, number_value)
values (%(tenant)s, %(store)s, %(id)s, %(key)s, %(text)s, %(number)s)"""
# <=> is 1 - cosine, in double precision.
SEARCH = """
select v.id, 1 - (v.embedding <=> %(vector)s) as score, v.metadata from stored_vectors v
where v.tenant = %(tenant)s and v.store = %(store)s and {filter}
order by v.embedding <=> %(vector)s, v.id limit %(k)s"""
# Rows are locked in the same order as `add` locks them.
DELETE = """
with existing as (
  select id from stored_vectors where tenant = %(tenant)s and store = %(store)s and id = any(%(ids)s::text[])
  order by id for update)
delete from stored_vectors v using existing
where v.tenant = %(tenant)s and v.store = %(store)s and v.id = existing.id returning v.id"""


class StoredVectors:
    """The statements of a `PostgresVectorStore`, whose docstring applies. Vectors have length 1."""

    def __init__(self, postgres: Postgres, tenant: str, name: str, dimension: int) -> None:
        self._pool = AsyncConnectionPool(
            partial(to_thread.run_sync, postgres.read_dsn),
            kwargs={"options": OPTIONS, "autocommit": True},
            configure=configure_connection,
            min_size=0,
            max_size=4,
            timeout=10,
            open=False,
        )
        self._redacted_dsn = redact_dsn(postgres.dsn)
        self._scope: Mapping[str, Any] = {"tenant": tenant, "name": name, "dimension": dimension}

    async def close(self) -> None:
        await self._pool.close()

    async def add(self, rows: Sequence[tuple[str, Matrix, Metadata]]) -> None:
        """Stores ids, vectors and metadata. The ids are distinct; a stored vector with the same id is replaced."""
        rows = sorted(rows, key=lambda row: row[0])  # all writers lock in this order
        vectors = [
            {"id": id, "embedding": Vector(vector), "metadata": Jsonb(dict(metadata))} for id, vector, metadata in rows
        ]
        values = [
            {"id": id, "key": key, "text": text, "number": number}
            for id, _, metadata in rows
            for key, text, number in comparable_values(metadata)
        ]
        async with self._transaction() as (connection, scope):
            cursor = connection.cursor()
            await cursor.executemany(ADD, [{**scope, **vector} for vector in vectors])
            await cursor.execute(REMOVE_VALUES, {**scope, "ids": [id for id, _, _ in rows]})
            await cursor.executemany(ADD_VALUES, [{**scope, **value} for value in values])

    async def search(self, vector: Matrix, k: int, filter: Filter | None) -> list[tuple[str, float, Metadata]]:
        """The ids, cosines and metadata of the nearest vectors that pass the filter, best first; ties by id."""
        condition, operands = vector_filter(filter, "v.id")
        statement = SQL(SEARCH).format(filter=condition)
        async with self._transaction() as (connection, scope):
            rows = await connection.execute(statement, {**scope, **operands, "vector": Vector(vector), "k": k})
            return await rows.fetchall()

    async def delete(self, ids: Sequence[str]) -> int:
        """Deletes the vectors with these ids and returns how many of them existed."""
        async with self._transaction() as (connection, scope):
            rows = await connection.execute(DELETE, {**scope, "ids": list(ids)})
            deleted = [id async for (id,) in rows]
            await connection.execute(REMOVE_VALUES, {**scope, "ids": deleted})
            return len(deleted)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[tuple[AsyncConnection, Mapping[str, Any]]]:
        """Yields a connection within a transaction of the tenant, and the parameters that all statements take."""
        try:
            await self._pool.open()
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(SET_TENANT, self._scope)
                yield connection, {**self._scope, "store": await self._open_store(connection)}
        except psycopg.OperationalError as error:
            raise StoreError(f"cannot use the store at {self._redacted_dsn}: {error}") from error

    async def _open_store(self, connection: AsyncConnection) -> int:
        """Returns the id of the store. Creates the store if it does not exist."""
        row = await (await connection.execute(STORE, self._scope)).fetchone()
        if row is None:
            await connection.execute(CREATE_STORE, self._scope)
            row = await (await connection.execute(STORE, self._scope)).fetchone()
        id, dimension = row or (0, None)
        if dimension != self._scope["dimension"]:
            raise SpaceError(
                f"the vector store {self._scope['name']!r} holds vectors of {dimension} dimensions, "
                f"not {self._scope['dimension']}"
            )
        return int(id)
