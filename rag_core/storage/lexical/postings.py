"""The posting lists of a question's terms, as they are scored."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_core.storage.lexical.compilation import compiled
from rag_core.storage.lexical.kinds import COLUMNS, WORDS
from rag_core.storage.lexical.packing import PACKED, Numbers, unpacked
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists


class Postings(NamedTuple):
    """In whatever order in `flat`, else those of a segment together and there by term.

    List i is of term `terms[i]` in the segment at place `segments[i]`: an array of shape [columns, sizes[i]] from
    `starts[i]` on.
    """

    flat: NDArray[np.uint16]
    starts: Numbers
    sizes: Numbers
    segments: Numbers
    terms: Numbers


def joined(lists: Sequence[TermLists], segments: Numbers, kind: str = WORDS) -> Postings:
    """Of the terms, in this order, what stands in these segments, whose ids ascend."""
    counts = np.array([len(each.segments) // PACKED.itemsize for each in lists], np.int64)
    ids = unpacked(b"".join(each.segments for each in lists))
    sizes = unpacked(b"".join(each.sizes for each in lists)) // DTYPE.itemsize
    flat = np.frombuffer(b"".join(each.postings for each in lists), DTYPE)
    return _by_segment(flat, counts, ids, sizes, segments, COLUMNS[kind])


@compiled
def _by_segment(
    flat: NDArray[np.uint16], counts: Numbers, ids: Numbers, sizes: Numbers, segments: Numbers, columns: int
) -> Postings:
    """`counts` tells how many lists each term has, and `sizes` how many numbers each list."""
    places = np.searchsorted(segments, ids)
    following = np.zeros(len(segments) + 1, np.int64)
    for row in range(len(ids)):
        if places[row] == len(segments) or segments[places[row]] != ids[row]:
            places[row] = -1
        else:
            following[places[row] + 1] += 1
    following = np.cumsum(following)
    own = np.empty((4, following[-1]), np.int64)
    row = start = 0
    for term in range(len(counts)):
        for _ in range(counts[term]):
            if places[row] >= 0:
                own[:, following[places[row]]] = start, sizes[row] // columns, places[row], term
                following[places[row]] += 1
            start += sizes[row]
            row += 1
    return Postings(flat, own[0], own[1], own[2], own[3])
