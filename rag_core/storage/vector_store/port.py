"""The port of vector stores: vectors that a program brings by itself, each with an id and metadata.

What another store must do to take the product's place here is what tests/contract/test_vector_store.py holds it to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

import numpy as np

from rag_core.errors import UsageError, VectorError
from rag_core.storage.filters import storable
from rag_core.storage.publishing import COMPARABLE_BYTES
from rag_core.types import Matrix, Metadata, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One that is added under the `id` of another takes its place."""

    values: Sequence[float]
    id: str = field(default_factory=lambda: str(uuid4()))
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """`score` is the cosine."""

    id: str
    score: float
    metadata: Metadata


class BaseVectorStore(Protocol):
    """All vectors of a store have its one dimension."""

    async def add(self, vectors: Sequence[Vector]) -> list[str]:
        """Their ids, in the order given; all of them are stored, or none.

        VectorError for another dimension, for one with NaN or infinity, for one without a length, and for an id or
        metadata that cannot be stored.
        """
        ...

    async def search(
        self, query_vector: Sequence[float], top_k: int = 10, filters: Mapping[str, Any] | None = None
    ) -> list[SearchResult]:
        """Best first, ties by id; at most `top_k`. `filters` in the grammar of `rag_core.storage.filters`.

        VectorError as `add`, FilterError for a filter that the grammar does not know.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> int:
        """How many of them there were."""
        ...


def embedding(vector: Vector, dimension: int) -> Matrix:
    """As `direction`, of a vector that can be stored."""
    if not vector.id or not storable(vector.id):
        raise VectorError(f"an id is a text of Unicode that is not empty and has no NUL, got {vector.id!r}")
    for key, value in vector.metadata.items():
        if not all(map(storable, (key, *_listed(value)))):
            raise VectorError(
                f"metadata holds Unicode texts without NUL, finite numbers and booleans, got {key!r}: {value!r}"
            )
    return direction(vector.values, dimension)


def direction(values: Sequence[float], dimension: int) -> Matrix:
    """Shape (dimension,), of length 1: what is very long or very short has no length in single precision."""
    vector = np.asarray(values, np.float64)
    if vector.shape != (dimension,):
        raise VectorError(f"a vector of this store has {dimension} dimensions, got {', '.join(map(str, vector.shape))}")
    if not np.isfinite(vector).all():
        raise VectorError("a vector holds finite numbers, got NaN or infinity")
    if not vector.any():
        raise VectorError("a vector has a length above 0, got zeros only")
    scaled = vector / np.abs(vector).max()  # the square of 1e200 is infinite
    unit: Matrix = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return unit


def check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise UsageError(f"top_k must be >= 1, got {top_k}")


def last_of_each(vectors: Iterable[Vector]) -> list[Vector]:
    """One an id."""
    return list({vector.id: vector for vector in vectors}.values())


def comparables(metadata: Metadata) -> list[tuple[str, str | None, float | None]]:
    """What filters compare: key and text, or key and number; several of a list. No text that fits no index."""
    pairs = ((key, each) for key, value in metadata.items() for each in _listed(value))
    return [
        (key, *_typed(value))
        for key, value in pairs
        if not isinstance(value, str) or len(f"{key}{value}".encode()) <= COMPARABLE_BYTES
    ]


def _listed(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else [value]


def _typed(value: Value) -> tuple[str | None, float | None]:
    if isinstance(value, bool):
        return str(value).lower(), None
    return (None, float(value)) if isinstance(value, int | float) else (str(value), None)
