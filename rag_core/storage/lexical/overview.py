"""What the lexical index holds of a collection, under one snapshot; and posting lists, in the same answer."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from psycopg.sql import SQL

from rag_core.storage.corpus import HIDDEN, Snapshot
from rag_core.storage.lexical.scoring import Chunks, covering
from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists

# A row for all segments, one for the dead of each language, one for what is hidden, one for each term: arrays are read
# faster than rows.
SEGMENTS = SQL("""
select 'segment' as part, array_agg(id) as segments, array_agg(0) as firsts, array_agg(n_chunks) as counts,
  sum(total_length)::bigint as length, jsonb_agg(languages) as languages, '' as term, ''::bytea as postings
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
having count(*) > 0""")
DEAD = SQL("""
select 'dead', array_agg(segment_id), array_agg(first_local), array_agg(n_chunks), -sum(total_length)::bigint,
  jsonb_build_array(jsonb_build_object(language, -sum(n_chunks))), '', ''
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and dead
group by language""")
HIDDEN_CHUNKS = SQL("""
select 'hidden', array_agg(segment_id), array_agg(first_local), array_agg(n_chunks), 0, '[]', '', ''
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and not dead
  and document_id in ({hidden})
having count(*) > 0""").format(hidden=SQL(HIDDEN))
POSTINGS = SQL("""
select 'postings', array_agg(segment_id), '{{}}'::int[], array_agg(octet_length(postings)), 0, '[]', term,
  string_agg(postings, '')
from lexical_postings where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
  and term = any(%(terms)s) {some} group by term""")
PARTS = (SEGMENTS, DEAD, HIDDEN_CHUNKS, POSTINGS.format(some=SQL("")))
OF_SOME = POSTINGS.format(some=SQL("and segment_id = any(%(segments)s)")).as_bytes()


def overview_statement(*more: SQL) -> bytes:
    """`more` may tell of other chunks that are dead, in the same columns."""
    return SQL("\nunion all").join([*PARTS, *more]).as_bytes()


OVERVIEW = overview_statement()


@dataclass(frozen=True, slots=True)
class Overview:
    """`segments` has the place of each in `chunks` by its id, ascending. `lists` are those that were read with it.

    `hidden` are ranges of chunks that the asker may not see: (place of the segment, first, count).
    """

    segments: dict[int, int]
    chunks: Chunks
    hidden: Sequence[tuple[int, int, int]]
    lists: Mapping[str, TermLists]


async def overview(snapshot: Snapshot, terms: Collection[str] = (), statement: bytes = OVERVIEW) -> Overview:
    """With the lists of these terms."""
    wanted = {**snapshot.scope, "terms": list(terms)}
    cursor = await snapshot.connection.execute(statement, wanted, binary=True)
    rows = await cursor.fetchall()
    ranges: dict[str, list[tuple[int, int, int]]] = {"segment": [], "dead": [], "hidden": []}
    total_length, living = 0, Counter[str]()
    for part, segments, firsts, counts, length, languages, *_ in rows:
        if part in ranges:
            ranges[part] += zip(segments, firsts, counts, strict=True)
        total_length += length
        for each in languages:
            living.update(each)
    sizes = sorted((id, count) for id, _, count in ranges["segment"])
    places = {id: place for place, (id, _) in enumerate(sizes)}
    firsts = np.cumsum([0, *(count for _, count in sizes)], dtype=np.int64)
    dead, hidden = ([(places[id], first, count) for id, first, count in ranges[part]] for part in ("dead", "hidden"))
    chunks = Chunks(firsts, covering(firsts, dead), total_length, +living)
    return Overview(places, chunks, hidden, _lists(rows, terms, frozenset(places)))


async def lists(snapshot: Snapshot, terms: Collection[str], segments: Collection[int]) -> Mapping[str, TermLists]:
    """Of those terms, in those segments."""
    wanted = {**snapshot.scope, "terms": list(terms), "segments": list(segments)}
    cursor = await snapshot.connection.execute(OF_SOME, wanted, binary=True)
    return _lists(await cursor.fetchall(), terms, frozenset(segments))


def _lists(rows: Iterable[Sequence[Any]], terms: Iterable[str], read: frozenset[int]) -> dict[str, TermLists]:
    found = dict.fromkeys(terms, replace(NO_LISTS, read=read))
    for part, segments, _, sizes, _, _, term, postings in rows:
        if part == "postings":
            found[term] = TermLists(read, np.array(segments, np.int64), np.array(sizes, np.int64), postings)
    return found
