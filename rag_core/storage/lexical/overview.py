"""What the lexical index holds of a collection, under one snapshot; and posting lists, in the same answer."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString, TypeAlias

import numpy as np
from psycopg.sql import SQL, Composed

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Ranges
from rag_core.storage.lexical.packing import Numbers, packed_columns
from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists
from rag_core.storage.snapshot import HIDDEN, Snapshot

Row: TypeAlias = Sequence[Any]

# A row for all segments, one for the dead of each language, one for what is hidden, one for each term. What a row says
# nothing of is null, and JSON travels as text: of such short ones the types cost more than what they hold.
SEGMENTS = SQL("""
select 'segment' as part, {ranges}, sum(total_length)::bigint as length,
  '[' || string_agg(languages::text, ',') || ']' as languages, null as term, null::bytea as postings
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
having count(*) > 0""").format(ranges=packed_columns("id", "0", "n_chunks"))
OF_DOCUMENTS = packed_columns("segment_id", "first_local", "n_chunks")
DEAD = SQL("""
select 'dead', {ranges}, -sum(total_length)::bigint,
  json_build_array(json_build_object(language, -sum(n_chunks)))::text, null, null
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and dead
group by language""").format(ranges=OF_DOCUMENTS)
HIDDEN_CHUNKS = SQL("""
select 'hidden', {ranges}, null, null, null, null
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and not dead
  and document_id in ({hidden})
having count(*) > 0""").format(ranges=OF_DOCUMENTS, hidden=SQL(HIDDEN))
# Read with `select`, so that no plan for these very values looks cheaper than one for any: else every question is
# planned anew, for a third of its time.
POSTINGS = """
select 'postings', {segments}, null, {sizes}, null, null, term, string_agg(postings, '')
from lexical_postings where tenant = %(tenant)s and collection = (select %(collection_id)s::int)
  and kind = (select %(kind)s) and term = any((select %(terms)s::text[])::text[]) {some} group by term"""


def _postings(some: LiteralString) -> Composed:
    segments, sizes = packed_columns("segment_id"), packed_columns("octet_length(postings)")
    return SQL(POSTINGS).format(segments=segments, sizes=sizes, some=SQL(some))


PARTS = (SEGMENTS, DEAD, HIDDEN_CHUNKS, _postings(""))
OF_SOME = _postings("and segment_id = any(%(segments)s)").as_bytes()


def overview_statement(*more: Composed) -> bytes:
    """`more` may tell of other chunks that are dead, in the same columns."""
    return SQL("\nunion all").join([*PARTS, *more]).as_bytes()


OVERVIEW = overview_statement()


@dataclass(frozen=True, slots=True)
class Overview:
    """`segments` are their ids, ascending: the place of each in there is that in `chunks`; `segment_ids` are the same.
    `hidden` are the chunks that the asker may not see. `lists` are those that were read with it."""

    segments: Numbers
    segment_ids: frozenset[int]
    chunks: Chunks
    hidden: Ranges
    lists: Mapping[str, TermLists]


async def overview(snapshot: Snapshot, terms: Collection[str] = (), statement: bytes = OVERVIEW) -> Overview:
    """With the lists of these terms."""
    wanted = {**snapshot.scope, "terms": list(terms)}
    cursor = await snapshot.connection.execute(statement, wanted, binary=True)
    rows = _by_part(await cursor.fetchall())
    stored, dead, hidden = (_ranges(rows[part]) for part in ("segment", "dead", "hidden"))
    order = np.argsort(stored.segments)
    segments, counts = stored.segments[order], stored.counts[order]
    chunks = Chunks.of(counts, dead.at(segments), *_totals([*rows["segment"], *rows["dead"]]))
    segment_ids = frozenset(segments.tolist())
    return Overview(segments, segment_ids, chunks, hidden.at(segments), _lists(rows["postings"], terms, segment_ids))


async def lists(snapshot: Snapshot, terms: Collection[str], segments: Collection[int]) -> Mapping[str, TermLists]:
    """Of those terms, in those segments."""
    wanted = {**snapshot.scope, "terms": list(terms), "segments": list(segments)}
    cursor = await snapshot.connection.execute(OF_SOME, wanted, binary=True)
    return _lists(_by_part(await cursor.fetchall())["postings"], terms, frozenset(segments))


def _by_part(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    parts = defaultdict[str, list[Row]](list)
    for part, *row in rows:
        parts[part].append(row)
    return parts


def _ranges(rows: Sequence[Row]) -> Ranges:
    if not rows:
        return NO_RANGES
    return Ranges.unpacked([b"".join(column) for column in zip(*(row[:3] for row in rows), strict=True)])


def _totals(rows: Iterable[Row]) -> tuple[int, Mapping[str, int]]:
    """The length of what lives, and how many chunks of each language do."""
    total_length, living = 0, defaultdict[str, int](int)
    for _, _, _, length, languages, _, _ in rows:
        total_length += length
        for counts in json.loads(languages):
            for language, count in counts.items():
                living[language] += count
    return total_length, {language: count for language, count in living.items() if count > 0}


def _lists(rows: Iterable[Row], terms: Iterable[str], read: frozenset[int]) -> dict[str, TermLists]:
    found = dict.fromkeys(terms, replace(NO_LISTS, read=read))
    for segments, _, sizes, _, _, term, postings in rows:
        found[term] = TermLists(read, segments, sizes, postings)
    return found
