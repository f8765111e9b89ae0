"""A vector store in Postgres, under row-level security like all data of a tenant.

A search is exact: it compares every vector that passes the filter, ten thousand in about a millisecond.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import psycopg
from pgvector import Vector as Embedding
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Placeholder
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from rag_core.errors import SpaceError, StoreError
from rag_core.storage.filters import OPERATORS, parse_filter
from rag_core.storage.postgres import OPTIONS, SET_TENANT, Postgres, redact_dsn
from rag_core.storage.snapshot import configure_connection
from rag_core.storage.vector_store.port import (
    SearchResult,
    Vector,
    check_top_k,
    comparable_values,
    drop_duplicate_ids,
    to_embedding,
    unit_vector,
)
from rag_core.types import Comparison, Filter

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
COMPARISON = SQL(
    "v.id {quantifier} (select f.id from stored_vector_values f where f.tenant = %(tenant)s and f.store = %(store)s "
    "and f.key = {key} and (f.text_value {comparison} {texts} or f.number_value {comparison} {numbers}))"
)
# Rows are locked in the same order as `add` locks them.
DELETE = """
with existing as (
  select id from stored_vectors where tenant = %(tenant)s and store = %(store)s and id = any(%(ids)s::text[])
  order by id for update)
delete from stored_vectors v using existing
where v.tenant = %(tenant)s and v.store = %(store)s and v.id = existing.id returning v.id"""


class PostgresVectorStore:
    """The store `name` of a tenant. Its connections belong to the event loop that uses it first. Close it after use.

    The store is created when it is first used. Every method raises SpaceError if it exists with another dimension.
    """

    def __init__(self, postgres: Postgres, tenant: str, name: str, dimension: int) -> None:
        self._pool = AsyncConnectionPool(
            postgres.dsn,
            kwargs={"options": OPTIONS, "autocommit": True},
            configure=configure_connection,
            min_size=0,
            max_size=4,
            timeout=10,
            open=False,
        )
        self._redacted_dsn = redact_dsn(postgres.dsn)
        self._scope: dict[str, Any] = {"tenant": tenant, "name": name, "dimension": dimension}

    async def close(self) -> None:
        await self._pool.close()

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        unique = sorted(drop_duplicate_ids(vectors), key=lambda vector: vector.id)  # all writers lock in this order
        rows = [
            {
                "id": vector.id,
                "embedding": Embedding(to_embedding(vector, self._scope["dimension"])),
                "metadata": Jsonb(dict(vector.metadata)),
            }
            for vector in unique
        ]
        values = [
            {"id": vector.id, "key": key, "text": text, "number": number}
            for vector in unique
            for key, text, number in comparable_values(vector.metadata)
        ]
        async with self._transaction() as (connection, scope):
            cursor = connection.cursor()
            await cursor.executemany(ADD, [{**scope, **row} for row in rows])
            await cursor.execute(REMOVE_VALUES, {**scope, "ids": [vector.id for vector in unique]})
            await cursor.executemany(ADD_VALUES, [{**scope, **value} for value in values])
        return [vector.id for vector in vectors]

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        check_top_k(top_k)
        vector = unit_vector(query_vector, self._scope["dimension"])
        operands: dict[str, Any] = {}
        condition = _condition(parse_filter(filters), operands, count()) if filters is not None else SQL("true")
        statement = SQL(SEARCH).format(filter=condition)
        async with self._transaction() as (connection, scope):
            parameters = {**scope, **operands, "vector": Embedding(vector), "k": top_k}
            rows = await connection.execute(statement, parameters)
            return [SearchResult(id=id, score=score, metadata=metadata) async for id, score, metadata in rows]

    async def delete(self, ids: Sequence[str]) -> int:
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
                yield connection, await self._open_store(connection)
        except psycopg.OperationalError as error:
            raise StoreError(f"cannot use the store at {self._redacted_dsn}: {error}") from error

    async def _open_store(self, connection: AsyncConnection) -> Mapping[str, Any]:
        """Creates the store if it does not exist. Returns the parameters that all statements take."""
        row = await (await connection.execute(STORE, self._scope)).fetchone()
        if row is None:
            await connection.execute(CREATE_STORE, self._scope)
            row = await (await connection.execute(STORE, self._scope)).fetchone()
        id, dimension = row or (None, None)
        if dimension != self._scope["dimension"]:
            name, expected = self._scope["name"], self._scope["dimension"]
            raise SpaceError(f"the vector store {name!r} holds vectors of {dimension} dimensions, not {expected}")
        return {**self._scope, "store": id}


def _condition(filter: Filter, operands: dict[str, Any], numbers: "count[int]") -> Composed:
    """The SQL condition of the filter. Adds its parameters to `operands`; `numbers` makes their names distinct."""
    if not isinstance(filter, Comparison):
        parts = [_condition(part, operands, numbers) for part in filter.filters]
        return SQL("({})").format(SQL(f" {filter.type} ").join(parts))
    number, values = next(numbers), comparable_values({filter.key: filter.value})
    operands[f"key_{number}"] = filter.key
    operands[f"texts_{number}"] = [text for _, text, _ in values if text is not None]
    operands[f"numbers_{number}"] = [value for _, _, value in values if value is not None]
    return COMPARISON.format(
        quantifier=SQL("not in" if filter.type in ("ne", "nin") else "in"),
        key=Placeholder(f"key_{number}"),
        comparison=OPERATORS.get(filter.type, SQL("=")),
        texts=SQL("any({}::text[])").format(Placeholder(f"texts_{number}")),
        numbers=SQL("any({}::float8[])").format(Placeholder(f"numbers_{number}")),
    )
