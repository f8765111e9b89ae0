"""SPLADE over posting lists, compiled: dot products of the question's weights and the chunks', exact for the weights as
they are stored. The best are kept as for BM25."""

from functools import cache

import numpy as np

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Mask
from rag_core.storage.lexical.compilation import compiled
from rag_core.storage.lexical.kinds import SPLADE
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.postings import Postings, joined
from rag_core.storage.lexical.scoring import MOST_TIES, Scores, accumulating, collect, keeping, kept_best
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists


def best(
    chunks: Chunks, postings: Postings, weights: Scores, left_out: Mask, k: int
) -> tuple[Numbers, Numbers, Scores]:
    """As `scoring.best`; `weights` are of the question's terms, times the step of the stored ones."""
    return _best(postings, weights, chunks.firsts, left_out, k, MOST_TIES)


def scores(postings: Postings, weights: Scores, segments: Numbers, locals: Numbers) -> Scores:
    """To the bit what `best` gives those chunks, in the order given; 0 for a chunk without any of the terms."""
    return _scores(postings, weights, segments, locals)


@cache
def compile_all() -> None:
    """As `scoring.compile_all`."""
    place, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    chunks = Chunks.of(one, NO_RANGES, 1, {"": 1})
    postings = joined([TermLists.by_segment({1: np.array([[0], [1]], DTYPE).tobytes()})], one, SPLADE)
    best(chunks, postings, np.ones(1), chunks.dead, 1)
    scores(postings, np.ones(1), place, place)


@compiled
def _best(
    postings: Postings, weights: Scores, firsts: Numbers, left_out: Mask, k: int, most_ties: int
) -> tuple[Numbers, Numbers, Scores]:
    accumulator, kept = accumulating(firsts), keeping(k, most_ties)
    found = row = 0
    while row < len(postings.starts):
        begin, segment = row, postings.segments[row]
        while row < len(postings.starts) and postings.segments[row] == segment:
            weight, start, size = weights[postings.terms[row]], postings.starts[row], postings.sizes[row]
            for place in range(start, start + size):
                accumulator[postings.flat[place]] += weight * postings.flat[place + size]
            row += 1
        found = collect(accumulator, postings, begin, row, firsts, left_out, kept, found, k + most_ties)
    return kept_best(kept, found, k + most_ties)


@compiled
def _scores(postings: Postings, weights: Scores, segments: Numbers, locals: Numbers) -> Scores:
    found = np.zeros(len(segments), np.float64)
    for wanted in range(len(segments)):
        row = np.searchsorted(postings.segments, segments[wanted])
        while row < len(postings.starts) and postings.segments[row] == segments[wanted]:
            start, size = postings.starts[row], postings.sizes[row]
            own = postings.flat[start : start + size]
            place = np.searchsorted(own, locals[wanted])
            if place < size and own[place] == locals[wanted]:
                found[wanted] += weights[postings.terms[row]] * postings.flat[start + place + size]
            row += 1
    return found
