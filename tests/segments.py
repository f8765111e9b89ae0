"""A segment's posting lists and ranges of chunks, in a form that tests can compare."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from rag_core.storage.lexical.chunks import Ranges
from rag_core.storage.lexical.segment import Segment


def lists(segment: Segment) -> dict[str, bytes]:
    ends = accumulate(segment.sizes)
    spans = zip(segment.terms, ends, segment.sizes, strict=True)
    return {term: segment.postings[end - size : end] for term, end, size in spans}


def ranges(rows: Sequence[tuple[int, int, int]]) -> Ranges:
    """Ranges from rows of (position of the segment, first, count)."""
    return Ranges(*np.array(rows, np.int64).reshape(-1, 3).T)
