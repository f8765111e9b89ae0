"""The read side of the corpus: rankings and texts for queries. All reads of a retrieval use one snapshot."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import UTC, datetime
from math import nan
from typing import Any, LiteralString
from uuid import UUID

from pgvector import HalfVector
from psycopg.sql import SQL, Literal

from rag_core.errors import SpaceError
from rag_core.storage.filters import chunk_filter, has_chunk_condition
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import document_url
from rag_core.storage.snapshot import HIDDEN, USUAL_BREADTH, Reading, Snapshot, Snapshots
from rag_core.types import Chunk, Hit, Matrix, Origin, Query, Space, TermWeights

NEAREST = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.document_id not in (select id from hidden) and {filter}
order by v.embedding <#> %(vector)s, v.chunk_id limit %(k)s"""
# Reads the readable documents by the index on documents, where NEAREST reads all vectors of the collection.
NEAREST_READABLE = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.document_id in (select d.id from documents d where d.tenant = %(tenant)s and d.collection = %(collection_id)s
    and (d.access = '{{}}' or d.access && %(groups)s::text[]))
  and {filter}
order by v.embedding <#> %(vector)s, v.chunk_id limit %(k)s"""
# The index is partial: only a statement with the index's own constants can use it, even if its plan is kept. `offset 0`
# makes Postgres test the filter one chunk at a time; a join would first read all chunks that pass it. Iterative scans
# return rows slightly out of order.
NEAREST_INDEXED = """
select v.chunk_id, -(v.embedding::halfvec({dimension}) <#> %(vector)s) as score from vectors v
where v.tenant = {tenant} and v.collection = {collection_id} and v.space = {space}
  and v.document_id not in (select id from hidden)
  and exists (select from (values (v.document_id, v.chunk_id)) as v (document_id, chunk_id) where {filter} offset 0)
order by v.embedding::halfvec({dimension}) <#> %(vector)s limit {k}"""
SET_BREADTH = "set local hnsw.ef_search = {breadth}"
SIMILARITIES = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.chunk_id = any(%(ids)s::uuid[])"""
# True if few documents, or few chunks, are readable and pass the filter. Counting stops at the limits.
HAS_FEW_DOCUMENTS = """
select count(*) < %(max_documents)s and coalesce(sum(n), 0) < %(max_chunks)s from (
  select v.n_chunks as n from documents v where v.tenant = %(tenant)s and v.collection = %(collection_id)s
    and (v.access = '{{}}' or v.access && %(groups)s::text[]) and {filter}
  limit %(max_documents)s) passing"""
HAS_FEW_CHUNKS = """
select count(*) < %(max_chunks)s from (
  select from chunks v where v.tenant = %(tenant)s and v.collection = %(collection_id)s
    and v.document_id not in ({hidden}) and {filter}
  limit %(max_chunks)s) passing"""
FETCH_HITS = """
select c.id, c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.prefix, c.metadata,
  d.uri, d.title, d.language, d.metadata, d.modified_ns
from unnest(%(ids)s::uuid[]) with ordinality as requested (id, position)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = requested.id
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
order by requested.position"""
FETCH_NEIGHBOURS = """
select requested.position, n.id, n.document_id, n.ordinal, n.text, n.start_offset, n.end_offset, n.prefix,
  n.metadata
from unnest(%(ids)s::uuid[]) with ordinality as requested (id, position)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = requested.id
join chunks n on n.tenant = c.tenant and n.collection = c.collection and n.document_id = c.document_id
  and n.ordinal between c.ordinal - %(before)s and c.ordinal + %(after)s and n.id <> c.id
order by requested.position, n.ordinal"""

BREADTH, BREADTH_FILTERED, MAX_BREADTH = 100, 400, 1_000
"""The candidates of an index search: without a filter, with one, and at most. With 100 candidates, a filter that one
chunk in ten passes costs 6 % of the recall."""

MAX_EXACT_DOCUMENTS, MAX_EXACT_CHUNKS = 1_250, 5_000
"""If fewer documents and chunks than these pass the filter, every vector is compared. In a collection of 100,000 chunks
this takes as long as a search of the index, and it is exact."""

CACHE_BYTES, CHUNK_CACHE_BYTES = 64 << 20, 256 << 20
"""Sizes of a process's caches for posting lists and for chunk ids (seven million of them). BM25 has one pair of caches,
and SPLADE has another."""


class CorpusReader:
    """Rankings and texts of a store. Its connections belong to the event loop that reads first.

    `protect` is the method of a circuit breaker. It surrounds the beginning of each snapshot.
    """

    def __init__(
        self,
        postgres: Postgres,
        cache_bytes: int = CACHE_BYTES,
        protect: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._words, self._weights = (SegmentCache(cache_bytes, CHUNK_CACHE_BYTES) for _ in range(2))
        self._snapshots = Snapshots(postgres, protect)

    async def close(self) -> None:
        await self._snapshots.close()

    def reading(self, query: Query) -> AbstractAsyncContextManager[Reading]:
        """Makes all reads of the block share one snapshot: see `Snapshots.reading`."""
        return self._snapshots.reading(query)

    def snapshot(self, query: Query) -> AbstractAsyncContextManager[Snapshot]:
        """Takes a turn on a snapshot: see `Snapshots.snapshot`."""
        return self._snapshots.snapshot(query)

    async def rank_dense(self, query: Query, vector: Matrix, space: Space, k: int) -> list[tuple[UUID, float]]:
        """Chunk ids and inner products with `vector`, shape (dimension,), best first; ties by id.

        Exact unless the collection has an index and more than a few thousand of its chunks are readable and pass the
        filter.
        """
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            ranking: list[tuple[UUID, float]] = []
            if snapshot.scope["indexed"] and not await _few_chunks_pass(snapshot, query):
                ranking = await _search_index(snapshot, query, vector, k)
            if len(ranking) == k:
                return ranking
            nearest = NEAREST_READABLE if snapshot.scope["has_hidden"] else NEAREST
            return await _search_vectors(snapshot, nearest, query, vector, k)

    async def rank_bm25(self, query: Query, k: int, parameters: Bm25) -> list[tuple[UUID, float]]:
        """Chunks that contain a term of the question, and their exact scores, best first; ties by id."""
        from rag_core.storage.lexical import reading  # slow to import: it compiles functions or loads compiled ones

        async with self.snapshot(query) as snapshot:
            return await reading.rank_by_words(snapshot, self._words, query, parameters, k)

    async def score_bm25(self, query: Query, chunk_ids: Sequence[UUID], parameters: Bm25) -> list[float]:
        """The scores that `rank_bm25` would assign, in the order given; 0 for chunks without a term of the question."""
        from rag_core.storage.lexical import reading

        async with self.snapshot(query) as snapshot:
            return await reading.score_by_words(snapshot, self._words, query, parameters, chunk_ids)

    async def idf(self, query: Query) -> Mapping[str, float]:
        """The inverse document frequency of each term of the question, over all languages of the collection."""
        from rag_core.storage.lexical import idf

        async with self.snapshot(query) as snapshot:
            return await idf.idf(snapshot, self._words, query)

    async def rank_splade(
        self, query: Query, weights: TermWeights, fingerprint: str, k: int
    ) -> list[tuple[UUID, float]]:
        """Chunks that share a term with `weights`, and the dot products with it, best first; ties by id.

        Raises SpaceError if the collection has no weights of the model with that fingerprint.
        """
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.rank(snapshot, self._weights, query, weights, fingerprint, k)

    async def score_splade(
        self, query: Query, weights: TermWeights, fingerprint: str, chunk_ids: Sequence[UUID]
    ) -> list[float]:
        """The scores that `rank_splade` would assign, in the order given; NaN for a chunk that has no weights."""
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.score(snapshot, self._weights, query, weights, fingerprint, chunk_ids)

    async def score_dense(self, query: Query, vector: Matrix, space: Space, chunk_ids: Sequence[UUID]) -> list[float]:
        """Exact inner products with `vector`, shape (dimension,), in the order given; NaN if a chunk has no vector."""
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            parameters = {**snapshot.scope, "vector": HalfVector(vector), "ids": list(chunk_ids)}
            rows = await snapshot.connection.execute(SIMILARITIES, parameters, binary=True)
            scores: dict[UUID, float] = dict(await rows.fetchall())
        return [scores.get(id, nan) for id in chunk_ids]

    async def fetch_hits(self, query: Query, stage: str, ranking: Sequence[tuple[UUID, float]]) -> list[Hit]:
        """The hits of a ranking, in its order. `stage` is the name under which each hit keeps its score."""
        async with self.snapshot(query) as snapshot:
            parameters = {**snapshot.scope, "ids": [id for id, _ in ranking]}
            rows = await snapshot.connection.execute(FETCH_HITS, parameters)
            scores = dict(ranking)
            return [_hit_from_row(row, stage, scores[row[0]]) for row in await rows.fetchall()]

    async def fetch_neighbours(self, query: Query, hits: Sequence[Hit], before: int, after: int) -> list[list[Chunk]]:
        """The chunks around each hit in its document: up to `before` and `after`, in text order, without the hit's own.

        In the snapshot of the search, they belong to the version of the document that was searched.
        """
        neighbours: list[list[Chunk]] = [[] for _ in hits]
        async with self.snapshot(query) as snapshot:
            values = {"ids": [hit.chunk.id for hit in hits], "before": before, "after": after}
            rows = await snapshot.connection.execute(FETCH_NEIGHBOURS, {**snapshot.scope, **values})
            async for position, *row in rows:
                neighbours[position - 1].append(_chunk_from_row(row))
        return neighbours


async def _few_chunks_pass(snapshot: Snapshot, query: Query) -> bool:
    """True if so few readable chunks pass the filter that comparing their vectors is as fast as the index."""
    if query.filters is None and not snapshot.scope["has_hidden"]:
        return False
    if query.filters and has_chunk_condition(query.filters):
        statement, columns = HAS_FEW_CHUNKS, ("v.document_id", "v.id")
    else:
        statement, columns = HAS_FEW_DOCUMENTS, ("v.id", "v.id")
    condition, values = chunk_filter(query.filters, *columns)
    limits = {"max_documents": MAX_EXACT_DOCUMENTS, "max_chunks": MAX_EXACT_CHUNKS}
    parameters = {**snapshot.scope, **values, **limits}
    counting = SQL(statement).format(filter=condition, hidden=SQL(HIDDEN))
    rows = await snapshot.connection.execute(counting, parameters, prepare=False)
    return await rows.fetchone() == (True,)


async def _search_index(snapshot: Snapshot, query: Query, vector: Matrix, k: int) -> list[tuple[UUID, float]]:
    is_filtered = query.filters is not None or snapshot.scope["has_hidden"]
    breadth = min(max(BREADTH_FILTERED if is_filtered else BREADTH, 2 * k), MAX_BREADTH)
    if breadth != USUAL_BREADTH:
        await snapshot.connection.execute(SET_BREADTH.format(breadth=breadth).encode())
    ranking = await _search_vectors(snapshot, NEAREST_INDEXED, query, vector, k)
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


async def _search_vectors(
    snapshot: Snapshot, nearest: LiteralString, query: Query, vector: Matrix, k: int
) -> list[tuple[UUID, float]]:
    condition, values = chunk_filter(query.filters, "v.document_id", "v.chunk_id")
    constants = {name: Literal(snapshot.scope[name]) for name in ("tenant", "collection_id", "space", "dimension")}
    statement = SQL("with hidden as materialized ({hidden}) {nearest}").format(
        hidden=SQL(HIDDEN), nearest=SQL(nearest).format(filter=condition, k=Literal(k), **constants)
    )
    parameters = {**snapshot.scope, **values, "vector": HalfVector(vector), "k": k}
    prepare = None if query.filters is None else False  # plans with a filter must not be kept; None: psycopg decides
    rows = await snapshot.connection.execute(statement, parameters, prepare=prepare, binary=True)
    return [(id, score) for id, score in await rows.fetchall()]


def _check_space(query: Query, scope: Mapping[str, Any], space: Space) -> None:
    if scope["space"] is not None and scope["fingerprint"] != space.fingerprint:
        raise SpaceError(
            f"collection {query.collection!r} holds vectors of {scope['model']}, but the profile embeds with "
            f"{space.model}{_difference(scope, space)}: search with that model, or ingest the collection again with "
            "this one"
        )


def _difference(scope: Mapping[str, Any], space: Space) -> str:
    """What differs if the model is the same, for a message."""
    if scope["model"] != space.model:
        return ""
    if scope["dimension"] != space.dimension:
        return f" in {space.dimension} dimensions, not {scope['dimension']}"
    return " with other files or prompts"


def _hit_from_row(row: Sequence[Any], stage: str, score: float) -> Hit:
    *columns, uri, title, language, metadata, modified_ns = row
    updated_at = datetime.fromtimestamp(modified_ns / 1e9, UTC) if modified_ns else None
    url = document_url(uri, metadata)
    origin = Origin(uri=url, title=title, language=language, updated_at=updated_at, metadata=metadata)
    return Hit(chunk=_chunk_from_row(columns), origin=origin, score=score, scores={stage: score})


def _chunk_from_row(row: Sequence[Any]) -> Chunk:
    id, document_id, ordinal, text, start, end, prefix, metadata = row
    return Chunk(
        id=id,
        document_id=document_id,
        ordinal=ordinal,
        text=text,
        start=start,
        end=end,
        prefix=prefix,
        metadata=metadata,
    )
