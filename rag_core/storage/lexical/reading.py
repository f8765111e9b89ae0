"""Searches of the lexical index by the words of a question.

All statements of a search run in one snapshot. Document frequencies and the average length are exact for the documents
of that snapshot. `splade.py` builds another `Scorer`, and then uses the same functions.

A chunk is stored in a segment, under a local number that counts from 0. `segments` are segment ids, and `positions` are
positions in `Overview.segment_ids`. A chunk whose document was replaced or deleted is dead until a merge removes it.
The others are living.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import numpy as np
from psycopg.sql import SQL

from rag_core.storage.filters import chunk_filter, has_chunk_condition
from rag_core.storage.lexical.chunks import Mask, Ranges, mask_ranges
from rag_core.storage.lexical.kinds import WORDS
from rag_core.storage.lexical.overview import Overview, read_lists, read_overview
from rag_core.storage.lexical.packing import Numbers, packing_sql
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings import Postings, join_lists
from rag_core.storage.lexical.scoring import Scores, find_best, score_chunks, term_weights
from rag_core.storage.lexical.segment_cache import Key, SegmentCache, SegmentChunks, pack_ids
from rag_core.storage.snapshot import Snapshot
from rag_core.text.analysis import Question, analyze_question
from rag_core.types import Filter, Query

# Both statements return ranges of local numbers: those of the living chunks that pass the filter.
DOCUMENTS_PASSING_FILTER = """
select {ranges} from lexical_documents l
where l.tenant = %(tenant)s and l.collection = %(collection_id)s and l.kind = %(kind)s and not l.dead and {filter}"""
CHUNKS_PASSING_FILTER = """
select {ranges} from chunks c
join lexical_documents l on l.tenant = c.tenant and l.collection = c.collection and l.document_id = c.document_id
  and l.kind = %(kind)s and not l.dead
where c.tenant = %(tenant)s and c.collection = %(collection_id)s and {filter}"""
# An id has 16 bytes. `substring` reads single ids without the other ids of the segment.
SINGLE_CHUNK_IDS = """
select substring(s.chunk_ids from 16 * wanted.local + 1 for 16)
from unnest(%(segments)s::bigint[], %(local_numbers)s::int[]) with ordinality as wanted (segment, local, n)
join lexical_segments s on s.tenant = %(tenant)s and s.collection = %(collection_id)s and s.id = wanted.segment
order by wanted.n"""
SEGMENT_CHUNK_IDS = """
select id, chunk_ids from lexical_segments
where tenant = %(tenant)s and collection = %(collection_id)s and id = any(%(segments)s)"""


@dataclass(frozen=True, slots=True)
class Scorer:
    """The scoring functions of one question, and the overview of the segments that they score.

    `find_best` takes a mask of chunks to exclude, and k. It returns the positions, local numbers and scores of the k
    best chunks, in no order. At most MAX_TIES (see `scoring.py`) more chunks that tie with the k-th are included.
    `score` takes positions and local numbers, and returns the scores in the order given.
    """

    overview: Overview
    find_best: Callable[[Mask, int], tuple[Numbers, Numbers, Scores]]
    score: Callable[[Numbers, Numbers], Scores]


@dataclass(frozen=True, slots=True)
class ScoredChunks:
    """Chunks and their scores, not sorted.

    Chunk i is in the segment with the id `segments[i]`, and has `local_numbers[i]` and `scores[i]`.
    """

    segments: list[int]
    local_numbers: list[int]
    scores: list[float]


async def rank_by_words(
    snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25, k: int
) -> list[tuple[UUID, float]]:
    """Returns at most k chunks that have a term of the question, best first; ties by id, up to `MAX_TIES` of them."""
    snapshot = with_kind(snapshot, WORDS)
    scorer = await read_scorer(snapshot, cache, query, bm25)
    return await rank_chunks(snapshot, cache, scorer, query, k)


async def score_by_words(
    snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25, ids: Sequence[UUID]
) -> list[float]:
    """The scores that `rank_by_words` would assign to these chunks, in the order given.

    A chunk that is not stored, or has no term of the question, has 0.
    """
    snapshot = with_kind(snapshot, WORDS)
    scorer = await read_scorer(snapshot, cache, query, bm25)
    return await score_ids(snapshot, cache, scorer, ids, missing=0.0)


def with_kind(snapshot: Snapshot, kind: str, **parameters: str) -> Snapshot:
    """A copy of the snapshot with this kind of terms, and `parameters`, in its scope.

    The copy shares the results of `once`, so keys of `once` must name the kind.
    """
    return replace(snapshot, scope={**snapshot.scope, "kind": kind, **parameters})


async def read_scorer(snapshot: Snapshot, cache: SegmentCache, query: Query, bm25: Bm25) -> Scorer:
    """Builds the question's scorer from the overview and the postings of its terms, once per snapshot."""

    async def read() -> Scorer:
        overview, question, postings = await read_question_postings(snapshot, cache, query.text)
        weights = term_weights(overview.chunks, postings, question)
        return Scorer(
            overview=overview,
            find_best=partial(find_best, overview.chunks, postings, weights, bm25),
            score=partial(score_chunks, overview.chunks, postings, weights, bm25),
        )

    return await snapshot.once((WORDS, query.text, bm25), read)


async def read_question_postings(
    snapshot: Snapshot, cache: SegmentCache, text: str
) -> tuple[Overview, Question, Postings]:
    """Reads the overview, and the postings of the question's terms in all languages of the collection.

    The languages are only known from the overview, which is read in the same statement as the postings. So the question
    is first analyzed in the languages that the collection's last search found. If they have changed, it is analyzed
    again, and missing postings cost a second statement.
    """
    collection = _collection_key(snapshot)
    previous_languages = cache.languages.get(collection, ())
    question = analyze_question(text, previous_languages)
    overview = await read_overview(snapshot, find_uncached_terms(snapshot, cache, question.counts))
    languages = cache.languages[collection] = tuple(overview.chunks.languages)
    if languages != previous_languages:
        question = analyze_question(text, languages)
    return overview, question, await read_postings(snapshot, cache, overview, list(question.counts))


async def read_postings(
    snapshot: Snapshot, cache: SegmentCache, overview: Overview, terms: Sequence[str], kind: str = WORDS
) -> Postings:
    """The postings of these terms in all segments of the overview.

    Posting lists that neither the overview nor the cache holds are read in one statement. All lists that the cache
    does not hold are added to it.
    `cache` must be that of this kind of terms: its keys do not name the kind.
    """
    segments, keys = overview.segment_set, _cache_keys(snapshot, terms)
    new = {term: overview.lists[term] for term in terms if term in overview.lists}
    cached = {term: cache.lists(keys[term]) for term in terms if term not in new}
    missing_segments = {term: segments - lists.read_segments for term, lists in cached.items()}
    incomplete_terms = [term for term, missing in missing_segments.items() if missing]
    if incomplete_terms:
        read = await read_lists(snapshot, incomplete_terms, set().union(*missing_segments.values()))
        # restricted, so that the lists of segments that a merge has removed leave the cache
        new |= {term: cached[term].restrict_to(segments).merge(lists) for term, lists in read.items()}
    for term, lists in new.items():
        cache.store_lists(keys[term], lists)
    term_lists = cached | new
    return join_lists([term_lists[term] for term in terms], overview.segment_ids, kind)


def find_uncached_terms(snapshot: Snapshot, cache: SegmentCache, terms: Iterable[str]) -> list[str]:
    """The terms for which the cache holds nothing.

    `read_postings` completes terms that the cache holds for some segments only.
    """
    return [term for term, key in _cache_keys(snapshot, terms).items() if not cache.lists(key).read_segments]


def _cache_keys(snapshot: Snapshot, terms: Iterable[str]) -> dict[str, Key]:
    return {term: (*_collection_key(snapshot), term) for term in terms}


def _collection_key(snapshot: Snapshot) -> tuple[str, int]:
    return snapshot.scope["tenant"], snapshot.scope["collection_id"]


async def rank_chunks(
    snapshot: Snapshot, cache: SegmentCache, scorer: Scorer, query: Query, k: int
) -> list[tuple[UUID, float]]:
    """Returns the ids and scores of the k best chunks, best first; ties by id."""
    chunks = await find_best_chunks(snapshot, scorer, query, k)
    ranking = await resolve_ids(snapshot, cache, chunks)
    # sorted only now, because ties are broken by id
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:k]


async def find_best_chunks(snapshot: Snapshot, scorer: Scorer, query: Query, k: int) -> ScoredChunks:
    """The k best chunks that the query may return, and some more that tie with the k-th."""
    overview = scorer.overview
    excluded = await _mask_excluded(snapshot, overview, query)
    positions, local_numbers, scores = scorer.find_best(excluded, k)
    return ScoredChunks(overview.segment_ids[positions].tolist(), local_numbers.tolist(), scores.tolist())


async def _mask_excluded(snapshot: Snapshot, overview: Overview, query: Query) -> Mask:
    """A mask of the chunks that are dead, that the user's groups may not read, or that do not pass the filter.

    They are excluded before the k best are chosen, so a search returns k chunks if that many pass.
    """
    chunks = overview.chunks
    excluded = chunks.dead
    if len(overview.unreadable.counts):
        excluded = excluded | mask_ranges(chunks.offsets, overview.unreadable)
    if query.filters is None:
        return excluded
    passing = await _read_passing_ranges(snapshot, query.filters)
    return excluded | ~mask_ranges(chunks.offsets, passing.with_positions(overview.segment_ids))


async def _read_passing_ranges(snapshot: Snapshot, filter: Filter) -> Ranges:
    """The ranges of living chunks that pass the filter, by segment id."""
    if has_chunk_condition(filter):
        condition, values = chunk_filter(filter, "c.document_id", "c.id")
        ranges = packing_sql("l.segment_id", "l.first_local + c.ordinal", "1")  # one range per chunk
        statement = SQL(CHUNKS_PASSING_FILTER).format(ranges=ranges, filter=condition)
    else:
        # the filter has no condition on chunks, so it does not use the column of their ids
        condition, values = chunk_filter(filter, "l.document_id", "l.document_id")
        ranges = packing_sql("l.segment_id", "l.first_local", "l.n_chunks")  # one range per document
        statement = SQL(DOCUMENTS_PASSING_FILTER).format(ranges=ranges, filter=condition)
    # not prepared, because the statement differs with every filter
    cursor = await snapshot.connection.execute(statement, {**snapshot.scope, **values}, prepare=False, binary=True)
    (row,) = await cursor.fetchall()
    return Ranges.from_columns(row)


async def resolve_ids(snapshot: Snapshot, cache: SegmentCache, chunks: ScoredChunks) -> list[tuple[UUID, float]]:
    """The ids and scores of the chunks, in the same order.

    Ids of chunks whose segments are not cached are read in one statement. It does not read the other ids of these
    segments. Only `locate_chunks` reads all ids of a segment.
    """
    chunks_by_segment = {segment: cache.chunks(segment) for segment in set(chunks.segments)}  # None: not cached
    locations = list(zip(chunks.segments, chunks.local_numbers, strict=True))
    uncached = [(segment, local) for segment, local in locations if chunks_by_segment[segment] is None]
    read_ids = iter(await _read_ids(snapshot, uncached))  # in the order of `uncached`, so `next` returns the right id
    ids = [
        next(read_ids) if (segment_chunks := chunks_by_segment[segment]) is None else segment_chunks.id(local)
        for segment, local in locations
    ]
    return list(zip(ids, chunks.scores, strict=True))


async def _read_ids(snapshot: Snapshot, locations: Sequence[tuple[int, int]]) -> list[UUID]:
    """The ids of the chunks at these locations, in the same order. A location is a segment id and a local number."""
    if not locations:
        return []
    segments, local_numbers = zip(*locations, strict=True)
    parameters = {**snapshot.scope, "segments": list(segments), "local_numbers": list(local_numbers)}
    cursor = await snapshot.connection.execute(SINGLE_CHUNK_IDS, parameters, binary=True)
    return [UUID(bytes=id) for (id,) in await cursor.fetchall()]


async def score_ids(
    snapshot: Snapshot, cache: SegmentCache, scorer: Scorer, ids: Sequence[UUID], missing: float
) -> list[float]:
    """The scores of the chunks with these ids, in the order given. A chunk that is not indexed has `missing`."""
    scores = np.full(len(ids), missing)
    indexes, positions, local_numbers = await locate_chunks(snapshot, cache, scorer.overview, ids)
    scores[indexes] = scorer.score(positions, local_numbers)
    return [float(score) for score in scores]


async def locate_chunks(
    snapshot: Snapshot, cache: SegmentCache, overview: Overview, ids: Sequence[UUID]
) -> tuple[Numbers, Numbers, Numbers]:
    """Finds the living chunks with these ids. Returns their indexes in `ids`, segment positions and local numbers.

    Ids that are not indexed are left out.
    """
    chunks_by_segment = await _read_segment_chunks(snapshot, cache, overview.segment_set)
    packed_ids = pack_ids(ids)
    matches = [np.empty((3, 0), np.int64)]  # for a collection without segments
    for position, segment in enumerate(overview.segment_ids.tolist()):
        indexes, local_numbers = chunks_by_segment[segment].find(packed_ids)
        matches.append(np.stack([indexes, np.full(len(indexes), position), local_numbers]))
    indexes, positions, local_numbers = np.concatenate(matches, axis=1)
    # an unchanged chunk of a republished document is in several segments, and living in at most one
    living = ~overview.chunks.dead[overview.chunks.offsets[positions] + local_numbers]
    return indexes[living], positions[living], local_numbers[living]


async def _read_segment_chunks(
    snapshot: Snapshot, cache: SegmentCache, segments: Set[int]
) -> Mapping[int, SegmentChunks]:
    """The chunk ids of these segments, by segment id. Segments that are not cached are read and then cached."""
    chunks_by_segment = {segment: chunks for segment in segments if (chunks := cache.chunks(segment)) is not None}
    missing = list(segments - chunks_by_segment.keys())
    if missing:
        parameters = {**snapshot.scope, "segments": missing}
        cursor = await snapshot.connection.execute(SEGMENT_CHUNK_IDS, parameters, binary=True)
        for segment, ids in await cursor.fetchall():
            chunks_by_segment[segment] = SegmentChunks(ids)
            cache.store_chunks(segment, chunks_by_segment[segment])
    return chunks_by_segment
