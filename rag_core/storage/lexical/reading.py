"""Questions to the lexical index, in the statements of one snapshot: what they count is exact under it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import numpy as np
from psycopg.sql import SQL, Composed

from rag_core.storage.corpus import HIDDEN, Snapshot
from rag_core.storage.filters import chunk_filter, compares_chunks
from rag_core.storage.lexical.analysis import read_question
from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.scoring import (
    Chunks,
    Mask,
    Numbers,
    Scores,
    best,
    covering,
    joined,
    scores,
    weights,
)
from rag_core.storage.lexical.segment_cache import SegmentCache, SegmentChunks, wanted_ids
from rag_core.types import Query

OVERVIEW = SQL("""
select 'segment', id, 0, n_chunks, total_length, languages, '' from lexical_segments
where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
union all
select 'dead', segment_id, first_local, n_chunks, total_length, null, language from lexical_documents
where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and dead
union all
select 'hidden', segment_id, first_local, n_chunks, total_length, null, '' from lexical_documents
where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and not dead
  and document_id in ({hidden})""").format(hidden=SQL(HIDDEN))
POSTINGS = """
select segment_id, term, postings from lexical_postings
where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and term = any(%(terms)s)"""
POSTINGS_OF = f"{POSTINGS} and segment_id = any(%(segments)s)"
PASSING_DOCUMENTS = """
select l.segment_id, l.first_local, l.n_chunks from lexical_documents l
where l.tenant = %(tenant)s and l.collection = %(collection_id)s and l.kind = %(kind)s and not l.dead and {filter}"""
PASSING_CHUNKS = """
select l.segment_id, l.first_local + v.ordinal, 1 from chunks v
join lexical_documents l on l.tenant = v.tenant and l.collection = v.collection and l.document_id = v.document_id
  and l.kind = %(kind)s and not l.dead
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}"""
CHUNK_IDS = """
select id, chunk_ids from lexical_segments
where tenant = %(tenant)s and collection = %(collection_id)s and id = any(%(segments)s)"""


@dataclass(frozen=True, slots=True)
class Overview:
    """What the index holds of a collection. `segments` has the place of each in `chunks` by its id, ascending.

    `hidden` are ranges of chunks that the asker may not see: (place of the segment, first, count).
    """

    segments: dict[int, int]
    chunks: Chunks
    hidden: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the index sees it. `best` finds the k best chunks without those that are left out, and `scores`
    gives those of segments, by their places, and local numbers."""

    overview: Overview
    best: Callable[[Mask, int], tuple[Numbers, Numbers, Scores]]
    scores: Callable[[Numbers, Numbers], Scores]


@dataclass(frozen=True, slots=True)
class Places:
    """Chunks by the ids of their segments and their numbers in there, in no order."""

    segments: list[int]
    locals: list[int]
    scores: list[float]


async def rank(snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25, k: int) -> list[tuple[UUID, float]]:
    """At most k chunks that have a term of the question, best first; ties by id."""
    snapshot = of_kind(snapshot, WORDS)
    return await ranked(snapshot, cache, await asked(snapshot, cache, query, bm25), query, k)


async def score(snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25, ids: Sequence[UUID]) -> list[float]:
    """What `rank` would give them; 0 for a chunk that has no term of the question, or is not stored."""
    snapshot, given = of_kind(snapshot, WORDS), np.zeros(len(ids))
    question = await asked(snapshot, cache, query, bm25)
    rows, segments, locals = await places_of(snapshot, cache, question.overview, ids)
    given[rows] = question.scores(segments, locals)
    return [float(each) for each in given]


async def asked(snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25) -> Asked:
    """Read once a snapshot."""
    return await snapshot.once((WORDS, query.text, bm25), partial(_asked, snapshot, cache, query, bm25))


async def _asked(snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25) -> Asked:
    found = await overview(snapshot, OVERVIEW)
    question = read_question(query.text, list(found.chunks.languages))
    postings = joined(await lists(snapshot, cache, found.segments, list(question.counts)))
    weighted = weights(found.chunks, postings, question)
    return Asked(
        overview=found,
        best=partial(best, found.chunks, postings, weighted, bm25),
        scores=partial(scores, found.chunks, postings, weighted, bm25),
    )


def of_kind(snapshot: Snapshot, kind: str, **values: str) -> Snapshot:
    """For statements about the terms of that kind."""
    return replace(snapshot, scope={**snapshot.scope, "kind": kind, **values})


async def ranked(
    snapshot: Snapshot, cache: SegmentCache, asked: Asked, query: Query, k: int
) -> list[tuple[UUID, float]]:
    ranking = await named(snapshot, cache, await places(snapshot, asked, query, k))
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:k]


async def places(snapshot: Snapshot, asked: Asked, query: Query, k: int) -> Places:
    """The k best, and those that tie with the last of them."""
    left_out = await _left_out(snapshot, asked.overview, query)
    segments, locals, found = asked.best(left_out, k)
    ids = list(asked.overview.segments)
    return Places([ids[place] for place in segments], locals.tolist(), found.tolist())


async def named(snapshot: Snapshot, cache: SegmentCache, places: Places) -> list[tuple[UUID, float]]:
    """The ids of the chunks, in the same order."""
    known = await _chunks(snapshot, cache, set(places.segments))
    rows = zip(places.segments, places.locals, places.scores, strict=True)
    return [(known[segment].id(local), score) for segment, local, score in rows]


async def places_of(
    snapshot: Snapshot, cache: SegmentCache, overview: Overview, ids: Sequence[UUID]
) -> tuple[Numbers, Numbers, Numbers]:
    """Of the chunks that are indexed: places in `ids`, places of their segments, and their numbers in there."""
    known, wanted = await _chunks(snapshot, cache, overview.segments.keys()), wanted_ids(ids)
    found = [np.empty((3, 0), np.int64)]
    for segment, place in overview.segments.items():
        here, locals = known[segment].find(wanted)
        found.append(np.stack([here, np.full(len(here), place), locals]))
    rows, segments, locals = np.concatenate(found, axis=1)
    living = ~overview.chunks.dead[overview.chunks.firsts[segments] + locals]
    return rows[living], segments[living], locals[living]


async def _chunks(snapshot: Snapshot, cache: SegmentCache, segments: Set[int]) -> Mapping[int, SegmentChunks]:
    known = {segment: chunks for segment in segments if (chunks := cache.chunks(segment)) is not None}
    missing = {**snapshot.scope, "segments": list(segments - known.keys())}
    if missing["segments"]:
        for segment, ids in await (await snapshot.connection.execute(CHUNK_IDS, missing, binary=True)).fetchall():
            known[segment] = SegmentChunks(ids)
            cache.add_chunks(segment, known[segment])
    return known


async def overview(snapshot: Snapshot, statement: Composed) -> Overview:
    cursor = await snapshot.connection.execute(statement, snapshot.scope, binary=True)
    ranges: dict[str, list[tuple[int, int, int]]] = {"segment": [], "dead": [], "hidden": []}
    total_length, living = 0, Counter[str]()
    for row, id, first, n, length, languages, language in await cursor.fetchall():
        ranges[row].append((id, first, n))
        if row == "segment":
            total_length += length
            living.update(languages)
        elif row == "dead":
            total_length -= length
            living[language] -= n
    sizes = sorted((id, n) for id, _, n in ranges["segment"])
    numbered = {id: place for place, (id, _) in enumerate(sizes)}
    firsts = np.cumsum([0, *(n for _, n in sizes)], dtype=np.int64)
    dead, hidden = ([(numbered[id], first, n) for id, first, n in ranges[row]] for row in ("dead", "hidden"))
    return Overview(numbered, Chunks(firsts, covering(firsts, dead), total_length, +living), hidden)


async def lists(
    snapshot: Snapshot, cache: SegmentCache, segments: Mapping[int, int], terms: Sequence[str]
) -> list[tuple[int, int, bytes]]:
    """As (place of the segment, number of the term, postings), ascending."""
    known = await _lists(snapshot, cache, segments.keys(), terms)
    return [(place, n, own[id]) for id, place in segments.items() for n, own in enumerate(known) if own[id]]


async def _lists(
    snapshot: Snapshot, cache: SegmentCache, segments: Set[int], terms: Sequence[str]
) -> list[Mapping[int, bytes]]:
    """Of each term, by segment; empty where the segment does not have it."""
    known = [cache.lists(term) for term in terms]
    missing = {term: segments - own.keys() for term, own in zip(terms, known, strict=True) if segments - own.keys()}
    if not missing:
        return known
    for term, found in (await _read(snapshot, missing, segments)).items():
        cache.add_lists(term, found)
        place = terms.index(term)
        known[place] = {**known[place], **found}
    return known


async def _read(
    snapshot: Snapshot, missing: Mapping[str, Set[int]], segments: Set[int]
) -> Mapping[str, Mapping[int, bytes]]:
    """Those lists of the terms, and maybe others of the same; empty ones for those that there are not."""
    lists = {term: dict.fromkeys(own, b"") for term, own in missing.items()}
    some = set[int]().union(*missing.values())
    wanted = {**snapshot.scope, "terms": list(missing), "segments": list(some)}
    statement = POSTINGS if len(some) == len(segments) else POSTINGS_OF
    rows = await snapshot.connection.execute(statement, wanted, binary=True)
    for segment, term, postings in await rows.fetchall():
        lists[term][segment] = postings
    return lists


async def _left_out(snapshot: Snapshot, overview: Overview, query: Query) -> Mask:
    """What the asker may not see, and what does not pass the filter: with it the k best are the k best that pass."""
    left_out = overview.chunks.dead | covering(overview.chunks.firsts, overview.hidden)
    if query.filters is None:
        return left_out
    if compares_chunks(query.filters):
        statement, columns = PASSING_CHUNKS, ("v.document_id", "v.id")
    else:
        statement, columns = PASSING_DOCUMENTS, ("l.document_id", "l.document_id")
    condition, values = chunk_filter(query.filters, *columns)
    parameters = {**snapshot.scope, **values}
    asked_for = SQL(statement).format(filter=condition)
    rows = await snapshot.connection.execute(asked_for, parameters, prepare=False, binary=True)
    passing = [(overview.segments[segment], first, n) for segment, first, n in await rows.fetchall()]
    return left_out | ~covering(overview.chunks.firsts, passing)
