"""The overview of a collection's lexical index under one snapshot. The same statement reads posting lists."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString, TypeAlias

import numpy as np
from psycopg.sql import SQL, Composed

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Ranges
from rag_core.storage.lexical.packing import Numbers, packing_sql
from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists
from rag_core.storage.snapshot import HIDDEN, Snapshot

Row: TypeAlias = Sequence[Any]

# The statement returns one row for all segments, one for the dead chunks of each language, one for all hidden chunks,
# and one for each term. Columns that do not apply are null. JSON is sent as text: for rows this short, its type costs
# more than its content.
SEGMENTS = SQL("""
select 'segment' as part, {ranges}, sum(total_length)::bigint as length,
  '[' || string_agg(languages::text, ',') || ']' as languages, null as term, null::bytea as postings
from lexical_segments where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s
having count(*) > 0""").format(ranges=packing_sql("id", "0", "n_chunks"))
DOCUMENT_RANGES = packing_sql("segment_id", "first_local", "n_chunks")
DEAD = SQL("""
select 'dead', {ranges}, -sum(total_length)::bigint,
  json_build_array(json_build_object(language, -sum(n_chunks)))::text, null, null
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and dead
group by language""").format(ranges=DOCUMENT_RANGES)
HIDDEN_CHUNKS = SQL("""
select 'hidden', {ranges}, null, null, null, null
from lexical_documents where tenant = %(tenant)s and collection = %(collection_id)s and kind = %(kind)s and not dead
  and document_id in ({hidden})
having count(*) > 0""").format(ranges=DOCUMENT_RANGES, hidden=SQL(HIDDEN))
# The subselects hide the parameters' values from the planner, so a plan for these values never looks cheaper than a
# generic one. Otherwise every question would be planned again, which takes a third of its time.
POSTINGS = """
select 'postings', {segments}, null, {sizes}, null, null, term, string_agg(postings, '')
from lexical_postings where tenant = %(tenant)s and collection = (select %(collection_id)s::int)
  and kind = (select %(kind)s) and term = any((select %(terms)s::text[])::text[]) {condition} group by term"""


def _postings_sql(condition: LiteralString) -> Composed:
    segments, sizes = packing_sql("segment_id"), packing_sql("octet_length(postings)")
    return SQL(POSTINGS).format(segments=segments, sizes=sizes, condition=SQL(condition))


PARTS = (SEGMENTS, DEAD, HIDDEN_CHUNKS, _postings_sql(""))
SEGMENT_POSTINGS = _postings_sql("and segment_id = any(%(segments)s)").as_bytes()


def overview_statement(*more_parts: Composed) -> bytes:
    """`more_parts` are selects with the same columns; their rows can add further dead chunks."""
    return SQL("\nunion all").join([*PARTS, *more_parts]).as_bytes()


OVERVIEW = overview_statement()


@dataclass(frozen=True, slots=True)
class Overview:
    """The segments of a collection and their chunks.

    `segment_ids` are ascending; a segment's position in them is its position in `chunks`. `segment_set` holds the same
    ids. `unreadable` holds the chunks of documents that the user's groups may not read. `lists` holds the posting
    lists that were read in the same statement, by term.
    """

    segment_ids: Numbers
    segment_set: frozenset[int]
    chunks: Chunks
    unreadable: Ranges
    lists: Mapping[str, TermLists]


async def read_overview(snapshot: Snapshot, terms: Collection[str] = (), statement: bytes = OVERVIEW) -> Overview:
    """Reads the overview, and the posting lists of `terms` in all segments."""
    parameters = {**snapshot.scope, "terms": list(terms)}
    cursor = await snapshot.connection.execute(statement, parameters, binary=True)
    rows = _group_rows(await cursor.fetchall())
    segments, dead, hidden = (_ranges(rows[part]) for part in ("segment", "dead", "hidden"))
    order = np.argsort(segments.segments)
    ids, counts = segments.segments[order], segments.counts[order]
    segment_set = frozenset(ids.tolist())
    return Overview(
        segment_ids=ids,
        segment_set=segment_set,
        chunks=Chunks.from_counts(counts, dead.with_positions(ids), *_totals([*rows["segment"], *rows["dead"]])),
        unreadable=hidden.with_positions(ids),
        lists=_term_lists(rows["postings"], terms, segment_set),
    )


async def read_lists(snapshot: Snapshot, terms: Collection[str], segments: Collection[int]) -> Mapping[str, TermLists]:
    """Reads the posting lists of these terms in these segments."""
    parameters = {**snapshot.scope, "terms": list(terms), "segments": list(segments)}
    cursor = await snapshot.connection.execute(SEGMENT_POSTINGS, parameters, binary=True)
    return _term_lists(_group_rows(await cursor.fetchall())["postings"], terms, frozenset(segments))


def _group_rows(rows: Iterable[Row]) -> defaultdict[str, list[Row]]:
    """Groups the rows by their first column."""
    parts = defaultdict[str, list[Row]](list)
    for part, *row in rows:
        parts[part].append(row)
    return parts


def _ranges(rows: Sequence[Row]) -> Ranges:
    if not rows:
        return NO_RANGES
    return Ranges.from_columns([b"".join(column) for column in zip(*(row[:3] for row in rows), strict=True)])


def _totals(rows: Iterable[Row]) -> tuple[int, Mapping[str, int]]:
    """The total length of the living chunks, and their count by language. Rows of dead chunks have negative values."""
    total_length, living = 0, defaultdict[str, int](int)
    for _, _, _, length, languages, _, _ in rows:
        total_length += length
        for counts in json.loads(languages):
            for language, count in counts.items():
                living[language] += count
    return total_length, {language: count for language, count in living.items() if count > 0}


def _term_lists(rows: Iterable[Row], terms: Iterable[str], segments: frozenset[int]) -> dict[str, TermLists]:
    """The posting lists by term, read from `segments`. A term without a row has no lists."""
    lists = dict.fromkeys(terms, replace(NO_LISTS, read_segments=segments))
    for ids, _, sizes, _, _, term, postings in rows:
        lists[term] = TermLists(segments, ids, sizes, postings)
    return lists
