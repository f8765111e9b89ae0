"""Questions to the lexical index, in the statements of one snapshot: what they count is exact under it."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from psycopg.sql import SQL

from rag_core.storage.corpus import HIDDEN, Snapshot
from rag_core.storage.filters import chunk_filter, compares_chunks
from rag_core.storage.lexical.analysis import read_question
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.lexical.postings_cache import PostingsCache
from rag_core.storage.lexical.scoring import Chunks, Mask, Postings, Scores, best, covering, joined, scores, weights
from rag_core.types import Query

OVERVIEW = SQL("""
select 'segment', id, 0, n_chunks, total_length, languages, '' from lexical_segments
where tenant = %(tenant)s and collection = %(collection_id)s
union all
select 'dead', segment_id, first_local, n_chunks, total_length, null, language from lexical_documents
where tenant = %(tenant)s and collection = %(collection_id)s and dead
union all
select 'hidden', segment_id, first_local, n_chunks, total_length, null, '' from lexical_documents
where tenant = %(tenant)s and collection = %(collection_id)s and not dead and document_id in ({hidden})
""").format(hidden=SQL(HIDDEN))
POSTINGS = """
select segment_id, term, postings from lexical_postings
where tenant = %(tenant)s and collection = %(collection_id)s and term = any(%(terms)s)"""
POSTINGS_OF = f"{POSTINGS} and segment_id = any(%(segments)s)"
PASSING_DOCUMENTS = """
select l.segment_id, l.first_local, l.n_chunks from lexical_documents l
where l.tenant = %(tenant)s and l.collection = %(collection_id)s and not l.dead and {filter}"""
PASSING_CHUNKS = """
select l.segment_id, l.first_local + v.ordinal, 1 from chunks v
join lexical_documents l on l.tenant = v.tenant and l.collection = v.collection and l.document_id = v.document_id
  and not l.dead
where v.tenant = %(tenant)s and v.collection = %(collection_id)s and {filter}"""
# `limit` keeps the planner from looking up all chunks of a document.
CHUNKS_AT = """
select h.place, c.id from unnest(%(segments)s::bigint[], %(locals)s::int[]) with ordinality h (segment, local, place)
cross join lateral (
  select document_id, first_local from lexical_documents
  where tenant = %(tenant)s and collection = %(collection_id)s and segment_id = h.segment and first_local <= h.local
  order by first_local desc limit 1) d
cross join lateral (
  select id from chunks where tenant = %(tenant)s and collection = %(collection_id)s and document_id = d.document_id
  and ordinal = h.local - d.first_local limit 1) c"""
PLACES_OF = """
select wanted.place - 1, l.segment_id, l.first_local + c.ordinal
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, place)
join chunks c on c.tenant = %(tenant)s and c.collection = %(collection_id)s and c.id = wanted.id
join lexical_documents l on l.tenant = %(tenant)s and l.collection = %(collection_id)s
  and l.document_id = c.document_id and not l.dead"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question as the index sees it. `segments` are ids, ascending; `chunks` has them in that order.

    `hidden` are ranges of chunks that the asker may not see: (place of the segment, first, count).
    """

    segments: list[int]
    chunks: Chunks
    hidden: list[tuple[int, int, int]]
    postings: Postings
    weights: Scores


@dataclass(frozen=True, slots=True)
class Places:
    """Chunks by the ids of their segments and their numbers in there, in no order."""

    segments: list[int]
    locals: list[int]
    scores: list[float]


async def rank(snapshot: Snapshot, cache: PostingsCache, query: Query, bm25: Bm25, k: int) -> list[tuple[UUID, float]]:
    """At most k chunks that have a term of the question, best first; ties by id."""
    ranking = await named(snapshot, await places(snapshot, cache, query, bm25, k))
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:k]


async def places(snapshot: Snapshot, cache: PostingsCache, query: Query, bm25: Bm25, k: int) -> Places:
    """The k best, and those that tie with the last of them."""
    asked = await _asked(snapshot, cache, query)
    left_out = await _left_out(snapshot, asked, query)
    segments, locals, found = best(asked.chunks, asked.postings, asked.weights, bm25, left_out, k)
    return Places([asked.segments[place] for place in segments], locals.tolist(), found.tolist())


async def named(snapshot: Snapshot, places: Places) -> list[tuple[UUID, float]]:
    """The ids of the chunks, in any order."""
    where = {"segments": places.segments, "locals": places.locals}
    rows = await snapshot.connection.execute(CHUNKS_AT, {**snapshot.scope, **where}, binary=True)
    return [(id, places.scores[place - 1]) for place, id in await rows.fetchall()]


async def score(snapshot: Snapshot, cache: PostingsCache, query: Query, bm25: Bm25, ids: Sequence[UUID]) -> list[float]:
    """What `rank` would give them; 0 for a chunk that has no term of the question, or is not stored."""
    asked = await _asked(snapshot, cache, query)
    rows = await snapshot.connection.execute(PLACES_OF, {**snapshot.scope, "ids": list(ids)}, binary=True)
    numbered = {segment: place for place, segment in enumerate(asked.segments)}
    found = [(n, numbered[segment], local) for n, segment, local in await rows.fetchall()]
    places = np.array(found, np.int64).reshape(-1, 3)
    given = np.zeros(len(ids))
    given[places[:, 0]] = scores(asked.chunks, asked.postings, asked.weights, bm25, places[:, 1], places[:, 2])
    return [float(each) for each in given]


async def _asked(snapshot: Snapshot, cache: PostingsCache, query: Query) -> _Asked:
    known: _Asked | None = snapshot.kept.get((_Asked, query.text))
    if known is None:
        known = snapshot.kept[_Asked, query.text] = await _read_question(snapshot, cache, query)
    return known


async def _read_question(snapshot: Snapshot, cache: PostingsCache, query: Query) -> _Asked:
    segments, chunks, hidden = await _overview(snapshot)
    asked = read_question(query.text, list(chunks.languages))
    lists = await _lists(snapshot, cache, set(segments), list(asked.counts))
    found = [(place, n, own[id]) for place, id in enumerate(segments) for n, own in enumerate(lists) if own[id]]
    postings = joined(found)
    return _Asked(segments, chunks, hidden, postings, weights(chunks, postings, asked))


async def _overview(snapshot: Snapshot) -> tuple[list[int], Chunks, list[tuple[int, int, int]]]:
    """The segments' ids, ascending, their chunks, and the ranges of these that are hidden from the asker."""
    cursor = await snapshot.connection.execute(OVERVIEW, snapshot.scope, binary=True)
    ranges: dict[str, list[tuple[int, int, int]]] = {"segment": [], "dead": [], "hidden": []}
    total_length, living = 0, Counter[str]()
    for kind, id, first, n, length, languages, language in await cursor.fetchall():
        ranges[kind].append((id, first, n))
        if kind == "segment":
            total_length += length
            living.update(languages)
        elif kind == "dead":
            total_length -= length
            living[language] -= n
    sizes = sorted((id, n) for id, _, n in ranges["segment"])
    numbered = {id: place for place, (id, _) in enumerate(sizes)}
    firsts = np.cumsum([0, *(n for _, n in sizes)], dtype=np.int64)
    dead, hidden = ([(numbered[id], first, n) for id, first, n in ranges[kind]] for kind in ("dead", "hidden"))
    return list(numbered), Chunks(firsts, covering(firsts, dead), total_length, +living), hidden


async def _lists(
    snapshot: Snapshot, cache: PostingsCache, segments: Set[int], terms: Sequence[str]
) -> list[Mapping[int, bytes]]:
    """Of each term, by segment; empty where the segment does not have it."""
    known = [cache.known(term) for term in terms]
    missing = {term: segments - own.keys() for term, own in zip(terms, known, strict=True) if segments - own.keys()}
    if not missing:
        return known
    for term, found in (await _read(snapshot, missing, segments)).items():
        cache.add(term, found)
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


async def _left_out(snapshot: Snapshot, asked: _Asked, query: Query) -> Mask:
    """What the asker may not see, and what does not pass the filter: with it the k best are the k best that pass."""
    left_out = asked.chunks.dead | covering(asked.chunks.firsts, asked.hidden)
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
    numbered = {segment: place for place, segment in enumerate(asked.segments)}
    passing = [(numbered[segment], first, n) for segment, first, n in await rows.fetchall()]
    return left_out | ~covering(asked.chunks.firsts, passing)
