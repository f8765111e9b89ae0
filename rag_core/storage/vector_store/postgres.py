"""Vectors in Postgres, under row-level security as all that a tenant stores. Every search compares every vector that
passes its filter: exact, about a millisecond for ten thousand.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import psycopg
from pgvector import Vector as Embedding
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Placeholder
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from rag_core.errors import SpaceError, StoreError
from rag_core.storage.filters import OPERATORS, parsed_filter
from rag_core.storage.postgres import ASSUME_ROLE, OPTIONS, SET_TENANT, Postgres, shown
from rag_core.storage.vector_store.port import (
    SearchResult,
    Vector,
    check_top_k,
    comparables,
    direction,
    embedding,
    last_of_each,
)
from rag_core.types import Comparison, Filter, Metadata

MAKE_STORE = """
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
# <=> is 1 - cosine, of double precision.
SEARCH = """
select v.id, 1 - (v.embedding <=> %(vector)s) as score, v.metadata from stored_vectors v
where v.tenant = %(tenant)s and v.store = %(store)s and {filter}
order by v.embedding <=> %(vector)s, v.id limit %(k)s"""
PASSING = SQL(
    "v.id {quantifier} (select f.id from stored_vector_values f where f.tenant = %(tenant)s and f.store = %(store)s "
    "and f.key = {key} and (f.text_value {comparison} {texts} or f.number_value {comparison} {numbers}))"
)
# In the order in which those are locked that are added.
DELETE = """
with found as (
  select id from stored_vectors where tenant = %(tenant)s and store = %(store)s and id = any(%(ids)s::text[])
  order by id for update)
delete from stored_vectors v using found
where v.tenant = %(tenant)s and v.store = %(store)s and v.id = found.id returning v.id"""


class PostgresVectorStore:
    """Its connections belong to the event loop that first asks. `close` when done."""

    def __init__(self, postgres: Postgres, tenant: str, name: str, dimension: int) -> None:
        """The store of that name is made when it is first used. SpaceError then if it has another dimension."""
        self._pool = AsyncConnectionPool(
            postgres.dsn,
            kwargs={"options": OPTIONS, "autocommit": True},
            configure=_configure,
            min_size=0,
            max_size=4,
            timeout=10,
            open=False,
        )
        self._shown = shown(postgres.dsn)
        self._scope: dict[str, Any] = {"tenant": tenant, "name": name, "dimension": dimension}

    async def close(self) -> None:
        await self._pool.close()

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        kept = sorted(last_of_each(vectors), key=lambda each: each.id)  # rows are locked in one order
        rows = [self._row(each) for each in kept]
        async with self._transaction() as (connection, scope):
            cursor = connection.cursor()
            await cursor.executemany(ADD, [{**scope, **row} for row in rows])
            await cursor.execute(REMOVE_VALUES, {**scope, "ids": [each.id for each in kept]})
            await cursor.executemany(ADD_VALUES, [{**scope, **row} for each in kept for row in _values(each)])
        return [each.id for each in vectors]

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        check_top_k(top_k)
        vector = direction(query_vector, self._scope["dimension"])
        condition, operands = _condition(parsed_filter(filters)) if filters is not None else (SQL("true"), {})
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

    def _row(self, vector: Vector) -> dict[str, Any]:
        row = Embedding(embedding(vector, self._scope["dimension"]))
        return {"id": vector.id, "embedding": row, "metadata": Jsonb(dict(vector.metadata))}

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[tuple[AsyncConnection, Mapping[str, Any]]]:
        """Of the tenant, with what its statements name."""
        try:
            await self._pool.open()
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(SET_TENANT, self._scope)
                yield connection, await self._named(connection)
        except psycopg.OperationalError as error:
            raise StoreError(f"cannot use the store at {self._shown}: {error}") from error

    async def _named(self, connection: AsyncConnection) -> Mapping[str, Any]:
        row = await (await connection.execute(STORE, self._scope)).fetchone()
        if row is None:
            await connection.execute(MAKE_STORE, self._scope)
            row = await (await connection.execute(STORE, self._scope)).fetchone()
        id, dimension = row or (None, None)
        if dimension != self._scope["dimension"]:
            name, expected = self._scope["name"], self._scope["dimension"]
            raise SpaceError(f"the vector store {name!r} holds vectors of {dimension} dimensions, not {expected}")
        return {**self._scope, "store": id}


async def _configure(connection: AsyncConnection) -> None:
    await connection.execute(ASSUME_ROLE, {"role": "rag_app"})
    await register_vector_async(connection)


def _values(vector: Vector) -> list[dict[str, Any]]:
    return [
        {"id": vector.id, "key": key, "text": text, "number": number}
        for key, text, number in comparables(vector.metadata)
    ]


def _condition(filter: Filter) -> tuple[Composed, dict[str, Any]]:
    operands: dict[str, Any] = {}
    return _composed(filter, operands, count()), operands


def _composed(filter: Filter, operands: dict[str, Any], numbers: "count[int]") -> Composed:
    if isinstance(filter, Comparison):
        return _passing(filter, operands, next(numbers))
    parts = [_composed(each, operands, numbers) for each in filter.filters]
    return SQL("({})").format(SQL(f" {filter.type} ").join(parts))


def _passing(filter: Comparison, operands: dict[str, Any], number: int) -> Composed:
    wanted: Metadata = {filter.key: filter.value}
    operands[f"key_{number}"] = filter.key
    operands[f"texts_{number}"] = [text for _, text, _ in comparables(wanted) if text is not None]
    operands[f"numbers_{number}"] = [value for _, _, value in comparables(wanted) if value is not None]
    return PASSING.format(
        quantifier=SQL("not in" if filter.type in ("ne", "nin") else "in"),
        key=Placeholder(f"key_{number}"),
        comparison=OPERATORS.get(filter.type, SQL("=")),
        texts=SQL("any({}::text[])").format(Placeholder(f"texts_{number}")),
        numbers=SQL("any({}::float8[])").format(Placeholder(f"numbers_{number}")),
    )
