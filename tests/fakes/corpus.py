"""The corpus in memory. tests/contract/test_corpus.py holds it to what the real one promises."""

import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from rag_core.errors import NotFoundError, SpaceError
from rag_core.storage.publishing import filter_values
from rag_core.types import Chunk, Comparison, Draft, Filter, Hit, Matrix, Origin, Query, Space, Value, text_hash

_ORDERINGS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A document as it is searched; one without chunks is remembered for its version only."""

    version: int
    groups: tuple[str, ...] = ()
    origin: Origin | None = None
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = ()
    vectors: Mapping[UUID, Matrix] = field(default_factory=dict)


Shelf: TypeAlias = Mapping[UUID, Kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCorpus:
    """As one run of one tenant writes it, and as any query reads it. `replace` gives another writer of the same corpus."""

    tenant: str
    collection: str
    space: Space
    run: int = 1
    shelves: dict[tuple[str, str], Shelf] = field(default_factory=dict)
    spaces: dict[tuple[str, str], Space] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shelves.setdefault(self._place, {})
        self.spaces.setdefault(self._place, self.space)

    def close(self) -> None:
        pass

    def publish(self, drafts: Sequence[Draft]) -> None:
        shelf = self.shelves[self._place]
        self.shelves[self._place] = {**shelf, **{draft.id: self._published(draft, shelf) for draft in drafts}} - _NOTHING

    def delete(self, documents: Sequence[UUID]) -> None:
        gone = set(documents)
        self.shelves[self._place] = {
            id: kept for id, kept in self.shelves[self._place].items() if id not in gone or kept.version >= self.run
        }
