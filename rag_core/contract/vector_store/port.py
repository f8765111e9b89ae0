"""The port of vector stores, which hold vectors that a program computes itself, each with an id and metadata.

Another store can replace those here if it passes tests/contract/test_vector_store.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

import numpy as np

from rag_core.errors import UsageError, VectorError
from rag_core.storage.filters import is_storable, value_elements
from rag_core.types import Matrix, Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A vector to store. It replaces the stored vector with the same `id`."""

    values: Sequence[float]
    id: str = field(default_factory=lambda: str(uuid4()))
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A stored vector that a search found. `score` is the cosine of the angle between it and the query."""

    id: str
    score: float
    metadata: Metadata


class BaseVectorStore(Protocol):
    """A store of vectors. All of them have the same dimension."""

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        """Stores all vectors, or none, and returns their ids in the order given.

        Raises VectorError for a vector of another dimension, with NaN or infinity, or with zeros only, and for an id or
        metadata that cannot be stored.
        """
        ...

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        """Returns at most `top_k` vectors that pass the filter, best first; ties by id.

        `filters` follows the grammar of `rag_core.storage.filters`. Raises FilterError if it breaks the grammar, and
        VectorError for a vector that `add` would not accept.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> int:
        """Deletes the vectors with these ids and returns how many of them existed."""
        ...


def to_embedding(vector: Vector, dimension: int) -> Matrix:
    """The `unit_vector` of the values. Also raises VectorError if the id or the metadata cannot be stored."""
    if not vector.id or not is_storable(vector.id):
        raise VectorError(f"id must be non-empty Unicode text without NUL, got {vector.id!r}")
    for key, value in vector.metadata.items():
        if not all(map(is_storable, (key, *value_elements(value)))):
            raise VectorError(
                f"metadata must hold Unicode texts without NUL, finite numbers or booleans, got {key!r}: {value!r}"
            )
    return unit_vector(vector.values, dimension)


def unit_vector(values: Sequence[float], dimension: int) -> Matrix:
    """The values, scaled to length 1 in double precision. Shape (dimension,).

    Raises VectorError for another dimension, for NaN or infinity, and for zeros only.
    """
    vector = np.asarray(values, np.float64)
    if vector.shape != (dimension,):
        raise VectorError(f"a vector must have {dimension} dimensions, got {', '.join(map(str, vector.shape))}")
    if not np.isfinite(vector).all():
        raise VectorError("a vector must hold finite numbers, got NaN or infinity")
    if not vector.any():
        raise VectorError("a vector must have a length above 0, got zeros only")
    scaled = vector / np.abs(vector).max()  # the square of 1e200 is infinite
    unit: Matrix = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return unit


def check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise UsageError(f"top_k must be >= 1, got {top_k}")


def drop_duplicate_ids(vectors: Iterable[Vector]) -> list[Vector]:
    """The last vector with each id."""
    return list({vector.id: vector for vector in vectors}.values())
