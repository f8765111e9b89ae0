"""The corpus as the query path reads it: rankings and texts, all from one snapshot a retrieval."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from math import nan
from typing import Any, LiteralString
from uuid import UUID

from pgvector import HalfVector
from psycopg.sql import SQL, Literal

from rag_core.errors import SpaceError
from rag_core.storage.filters import chunk_filter, compares_chunks
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.segment_cache import SegmentCache
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import stands_at
from rag_core.storage.snapshot import HIDDEN, USUAL_BREADTH, Reading, Snapshot, Snapshots
from rag_core.types import Chunk, Hit, Matrix, Origin, Query, Space, TermWeights

NEAREST = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.document_id not in (select id from hidden) and {filter}
order by v.embedding <#> %(vector)s, v.chunk_id limit %(k)s"""
# As the index has it, which is partial: for its own constants only may a plan be kept. The filter is asked about one
# chunk after another: `offset 0` keeps the planner from turning it into a join, which would read all that passes first.
# Iterative scans return rows slightly out of order.
NEAREST_INDEXED = """
select v.chunk_id, -(v.embedding::halfvec({dimension}) <#> %(vector)s) as score from vectors v
where v.tenant = {tenant} and v.collection = {collection_id} and v.space = {space}
  and v.document_id not in (select id from hidden)
  and exists (select from (values (v.document_id, v.chunk_id)) as v (document_id, chunk_id) where {filter} offset 0)
order by v.embedding::halfvec({dimension}) <#> %(vector)s limit {k}"""
SEARCH_BROADLY = "set local hnsw.ef_search = {breadth}"
SIMILARITIES = """
select v.chunk_id, -(v.embedding <#> %(vector)s) as score from vectors v
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and v.space = %(space)s
  and v.chunk_id = any(%(ids)s::uuid[])"""
# Counted until they are too many.
DOCUMENTS_PASSING = """
select count(*) < %(most_documents)s and coalesce(sum(n), 0) < %(most_chunks)s from (
  select v.n_chunks as n from documents v where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}
  limit %(most_documents)s) passing"""
CHUNKS_PASSING = """
select count(*) < %(most_chunks)s from (
  select from chunks v where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}
  limit %(most_chunks)s) passing"""
FETCH = """
select c.id, c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.prefix, c.metadata,
  d.uri, d.title, d.language, d.metadata, d.modified_ns
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = wanted.id
join documents d on d.tenant = c.tenant and d.collection = c.collection and d.id = c.document_id
order by wanted.place"""
AROUND = """
select wanted.place, n.id, n.document_id, n.ordinal, n.text, n.start_offset, n.end_offset, n.prefix, n.metadata
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = wanted.id
join chunks n on n.tenant = c.tenant and n.collection = c.collection and n.document_id = c.document_id
  and n.ordinal between c.ordinal - %(before)s and c.ordinal + %(after)s and n.id <> c.id
order by wanted.place, n.ordinal"""

BREADTH, BREADTH_FILTERED, MOST_BREADTH = 100, 400, 1_000
"""How many candidates the index is searched for. With 100 a filter that one in ten passes costs 6 % of the recall."""

FEW_DOCUMENTS, FEW_CHUNKS = 1_250, 5_000
"""Of fewer that pass a filter every vector is compared: as quick at 100,000 chunks as the index is, and exact."""

CACHED_BYTES, CACHED_CHUNK_BYTES = 64 << 20, 256 << 20
"""Of posting lists, and of the ids of chunks (seven million), of words, and as many of SPLADE's, in each process that
reads."""


class CorpusReader:
    """Rankings and texts. Its connections belong to the event loop that reads first."""

    def __init__(self, postgres: Postgres, cached_bytes: int = CACHED_BYTES) -> None:
        self._words, self._weights = (SegmentCache(cached_bytes, CACHED_CHUNK_BYTES) for _ in range(2))
        self._snapshots = Snapshots(postgres)

    async def close(self) -> None:
        await self._snapshots.close()

    def reading(self, query: Query) -> AbstractAsyncContextManager[Reading]:
        """Makes all reads of the block share one snapshot: see `Snapshots.reading`."""
        return self._snapshots.reading(query)

    def snapshot(self, query: Query) -> AbstractAsyncContextManager[Snapshot]:
        """Takes a turn on a snapshot: see `Snapshots.snapshot`."""
        return self._snapshots.snapshot(query)

    async def nearest(self, query: Query, vector: Matrix, space: Space, k: int) -> list[tuple[UUID, float]]:
        """Chunk ids and inner products with `vector`, shape (dimension,), best first; ties by id.

        Exact unless the collection has an index and more than a few thousand of its chunks pass the filter.
        """
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            ranking: list[tuple[UUID, float]] = []
            if snapshot.scope["indexed"] and not await _few_pass(snapshot, query):
                ranking = await _nearest_indexed(snapshot, query, vector, k)
            return ranking if len(ranking) == k else await _nearest(snapshot, NEAREST, query, vector, k)

    async def bm25(self, query: Query, k: int, parameters: Bm25) -> list[tuple[UUID, float]]:
        """Chunks that have a term of the question, and their exact scores, best first; ties by id."""
        from rag_core.storage.lexical import reading  # compiles, or loads what is compiled: not for who does not ask

        async with self.snapshot(query) as snapshot:
            return await reading.rank(snapshot, self._words, query, parameters, k)

    async def bm25_scores(self, query: Query, ids: Sequence[UUID], parameters: Bm25) -> list[float]:
        """What `bm25` would give these chunks, in the order given; 0 for a chunk without any term of the question."""
        from rag_core.storage.lexical import reading

        async with self.snapshot(query) as snapshot:
            return await reading.score(snapshot, self._words, query, parameters, ids)

    async def idf(self, query: Query) -> Mapping[str, float]:
        """How rare each term of the question is, in whatever language of the collection; 0 or more."""
        from rag_core.storage.lexical import idf as rarity

        async with self.snapshot(query) as snapshot:
            return await rarity.idf(snapshot, self._words, query)

    async def splade(self, query: Query, weights: TermWeights, fingerprint: str, k: int) -> list[tuple[UUID, float]]:
        """Chunks that have a term of the question's `weights`, and their dot products with it, best first; ties by id.

        SpaceError if the collection holds no weights of the model of that fingerprint.
        """
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.rank(snapshot, self._weights, query, weights, fingerprint, k)

    async def splade_scores(
        self, query: Query, weights: TermWeights, fingerprint: str, ids: Sequence[UUID]
    ) -> list[float]:
        """What `splade` would give these chunks, in the order given; NaN for a chunk that has no weights."""
        from rag_core.storage.lexical import splade

        async with self.snapshot(query) as snapshot:
            return await splade.score(snapshot, self._weights, query, weights, fingerprint, ids)

    async def similarities(self, query: Query, vector: Matrix, space: Space, ids: Sequence[UUID]) -> list[float]:
        """Exact inner products with `vector`, shape (dimension,), in the order given; NaN for what has no vector."""
        async with self.snapshot(query) as snapshot:
            _check_space(query, snapshot.scope, space)
            parameters = {**snapshot.scope, "vector": HalfVector(vector), "ids": list(ids)}
            rows = await snapshot.connection.execute(SIMILARITIES, parameters, binary=True)
            scores: dict[UUID, float] = dict(await rows.fetchall())
        return [scores.get(id, nan) for id in ids]

    async def hits(self, query: Query, stage: str, ranking: Sequence[tuple[UUID, float]]) -> list[Hit]:
        """The ranking with its texts, in its order."""
        async with self.snapshot(query) as snapshot:
            rows = await snapshot.connection.execute(FETCH, {**snapshot.scope, "ids": [id for id, _ in ranking]})
            scores = dict(ranking)
            return [_hit(row, stage, scores[row[0]]) for row in await rows.fetchall()]

    async def neighbours(self, query: Query, hits: Sequence[Hit], before: int, after: int) -> list[list[Chunk]]:
        """For each hit the chunks of its document next to it, so many before and after, in text order, without its own.

        They are of the version that was searched if this is asked in the snapshot of the search.
        """
        found: list[list[Chunk]] = [[] for _ in hits]
        async with self.snapshot(query) as snapshot:
            wanted = {"ids": [hit.chunk.id for hit in hits], "before": before, "after": after}
            async for place, *row in await snapshot.connection.execute(AROUND, {**snapshot.scope, **wanted}):
                found[place - 1].append(_chunk(row))
        return found


async def _few_pass(snapshot: Snapshot, query: Query) -> bool:
    if query.filters is None:
        return False
    if compares_chunks(query.filters):
        statement, columns = CHUNKS_PASSING, ("v.document_id", "v.id")
    else:
        statement, columns = DOCUMENTS_PASSING, ("v.id", "v.id")
    condition, values = chunk_filter(query.filters, *columns)
    parameters = {**snapshot.scope, **values, "most_documents": FEW_DOCUMENTS, "most_chunks": FEW_CHUNKS}
    rows = await snapshot.connection.execute(SQL(statement).format(filter=condition), parameters, prepare=False)
    return await rows.fetchone() == (True,)


async def _nearest_indexed(snapshot: Snapshot, query: Query, vector: Matrix, k: int) -> list[tuple[UUID, float]]:
    breadth = min(max(BREADTH_FILTERED if query.filters else BREADTH, 2 * k), MOST_BREADTH)
    if breadth != USUAL_BREADTH:
        await snapshot.connection.execute(SEARCH_BROADLY.format(breadth=breadth).encode())
    ranking = await _nearest(snapshot, NEAREST_INDEXED, query, vector, k)
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


async def _nearest(
    snapshot: Snapshot, nearest: LiteralString, query: Query, vector: Matrix, k: int
) -> list[tuple[UUID, float]]:
    condition, values = chunk_filter(query.filters, "v.document_id", "v.chunk_id")
    constants = {name: Literal(snapshot.scope[name]) for name in ("tenant", "collection_id", "space", "dimension")}
    statement = SQL("with hidden as materialized ({hidden}) {nearest}").format(
        hidden=SQL(HIDDEN), nearest=SQL(nearest).format(filter=condition, k=Literal(k), **constants)
    )
    parameters = {**snapshot.scope, **values, "vector": HalfVector(vector), "k": k}
    rows = await snapshot.connection.execute(statement, parameters, prepare=_kept(query), binary=True)
    return [(id, score) for id, score in await rows.fetchall()]


def _kept(query: Query) -> bool | None:
    """Whether a plan may be kept: as psycopg thinks best, but never one with a filter."""
    return None if query.filters is None else False


def _check_space(query: Query, scope: Mapping[str, Any], space: Space) -> None:
    if scope["space"] is not None and scope["fingerprint"] != space.fingerprint:
        raise SpaceError(
            f"collection {query.collection!r} holds vectors of {scope['model']}, but the profile embeds with "
            f"{space.model}: search with that model, or ingest the collection again with this one"
        )


def _hit(row: Sequence[Any], stage: str, score: float) -> Hit:
    *own, uri, title, language, about, modified_ns = row
    updated_at = datetime.fromtimestamp(modified_ns / 1e9, UTC) if modified_ns else None
    place = stands_at(uri, about)
    origin = Origin(uri=place, title=title, language=language, updated_at=updated_at, metadata=about)
    return Hit(chunk=_chunk(own), origin=origin, score=score, scores={stage: score})


def _chunk(row: Sequence[Any]) -> Chunk:
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
