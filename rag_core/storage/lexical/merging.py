"""Many small segments into one, and the dead out of those that hold too many, while others read and write.

A merge writes where a document's row stands, a publish that it is dead. Whoever comes second waits and then changes the
newest row, so no tombstone is lost. Merges take segments that no other merge has, so any number may run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.rows import class_row

from rag_core.storage.lexical.kinds import COLUMNS, WORDS
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.segment import CHUNK_ID, DTYPE, MOST_CHUNKS, cells, laid_out
from rag_core.storage.lexical.writing import add_postings, add_segment
from rag_core.storage.postgres import transaction

FAN_IN = 16
"""So many segments of about one size become one: each chunk is written again once a tier, of which there are four."""

DEAD_SHARE = 0.15
"""Above it a segment is written anew without its dead, which every search has to read past."""

MOST_SEGMENTS = 256
POSTINGS_AT_ONCE = 1_000_000

# What no live document covers is dead, be it a tombstone or not.
SIZES = """
select s.id, s.n_chunks as chunks, coalesce(sum(d.n_chunks), 0)::int as live,
  s.kind, s.analysis
from lexical_segments s
left join lexical_documents d
  on d.tenant = s.tenant and d.collection = s.collection and d.segment_id = s.id and not d.dead
where s.tenant = %(tenant)s and s.collection = %(collection)s group by s.id, s.n_chunks, s.kind, s.analysis
order by s.id"""
HOLD_COLLECTION = "select from collections where tenant = %(tenant)s and id = %(collection)s for key share"
TAKE = """
select id, chunk_ids, kind, analysis from lexical_segments where tenant = %(tenant)s and collection = %(collection)s
  and id = any(%(segments)s::bigint[]) order by id for update skip locked"""
LIVE = """
select segment_id, first_local, n_chunks, total_length, language from lexical_documents
where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[]) and not dead
order by segment_id, first_local"""
POSTINGS = """
select coalesce(string_agg(term, E'\\n'), ''), coalesce(string_agg(octet_length(postings)::text, ' '), ''),
  coalesce(string_agg(postings, ''), '')
from lexical_postings where tenant = %(tenant)s and collection = %(collection)s and segment_id = %(segment)s"""
LOCK_DOCUMENTS = """
select from lexical_documents
where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[])
order by document_id, kind, segment_id, first_local for update"""
MOVE = """
update lexical_documents d set segment_id = %(segment)s, first_local = moved.first
from unnest(%(from_segments)s::bigint[], %(from_firsts)s::int[], %(firsts)s::int[]) as moved (segment_id, was, first)
where d.tenant = %(tenant)s and d.collection = %(collection)s and d.segment_id = moved.segment_id
  and d.first_local = moved.was"""
DROP = (
    """delete from lexical_documents
       where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[])""",
    """delete from lexical_postings
       where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[])""",
    """delete from lexical_segments
       where tenant = %(tenant)s and collection = %(collection)s and id = any(%(segments)s::bigint[])""",
)


@dataclass(frozen=True, slots=True)
class Size:
    """A segment's chunks, as built and still live, and what made its terms."""

    id: int
    chunks: int
    live: int
    kind: str = WORDS
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as it is stored. `places`, one a chunk: its number in the merged segment, or -1 where it goes.

    `sizes` counts the postings of each term; `table` holds them all, term by term, as [columns, size] each.
    """

    places: Numbers
    terms: Sequence[str]
    sizes: Numbers
    table: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class _Live:
    segment_id: int
    first_local: int
    n_chunks: int
    total_length: int
    language: str


def merge(connection: Connection, tenant: str, collection: int) -> int:
    """Until nothing is due; how many segments went. What another merge holds is left to it."""
    scope = {"tenant": tenant, "collection": collection}
    gone = 0
    while segments := due(_sizes(connection, tenant, scope)):
        with transaction(connection, tenant):
            if not _merged(connection, {**scope, "segments": segments}):
                break
        gone += len(segments)
    return gone


def due(sizes: Sequence[Size]) -> list[int]:
    """The segments to make one of now, all with terms of one making: those that hold too many dead, else as many small
    ones as fit one segment."""
    alike = defaultdict[tuple[str, str], list[Size]](list)
    for size in sizes:
        alike[size.kind, size.analysis].append(size)
    return next(filter(None, map(_due, alike.values())), [])


def _due(sizes: Sequence[Size]) -> list[int]:
    spoiled = [size for size in sizes if size.live < (1 - DEAD_SHARE) * size.chunks]
    chosen = sorted(spoiled or _crowded(sizes), key=lambda size: (size.live, size.id))
    totals = accumulate(size.live for size in chosen)
    fitting = [size.id for size, total in zip(chosen, totals, strict=True) if total <= MOST_CHUNKS]
    return fitting[:MOST_SEGMENTS] if spoiled or len(fitting) > 1 else []


def _crowded(sizes: Sequence[Size]) -> list[Size]:
    """All up to the largest tier that has its number; what fills more than half a segment stays for good."""
    small = [size for size in sizes if 2 * size.live <= MOST_CHUNKS]
    counts = Counter(_tier(size) for size in small)
    full = max((tier for tier, count in counts.items() if count >= FAN_IN), default=-1)
    return [size for size in small if _tier(size) <= full]


def _tier(size: Size) -> int:
    return (size.live.bit_length() - 1) // 4


def _sizes(connection: Connection, tenant: str, scope: Mapping[str, Any]) -> list[Size]:
    with transaction(connection, tenant), connection.cursor(row_factory=class_row(Size)) as cursor:
        return cursor.execute(SIZES, scope).fetchall()


def _merged(connection: Connection, scope: Mapping[str, Any]) -> bool:
    if connection.execute(HOLD_COLLECTION, scope).fetchone() is None:
        return False
    taken = connection.execute(TAKE, scope).fetchall()
    if len(taken) < len(scope["segments"]):
        return False
    _, _, kind, analysis = taken[0]
    with connection.cursor(row_factory=class_row(_Live)) as cursor:
        live = cursor.execute(LIVE, scope).fetchall()
    if live:
        chunks = {id: np.frombuffer(chunk_ids, CHUNK_ID) for id, chunk_ids, *_ in taken}
        _write(connection, {**scope, "kind": kind, "analysis": analysis}, chunks, live)
    for statement in DROP:
        connection.execute(statement.encode(), scope)
    return True


def _write(
    connection: Connection, scope: Mapping[str, Any], taken: Mapping[int, NDArray[np.bytes_]], live: Sequence[_Live]
) -> None:
    """`taken` has the ids of each segment's chunks. The documents' rows are locked at the end, so that publishers wait
    for no more than their move."""
    ends = list(accumulate(document.n_chunks for document in live))
    firsts = [0, *ends[:-1]]
    places = {segment: np.full(len(ids), -1, np.int64) for segment, ids in taken.items()}
    for document, first in zip(live, firsts, strict=True):
        own = slice(document.first_local, document.first_local + document.n_chunks)
        places[document.segment_id][own] = np.arange(first, first + document.n_chunks)
    parts = [_part(connection, {**scope, "segment": segment}, places[segment]) for segment in taken]
    kept = [ids[places[segment] >= 0] for segment, ids in taken.items()]
    segment = add_segment(connection, scope, live, np.concatenate(kept).tobytes())
    add_postings(connection, scope, segment, *merged(parts, COLUMNS[scope["kind"]]))
    connection.execute(LOCK_DOCUMENTS, scope)
    values = {
        "segment": segment,
        "from_segments": [document.segment_id for document in live],
        "from_firsts": [document.first_local for document in live],
        "firsts": firsts,
    }
    connection.execute(MOVE, {**scope, **values})


def _part(connection: Connection, scope: Mapping[str, Any], places: Numbers) -> Part:
    terms, sizes, table = connection.execute(POSTINGS, scope, binary=True).fetchone() or ("", "", b"")
    return Part(
        places=places,
        terms=terms.split("\n") if terms else [],
        sizes=np.array(sizes.split(), np.int64) // (COLUMNS[scope["kind"]] * DTYPE.itemsize),
        table=np.frombuffer(table, DTYPE),
    )


def merged(parts: Sequence[Part], columns: int = 3) -> tuple[list[str], list[int], bytes]:
    """The terms in their order, how many bytes the postings of each have, and these one after the other."""
    terms, rows = _numbered([part.terms for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    starts = columns * (np.cumsum(sizes) - sizes)
    table = np.concatenate([part.table for part in parts])
    places = np.concatenate([part.places for part in parts])
    chunks = np.array([len(part.places) for part in parts])
    bases = np.repeat(np.cumsum(chunks) - chunks, [len(part.terms) for part in parts])
    order = np.argsort(rows, kind="stable")  # of one term the parts stay in their order, and so the numbers ascend
    counts, tables = np.zeros(len(terms), np.int64), []
    for some in _slices(rows[order], sizes[order]):
        at = order[some]
        postings = table[cells(starts[at], sizes[at], columns)]
        place = places[np.repeat(bases[at], sizes[at]) + postings[0]]
        postings[0] = place
        own = np.bincount(np.repeat(rows[at], sizes[at])[place >= 0], minlength=len(terms))
        tables.append(laid_out(postings[:, place >= 0], own))
        counts += own
    kept = np.flatnonzero(counts)
    lengths = columns * DTYPE.itemsize * counts[kept]
    return [terms[number] for number in kept], lengths.tolist(), b"".join(tables)


def _numbered(lists: Sequence[Sequence[str]]) -> tuple[list[str], Numbers]:
    """All terms in their order, and the number in it of each that the lists hold, one list after the other."""
    terms = sorted(set(chain.from_iterable(lists)))
    numbers = {term: number for number, term in enumerate(terms)}
    return terms, np.array([numbers[term] for term in chain.from_iterable(lists)], np.int64)


def _slices(rows: Numbers, sizes: Numbers) -> Iterator[slice]:
    """Of rows in order, each with all of its equals: a merge takes memory for so many postings at a time."""
    totals, first = np.cumsum(sizes), 0
    while first < len(rows):
        done = int(totals[first - 1]) if first else 0
        reached = min(int(np.searchsorted(totals, done + POSTINGS_AT_ONCE)), len(rows) - 1)
        last = int(np.searchsorted(rows, rows[reached], side="right"))
        yield slice(first, last)
        first = last
