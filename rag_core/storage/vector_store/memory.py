"""Vectors in this process: for tests, notebooks, and what need not outlive it."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_core.storage.filters import parsed_filter
from rag_core.storage.vector_store.port import (
    SearchResult,
    Vector,
    check_top_k,
    comparables,
    direction,
    embedding,
    last_of_each,
)
from rag_core.types import Comparison, Filter, Matrix, Metadata

_ORDERINGS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class MemoryVectorStore:
    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._stored: dict[str, tuple[Matrix, Metadata]] = {}

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        kept = last_of_each(vectors)
        self._stored |= {each.id: (embedding(each, self._dimension), _copied(each.metadata)) for each in kept}
        return [each.id for each in vectors]

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        check_top_k(top_k)
        query = direction(query_vector, self._dimension)
        filter = parsed_filter(filters) if filters is not None else None
        found = [
            SearchResult(id=id, score=_cosine(vector, query), metadata=metadata)
            for id, (vector, metadata) in self._stored.items()
            if filter is None or _passes(filter, metadata)
        ]
        best = sorted(found, key=lambda each: (-each.score, each.id))[:top_k]
        return [replace(each, metadata=_copied(each.metadata)) for each in best]

    async def delete(self, ids: Sequence[str]) -> int:
        return sum(self._stored.pop(id, None) is not None for id in ids)


def _copied(metadata: Metadata) -> Metadata:
    """As it would go to another store and come back: nobody else's, tuples as lists."""
    copied: Metadata = json.loads(json.dumps(dict(metadata)))
    return copied


def _cosine(one: Matrix, other: Matrix) -> float:
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _passes(filter: Filter, metadata: Metadata) -> bool:
    """What lacks the key has no value that is equal to anything: `ne` and `nin` let it pass."""
    if isinstance(filter, Comparison):
        negative = filter.type in ("ne", "nin")
        return negative != any(
            _holds(filter, text, number) for key, text, number in comparables(metadata) if key == filter.key
        )
    quantifier = all if filter.type == "and" else any
    return quantifier(_passes(each, metadata) for each in filter.filters)


def _holds(filter: Comparison, text: str | None, number: float | None) -> bool:
    """Texts compare with texts only, numbers with numbers."""
    compare: Callable[[Any, Any], bool] = _ORDERINGS.get(filter.type, operator.eq)
    return any(
        own is not None and wanted is not None and compare(own, wanted)
        for _, wanted_text, wanted_number in comparables({"": filter.value})
        for own, wanted in ((text, wanted_text), (number, wanted_number))
    )
