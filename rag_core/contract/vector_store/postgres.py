"""A vector store in Postgres, under row-level security like all data of a tenant."""

from collections.abc import Mapping, Sequence
from typing import Any

from rag_core.contract.vector_store.port import (
    SearchResult,
    Vector,
    check_top_k,
    drop_duplicate_ids,
    to_embedding,
    unit_vector,
)
from rag_core.storage.filters import parse_filter
from rag_core.storage.postgres import Postgres
from rag_core.storage.stored_vectors import StoredVectors


class PostgresVectorStore:
    """The store `name` of a tenant. Its connections belong to the event loop that uses it first. Close it after use.

    The store is created when it is first used. Every method raises SpaceError if it exists with another dimension.
    """

    def __init__(self, postgres: Postgres, tenant: str, name: str, dimension: int) -> None:
        self._dimension = dimension
        self._stored = StoredVectors(postgres, tenant, name, dimension)

    async def close(self) -> None:
        await self._stored.close()

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        rows = [
            (vector.id, to_embedding(vector, self._dimension), vector.metadata)
            for vector in drop_duplicate_ids(vectors)
        ]
        await self._stored.add(rows)
        return [vector.id for vector in vectors]

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        check_top_k(top_k)
        vector = unit_vector(query_vector, self._dimension)
        filter = parse_filter(filters) if filters is not None else None
        rows = await self._stored.search(vector, top_k, filter)
        return [SearchResult(id=id, score=score, metadata=metadata) for id, score, metadata in rows]

    async def delete(self, ids: Sequence[str]) -> int:
        return await self._stored.delete(ids)
