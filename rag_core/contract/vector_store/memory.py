"""A vector store in memory: for tests, notebooks, and vectors that are only needed while the process runs."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_core.contract.vector_store.port import (
    SearchResult,
    Vector,
    check_top_k,
    drop_duplicate_ids,
    to_embedding,
    unit_vector,
)
from rag_core.storage.filters import comparable_values, parse_filter
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
        self._stored |= {
            vector.id: (to_embedding(vector, self._dimension), _copy_metadata(vector.metadata))
            for vector in drop_duplicate_ids(vectors)
        }
        return [vector.id for vector in vectors]

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        check_top_k(top_k)
        query = unit_vector(query_vector, self._dimension)
        filter = parse_filter(filters) if filters is not None else None
        results = [
            SearchResult(id=id, score=_cosine(vector, query), metadata=metadata)
            for id, (vector, metadata) in self._stored.items()
            if filter is None or _passes(filter, metadata)
        ]
        best = sorted(results, key=lambda result: (-result.score, result.id))[:top_k]
        return [replace(result, metadata=_copy_metadata(result.metadata)) for result in best]

    async def delete(self, ids: Sequence[str]) -> int:
        return sum(self._stored.pop(id, None) is not None for id in ids)


def _copy_metadata(metadata: Metadata) -> Metadata:
    """A copy as a store outside the process would return it, with tuples as lists."""
    copy: Metadata = json.loads(json.dumps(dict(metadata)))
    return copy


def _cosine(one: Matrix, other: Matrix) -> float:
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _passes(filter: Filter, metadata: Metadata) -> bool:
    """True if the metadata passes the filter. If it lacks the key, it passes only the comparisons `ne` and `nin`."""
    if isinstance(filter, Comparison):
        is_negative = filter.type in ("ne", "nin")
        return is_negative != any(
            _is_match(filter, text, number) for key, text, number in comparable_values(metadata) if key == filter.key
        )
    quantifier = all if filter.type == "and" else any
    return quantifier(_passes(part, metadata) for part in filter.filters)


def _is_match(filter: Comparison, text: str | None, number: float | None) -> bool:
    """True if the value compares as the filter requires. Texts compare only with texts, numbers only with numbers."""
    compare: Callable[[Any, Any], bool] = _ORDERINGS.get(filter.type, operator.eq)
    return any(
        value is not None and operand is not None and compare(value, operand)
        for _, operand_text, operand_number in comparable_values({"": filter.value})
        for value, operand in ((text, operand_text), (number, operand_number))
    )
