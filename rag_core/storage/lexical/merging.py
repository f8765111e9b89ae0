"""Merges of small segments, and removal of dead chunks, while others read and publish.

A merge updates the segment of a document's row, and a publisher marks the row as dead. The second of the two waits and
then updates the newest version of the row, so no mark is lost. A merge skips segments that another merge has locked, so
any number of merges can run at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.rows import class_row

from rag_core.storage.lexical.kinds import COLUMNS, WORDS
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.segment import CHUNK_ID, DTYPE, MAX_CHUNKS, encode_postings, number_offsets
from rag_core.storage.lexical.writing import insert_postings, insert_segment
from rag_core.storage.postgres import transaction

FAN_IN = 16
"""The count of segments of about the same size that are merged into one. Each chunk is rewritten once in each of the
four size tiers."""

DEAD_SHARE = 0.15
"""The share of dead chunks above which a segment is rewritten without them. Every search has to skip dead chunks."""

MAX_SEGMENTS = 256
"""The most segments of one merge."""

MAX_BATCH_POSTINGS = 1_000_000
"""The count of postings after which a batch of terms ends, which limits the memory of a merge."""

# A chunk is dead if no live document covers it, even if no row marks it as dead.
SIZES = """
select s.id, s.n_chunks as chunks, coalesce(sum(d.n_chunks), 0)::int as live,
  s.kind, s.analysis
from lexical_segments s
left join lexical_documents d
  on d.tenant = s.tenant and d.collection = s.collection and d.segment_id = s.id and not d.dead
where s.tenant = %(tenant)s and s.collection = %(collection)s group by s.id, s.n_chunks, s.kind, s.analysis
order by s.id"""
LOCK_COLLECTION = "select from collections where tenant = %(tenant)s and id = %(collection)s for key share"
LOCK_SEGMENTS = """
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
update lexical_documents d set segment_id = %(segment)s, first_local = moved.new_first
from unnest(%(from_segments)s::bigint[], %(from_firsts)s::int[], %(firsts)s::int[])
  as moved (segment_id, old_first, new_first)
where d.tenant = %(tenant)s and d.collection = %(collection)s and d.segment_id = moved.segment_id
  and d.first_local = moved.old_first"""
DELETE_SEGMENTS = (
    """delete from lexical_documents
       where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[])""",
    """delete from lexical_postings
       where tenant = %(tenant)s and collection = %(collection)s and segment_id = any(%(segments)s::bigint[])""",
    """delete from lexical_segments
       where tenant = %(tenant)s and collection = %(collection)s and id = any(%(segments)s::bigint[])""",
)


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """The count of a segment's chunks when it was built, and the count of those that are not dead.

    `analysis` identifies what produced its terms: the version of the text analysis, or a SPLADE model's fingerprint.
    """

    id: int
    chunks: int
    live: int
    kind: str = WORDS
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The contents of a segment that is being merged.

    `new_numbers` holds, for each chunk, its local number in the merged segment, or -1 for a dead chunk. `sizes` counts
    the postings of each term. `table` holds the posting lists, one after the other, each of shape (columns, size).
    """

    new_numbers: Numbers
    terms: Sequence[str]
    sizes: Numbers
    table: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class _LiveDocument:
    segment_id: int
    first_local: int
    n_chunks: int
    total_length: int
    language: str


def merge(connection: Connection, tenant: str, collection: int, dead_share: float = DEAD_SHARE) -> int:
    """Merges segments until none is due, or another merge has locked some of them. Returns the count it replaced.

    A segment with a larger share of dead chunks than `dead_share` is rewritten without them; 0 removes all.
    """
    scope = {"tenant": tenant, "collection": collection}
    replaced = 0
    while segments := choose_segments(_read_sizes(connection, tenant, scope), dead_share):
        with transaction(connection, tenant):
            if not _merge_segments(connection, {**scope, "segments": segments}):
                break
        replaced += len(segments)
    return replaced


def choose_segments(sizes: Sequence[SegmentSize], dead_share: float = DEAD_SHARE) -> list[int]:
    """The ids of the segments to merge next; empty if none is due. All have the same kind and analysis.

    Segments with too many dead chunks are chosen first, then small ones; in each case as many as fit one segment.
    """
    groups = defaultdict[tuple[str, str], list[SegmentSize]](list)
    for size in sizes:
        groups[size.kind, size.analysis].append(size)
    return next(filter(None, (_choose_in_group(group, dead_share) for group in groups.values())), [])


def _choose_in_group(sizes: Sequence[SegmentSize], dead_share: float) -> list[int]:
    too_dead = [size for size in sizes if size.live < (1 - dead_share) * size.chunks]
    candidates = sorted(too_dead or _small_segments(sizes), key=lambda size: (size.live, size.id))
    totals = accumulate(size.live for size in candidates)
    fitting = [size.id for size, total in zip(candidates, totals, strict=True) if total <= MAX_CHUNKS]
    return fitting[:MAX_SEGMENTS] if too_dead or len(fitting) > 1 else []


def _small_segments(sizes: Sequence[SegmentSize]) -> list[SegmentSize]:
    """All segments up to the largest tier that has at least FAN_IN of them. A segment more than half full is final."""
    small = [size for size in sizes if 2 * size.live <= MAX_CHUNKS]
    counts = Counter(_tier(size) for size in small)
    largest = max((tier for tier, count in counts.items() if count >= FAN_IN), default=-1)
    return [size for size in small if _tier(size) <= largest]


def _tier(size: SegmentSize) -> int:
    return (size.live.bit_length() - 1) // 4


def _read_sizes(connection: Connection, tenant: str, scope: Mapping[str, Any]) -> list[SegmentSize]:
    with transaction(connection, tenant), connection.cursor(row_factory=class_row(SegmentSize)) as cursor:
        return cursor.execute(SIZES, scope).fetchall()


def _merge_segments(connection: Connection, scope: Mapping[str, Any]) -> bool:
    """Replaces the segments by one segment, or only deletes them if all their chunks are dead.

    Returns False if the collection no longer exists, or another merge has locked one of the segments.
    """
    if connection.execute(LOCK_COLLECTION, scope).fetchone() is None:
        return False
    segments = connection.execute(LOCK_SEGMENTS, scope).fetchall()
    if len(segments) < len(scope["segments"]):
        return False
    _, _, kind, analysis = segments[0]
    with connection.cursor(row_factory=class_row(_LiveDocument)) as cursor:
        live = cursor.execute(LIVE, scope).fetchall()
    if live:
        chunk_ids = {id: np.frombuffer(ids, CHUNK_ID) for id, ids, *_ in segments}
        _write_merged(connection, {**scope, "kind": kind, "analysis": analysis}, chunk_ids, live)
    for statement in DELETE_SEGMENTS:
        connection.execute(statement.encode(), scope)
    return True


def _write_merged(
    connection: Connection,
    scope: Mapping[str, Any],
    chunk_ids: Mapping[int, NDArray[np.bytes_]],
    live: Sequence[_LiveDocument],
) -> None:
    """Writes the merged segment and moves the live documents to it. `chunk_ids` holds those of each old segment.

    The documents' rows are locked last, so publishers wait only while they are moved.
    """
    ends = list(accumulate(document.n_chunks for document in live))
    firsts = [0, *ends[:-1]]
    new_numbers = {segment: np.full(len(ids), -1, np.int64) for segment, ids in chunk_ids.items()}
    for document, first in zip(live, firsts, strict=True):
        old_numbers = slice(document.first_local, document.first_local + document.n_chunks)
        new_numbers[document.segment_id][old_numbers] = np.arange(first, first + document.n_chunks)
    parts = [_read_part(connection, {**scope, "segment": segment}, new_numbers[segment]) for segment in chunk_ids]
    live_ids = [ids[new_numbers[segment] >= 0] for segment, ids in chunk_ids.items()]
    segment = insert_segment(connection, scope, live, np.concatenate(live_ids).tobytes())
    insert_postings(connection, scope, segment, *merge_postings(parts, COLUMNS[scope["kind"]]))
    connection.execute(LOCK_DOCUMENTS, scope)
    moves = {
        "segment": segment,
        "from_segments": [document.segment_id for document in live],
        "from_firsts": [document.first_local for document in live],
        "firsts": firsts,
    }
    connection.execute(MOVE, {**scope, **moves})


def _read_part(connection: Connection, scope: Mapping[str, Any], new_numbers: Numbers) -> SegmentPart:
    terms, sizes, table = connection.execute(POSTINGS, scope, binary=True).fetchone() or ("", "", b"")
    return SegmentPart(
        new_numbers=new_numbers,
        terms=terms.split("\n") if terms else [],
        sizes=np.array(sizes.split(), np.int64) // (COLUMNS[scope["kind"]] * DTYPE.itemsize),
        table=np.frombuffer(table, DTYPE),
    )


def merge_postings(parts: Sequence[SegmentPart], columns: int = 3) -> tuple[list[str], list[int], bytes]:
    """Returns the terms in ascending order, the length of each posting list in bytes, and the lists in that order."""
    terms = sorted({term for part in parts for term in part.terms})
    indexes = {term: index for index, term in enumerate(terms)}
    rows = np.array([indexes[term] for part in parts for term in part.terms], np.int64)
    sizes = np.concatenate([part.sizes for part in parts])
    starts = columns * (np.cumsum(sizes) - sizes)
    table = np.concatenate([part.table for part in parts])
    new_numbers = np.concatenate([part.new_numbers for part in parts])
    n_chunks = np.array([len(part.new_numbers) for part in parts])
    bases = np.repeat(np.cumsum(n_chunks) - n_chunks, [len(part.terms) for part in parts])
    order = np.argsort(rows, kind="stable")  # a term's lists stay in the order of the parts, so local numbers ascend
    counts, tables = np.zeros(len(terms), np.int64), []
    for batch in _split_batches(rows[order], sizes[order]):
        lists = order[batch]
        postings = table[number_offsets(starts[lists], sizes[lists], columns)]
        numbers = new_numbers[np.repeat(bases[lists], sizes[lists]) + postings[0]]
        postings[0] = numbers
        batch_counts = np.bincount(np.repeat(rows[lists], sizes[lists])[numbers >= 0], minlength=len(terms))
        tables.append(encode_postings(postings[:, numbers >= 0], batch_counts))
        counts += batch_counts
    present = np.flatnonzero(counts)
    lengths = columns * DTYPE.itemsize * counts[present]
    return [terms[index] for index in present], lengths.tolist(), b"".join(tables)


def _split_batches(rows: Numbers, sizes: Numbers) -> Iterator[slice]:
    """Yields slices of the sorted rows. A slice ends at MAX_BATCH_POSTINGS postings, but never splits equal rows."""
    totals, first = np.cumsum(sizes), 0
    while first < len(rows):
        total_before = int(totals[first - 1]) if first else 0
        full = min(int(np.searchsorted(totals, total_before + MAX_BATCH_POSTINGS)), len(rows) - 1)
        end = int(np.searchsorted(rows, rows[full], side="right"))
        yield slice(first, end)
        first = end
