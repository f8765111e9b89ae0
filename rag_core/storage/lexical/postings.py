"""The posting lists of a question's terms, in the arrays that scoring reads."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.compilation import jit
from rag_core.storage.lexical.kinds import COLUMNS, WORDS
from rag_core.storage.lexical.packing import PACKED, Numbers, unpack_numbers
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists


class Postings(NamedTuple):
    """Posting lists, sorted by segment, and by term within a segment.

    List i belongs to the term `terms[i]` and to the segment at position `segments[i]`. Its numbers begin at
    `flat[starts[i]]` and form an array of shape (columns, sizes[i]). `flat` itself has no particular order.
    """

    flat: NDArray[np.uint16]
    starts: Numbers
    sizes: Numbers
    segments: Numbers
    terms: Numbers


def join_lists(term_lists: Sequence[TermLists], segment_ids: Numbers, kind: str = WORDS) -> Postings:
    """The lists of all terms in these segments, whose ids are ascending. Lists of other segments are left out."""
    counts = np.array([len(lists.segments) // PACKED.itemsize for lists in term_lists], np.int64)
    ids = unpack_numbers(b"".join(lists.segments for lists in term_lists))
    lengths = unpack_numbers(b"".join(lists.sizes for lists in term_lists)) // DTYPE.itemsize
    flat = np.frombuffer(b"".join(lists.postings for lists in term_lists), DTYPE)
    return _sort_lists(flat, counts, ids, lengths, segment_ids, COLUMNS[kind])


@jit
def _sort_lists(
    flat: NDArray[np.uint16], counts: Numbers, ids: Numbers, lengths: Numbers, segment_ids: Numbers, columns: int
) -> Postings:
    """Sorts the lists, which are given term by term, by their segments.

    `counts` holds the count of lists of each term. `ids` holds the segment id of each list, and `lengths` its count of
    numbers in `flat`.
    """
    positions = np.searchsorted(segment_ids, ids)
    next_rows = np.zeros(len(segment_ids) + 1, np.int64)
    for row in range(len(ids)):
        if positions[row] == len(segment_ids) or segment_ids[positions[row]] != ids[row]:
            positions[row] = -1
        else:
            next_rows[positions[row] + 1] += 1
    next_rows = np.cumsum(next_rows)
    lists = np.empty((4, next_rows[-1]), np.int64)
    row = start = 0
    for term in range(len(counts)):
        for _ in range(counts[term]):
            if positions[row] >= 0:
                lists[:, next_rows[positions[row]]] = start, lengths[row] // columns, positions[row], term
                next_rows[positions[row]] += 1
            start += lengths[row]
            row += 1
    return Postings(flat, lists[0], lists[1], lists[2], lists[3])
