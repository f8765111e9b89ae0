"""The corpus in memory. tests/contract/test_corpus.py checks that it keeps the promises of the real one."""

import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import nan
from typing import TypeAlias
from uuid import UUID

import numpy as np

from rag_core.errors import NotFoundError, SpaceError
from rag_core.storage.filters import CHUNK_KEYS, comparable_elements
from rag_core.storage.publishing import filterable_metadata
from rag_core.types import (
    Chunk,
    Comparison,
    Draft,
    Filter,
    Hit,
    Matrix,
    Metadata,
    Origin,
    Query,
    Space,
    Value,
    text_hash,
)

ORDERINGS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDocument:
    """A document that can be searched. Without chunks it only records a version."""

    version: int
    uri: str
    updated_at: datetime
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    chunks: Mapping[UUID, Chunk] = field(default_factory=dict)
    vectors: Mapping[UUID, Matrix] = field(default_factory=dict)


CollectionKey: TypeAlias = tuple[str, str]
"""A tenant and the name of a collection."""

Shelf: TypeAlias = Mapping[UUID, MemoryDocument]
"""A collection's documents by id. It never changes, it is only replaced: so a reference to it is a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCorpus:
    """A corpus that one run of one tenant writes and that any query reads.

    `dataclasses.replace` makes another writer of the same corpus.
    """

    tenant: str
    collection: str
    space: Space
    run: int = 1
    shelves: dict[CollectionKey, Shelf] = field(default_factory=dict)
    spaces: dict[CollectionKey, Space] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shelves.setdefault(self._key, {})
        self.spaces.setdefault(self._key, self.space)

    def close(self) -> None:
        pass

    def publish(self, drafts: Sequence[Draft]) -> None:
        shelf = dict(self.shelves[self._key])
        for draft in drafts:
            if document := self._next_version(draft, shelf.get(draft.id)):
                shelf[draft.id] = document
        self.shelves[self._key] = shelf

    def delete(self, documents: Sequence[UUID]) -> None:
        shelf = self.shelves[self._key]
        gone = {id for id in documents if id in shelf and shelf[id].version < self.run}
        self.shelves[self._key] = {id: document for id, document in shelf.items() if id not in gone}

    def find_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, Matrix]:
        tenant_shelves = [shelf for key, shelf in self.shelves.items() if key[0] == self.tenant]
        stored = {
            text_hash(chunk.embedded_text): document.vectors[chunk.id].astype(np.float32)
            for shelf in tenant_shelves
            for document in shelf.values()
            for chunk in document.chunks.values()
        }
        return {key: stored[key] for key in hashes if key in stored}

    def restrict(self, document: UUID, groups: Sequence[str]) -> None:
        shelf = self.shelves[self._key]
        self.shelves[self._key] = {**shelf, document: replace(shelf[document], groups=tuple(groups))}

    @asynccontextmanager
    async def reading(self, query: Query) -> AsyncIterator[None]:
        if (query.tenant, query.collection) not in self.shelves:
            yield
            return
        async with self.snapshot(query):
            yield

    @asynccontextmanager
    async def snapshot(self, query: Query) -> AsyncIterator[Shelf]:
        place = (query.tenant, query.collection)
        if place in _open.get():
            yield _open.get()[place]
            return
        if place not in self.shelves:
            raise NotFoundError(f"no collection {query.collection!r}")
        token = _open.set({**_open.get(), place: self.shelves[place]})
        try:
            yield self.shelves[place]
        finally:
            _open.reset(token)

    async def rank_dense(self, query: Query, vector: Matrix, space: Space, k: int) -> list[tuple[UUID, float]]:
        async with self.snapshot(query) as shelf:
            stored = self.spaces[query.tenant, query.collection]
            if stored != space:
                raise SpaceError(
                    f"collection {query.collection!r} holds vectors of {stored.model}, not of {space.model}"
                )
            scored = [
                (id, _product(row, vector))
                for document in shelf.values()
                if _is_readable(document, query.groups)
                for id, row in document.vectors.items()
                if query.filters is None or passes(query.filters, _values(document, document.chunks[id]))
            ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]

    async def score_dense(self, query: Query, vector: Matrix, space: Space, chunk_ids: Sequence[UUID]) -> list[float]:
        scores = dict(await self.rank_dense(replace(query, filters=None), vector, space, 1_000_000))
        return [scores.get(id, nan) for id in chunk_ids]

    async def fetch_hits(self, query: Query, stage: str, ranking: Sequence[tuple[UUID, float]]) -> list[Hit]:
        async with self.snapshot(query) as shelf:
            owners = {id: document for document in shelf.values() for id in document.chunks}
            return [
                Hit(chunk=owners[id].chunks[id], origin=_origin(owners[id]), score=score, scores={stage: score})
                for id, score in ranking
                if id in owners
            ]

    async def fetch_neighbours(self, query: Query, hits: Sequence[Hit], before: int, after: int) -> list[list[Chunk]]:
        async with self.snapshot(query) as shelf:
            owners = {id: document for document in shelf.values() for id in document.chunks}
            return [_neighbours(owners[hit.chunk.id], hit.chunk.id, before, after) for hit in hits]

    @property
    def _key(self) -> CollectionKey:
        return self.tenant, self.collection

    def _next_version(self, draft: Draft, old: MemoryDocument | None) -> MemoryDocument | None:
        updated_at = datetime.fromtimestamp(draft.entry.modified_ns / 1e9, UTC)
        if old and (old.version >= self.run):
            return old
        if draft.same or (draft.failure and draft.failure.retryable and old):
            return old and replace(old, version=self.run, updated_at=updated_at)
        blank = MemoryDocument(version=self.run, uri=draft.entry.uri, updated_at=updated_at, groups=draft.access)
        if draft.document is None or draft.vectors is None:
            return blank
        return replace(
            blank,
            title=draft.document.title,
            metadata=draft.document.metadata,
            values=comparable_elements(filterable_metadata(draft)),
            chunks={chunk.id: chunk for chunk in draft.chunks},
            vectors={chunk.id: row for chunk, row in zip(draft.chunks, draft.vectors.astype(np.float16), strict=True)},
        )


_open: ContextVar[Mapping[CollectionKey, Shelf]] = ContextVar("open", default={})  # noqa: B039  # never changed, only replaced


def passes(filter: Filter, values: Mapping[str, Sequence[Value]]) -> bool:
    """True if the values pass the filter. A document without the key passes `ne` and `nin`."""
    if isinstance(filter, Comparison):
        negative = filter.type in ("ne", "nin")
        return negative != any(_matches(filter, value) for value in values.get(filter.key, ()))
    quantifier = all if filter.type == "and" else any
    return quantifier(passes(part, values) for part in filter.filters)


def _matches(filter: Comparison, value: Value) -> bool:
    operands = filter.value if isinstance(filter.value, list | tuple) else [filter.value]
    compare = ORDERINGS.get(filter.type, operator.eq)
    return any(_kind(value) is _kind(operand) and compare(value, operand) for operand in operands)


def _kind(value: Value) -> type:
    return type(value) if isinstance(value, str | bool) else float


def _values(document: MemoryDocument, chunk: Chunk) -> Mapping[str, Sequence[Value]]:
    chunk_values = {key: [chunk.metadata[key]] if key in chunk.metadata else [] for key in CHUNK_KEYS}
    return {**document.values, **chunk_values}


def _neighbours(document: MemoryDocument, id: UUID, before: int, after: int) -> list[Chunk]:
    ordinal = document.chunks[id].ordinal
    near = [chunk for chunk in document.chunks.values() if ordinal - before <= chunk.ordinal <= ordinal + after]
    return sorted((chunk for chunk in near if chunk.id != id), key=lambda chunk: chunk.ordinal)


def _is_readable(document: MemoryDocument, groups: Sequence[str]) -> bool:
    return not document.groups or not set(document.groups).isdisjoint(groups)


def _product(row: Matrix, vector: Matrix) -> float:
    return float((row.astype(np.float64) * vector.astype(np.float16).astype(np.float64)).sum())


def _origin(document: MemoryDocument) -> Origin:
    return Origin(uri=document.uri, title=document.title, updated_at=document.updated_at, metadata=document.metadata)
