"""Questions to the lexical index, in the statements of one snapshot: what they count is exact under it."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import numpy as np
from psycopg.sql import SQL

from rag_core.storage.filters import chunk_filter, compares_chunks
from rag_core.storage.lexical.chunks import Mask, Ranges, covering
from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.overview import Overview, lists, overview
from rag_core.storage.lexical.packing import Numbers, packed_columns
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings import Postings, joined
from rag_core.storage.lexical.scoring import Scores, best, scores, weights
from rag_core.storage.lexical.segment_cache import Key, SegmentCache, SegmentChunks, wanted_ids
from rag_core.storage.snapshot import Snapshot
from rag_core.text.analysis import Question, read_question
from rag_core.types import Query

PASSING_DOCUMENTS = """
select {ranges} from lexical_documents l
where l.tenant = %(tenant)s and l.collection = %(collection_id)s and l.kind = %(kind)s and not l.dead and {filter}"""
PASSING_CHUNKS = """
select {ranges} from chunks v
join lexical_documents l on l.tenant = v.tenant and l.collection = v.collection and l.document_id = v.document_id
  and l.kind = %(kind)s and not l.dead
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}"""
# 16 bytes for each number, without reading the segment's other ids.
CHUNK_IDS_AT = """
select substring(s.chunk_ids from 16 * at.local + 1 for 16)
from unnest(%(segments)s::bigint[], %(locals)s::int[]) with ordinality as at (segment, local, place)
join lexical_segments s on s.tenant = %(tenant)s and s.collection = %(collection_id)s and s.id = at.segment
order by at.place"""
CHUNK_IDS = """
select id, chunk_ids from lexical_segments
where tenant = %(tenant)s and collection = %(collection_id)s and id = any(%(segments)s)"""


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
    found, question, posted = await read_words(snapshot, cache, query.text)
    weighted = weights(found.chunks, posted, question)
    return Asked(
        overview=found,
        best=partial(best, found.chunks, posted, weighted, bm25),
        scores=partial(scores, found.chunks, posted, weighted, bm25),
    )


async def read_words(snapshot: Snapshot, cache: SegmentCache, text: str) -> tuple[Overview, Question, Postings]:
    """The question is read in the languages that the collection has. Which ones these are is known afterwards, so it
    goes by those of the last time, and asks once more if there are others."""
    collection = collection_of(snapshot)
    likely = cache.languages.get(collection, ())
    question = read_question(text, likely)
    found = await overview(snapshot, unread(snapshot, cache, question.counts))
    languages = cache.languages[collection] = tuple(found.chunks.languages)
    if languages != likely:
        question = read_question(text, languages)
    return found, question, await postings(snapshot, cache, found, list(question.counts))


def collection_of(snapshot: Snapshot) -> tuple[str, int]:
    return snapshot.scope["tenant"], snapshot.scope["collection_id"]


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
    return Places(asked.overview.segments[segments].tolist(), locals.tolist(), found.tolist())


async def named(snapshot: Snapshot, cache: SegmentCache, places: Places) -> list[tuple[UUID, float]]:
    """The ids of the chunks, in the same order. Whole segments are read only where ids are sought in them."""
    known = {segment: cache.chunks(segment) for segment in set(places.segments)}
    numbered = list(zip(places.segments, places.locals, strict=True))
    unknown = [(segment, local) for segment, local in numbered if known[segment] is None]
    read = iter(await _ids_at(snapshot, unknown))
    ids = [next(read) if (own := known[segment]) is None else own.id(local) for segment, local in numbered]
    return list(zip(ids, places.scores, strict=True))


async def _ids_at(snapshot: Snapshot, numbered: Sequence[tuple[int, int]]) -> list[UUID]:
    if not numbered:
        return []
    segments, locals = zip(*numbered, strict=True)
    wanted = {**snapshot.scope, "segments": list(segments), "locals": list(locals)}
    rows = await snapshot.connection.execute(CHUNK_IDS_AT, wanted, binary=True)
    return [UUID(bytes=id) for (id,) in await rows.fetchall()]


async def places_of(
    snapshot: Snapshot, cache: SegmentCache, overview: Overview, ids: Sequence[UUID]
) -> tuple[Numbers, Numbers, Numbers]:
    """Of the chunks that are indexed: places in `ids`, places of their segments, and their numbers in there."""
    known, wanted = await _chunks(snapshot, cache, overview.segment_ids), wanted_ids(ids)
    found = [np.empty((3, 0), np.int64)]
    for place, segment in enumerate(overview.segments.tolist()):
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


async def postings(
    snapshot: Snapshot, cache: SegmentCache, overview: Overview, terms: Sequence[str], kind: str = WORDS
) -> Postings:
    """Of all segments. What neither the overview nor the cache has is read at once, for all terms."""
    segments, keys = overview.segment_ids, _keys(snapshot, terms)
    kept = {term: cache.lists(keys[term]) for term in terms if term not in overview.lists}
    lacking = {term: missing for term, own in kept.items() if (missing := segments - own.read)}
    found = {term: overview.lists[term] for term in terms if term in overview.lists}
    if lacking:
        read = await lists(snapshot, lacking, set().union(*lacking.values()))
        found |= {term: kept[term].of(segments).plus(own) for term, own in read.items()}
    for term, own in found.items():
        cache.keep_lists(keys[term], own)
    known = kept | found
    return joined([known[term] for term in terms], overview.segments, kind)


def unread(snapshot: Snapshot, cache: SegmentCache, terms: Iterable[str]) -> list[str]:
    """Those of which no list is known."""
    return [term for term, key in _keys(snapshot, terms).items() if not cache.lists(key).read]


def _keys(snapshot: Snapshot, terms: Iterable[str]) -> dict[str, Key]:
    return {term: (*collection_of(snapshot), term) for term in terms}


async def _left_out(snapshot: Snapshot, overview: Overview, query: Query) -> Mask:
    """What the asker may not see, and what does not pass the filter: with it the k best are the k best that pass."""
    chunks = overview.chunks
    left_out = chunks.dead
    if len(overview.hidden.counts):
        left_out = left_out | covering(chunks.firsts, overview.hidden)
    if query.filters is None:
        return left_out
    if compares_chunks(query.filters):
        statement, columns, ranges = PASSING_CHUNKS, ("v.document_id", "v.id"), ("l.first_local + v.ordinal", "1")
    else:
        statement, columns, ranges = PASSING_DOCUMENTS, ("l.document_id",) * 2, ("l.first_local", "l.n_chunks")
    condition, values = chunk_filter(query.filters, *columns)
    asked_for = SQL(statement).format(ranges=packed_columns("l.segment_id", *ranges), filter=condition)
    rows = await snapshot.connection.execute(asked_for, {**snapshot.scope, **values}, prepare=False, binary=True)
    (passing,) = await rows.fetchall()
    return left_out | ~covering(chunks.firsts, Ranges.unpacked(passing).at(overview.segments))
