"""A segment's posting lists, as tests look at them."""

from itertools import accumulate

from rag_core.storage.lexical.segment import Segment


def lists(segment: Segment) -> dict[str, bytes]:
    ends = accumulate(segment.sizes)
    spans = zip(segment.terms, ends, segment.sizes, strict=True)
    return {term: segment.postings[end - size : end] for term, end, size in spans}
