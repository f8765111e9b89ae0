"""SPLADE over posting lists, in compiled code: dot products of the question's weights with the stored weights, exact
for the weights as stored. The best chunks are kept as for BM25."""

from functools import cache

import numpy as np

from rag_core.storage.lexical.chunks import NO_RANGES, Chunks, Mask
from rag_core.storage.lexical.compilation import jit
from rag_core.storage.lexical.kinds import SPLADE
from rag_core.storage.lexical.packing import Numbers
from rag_core.storage.lexical.postings import Postings, join_lists
from rag_core.storage.lexical.scoring import (
    MAX_TIES,
    Scores,
    collect_segment,
    new_accumulator,
    new_best_chunks,
    take_best,
)
from rag_core.storage.lexical.segment import DTYPE
from rag_core.storage.lexical.term_lists import TermLists


def find_best(
    chunks: Chunks, postings: Postings, weights: Scores, excluded: Mask, k: int
) -> tuple[Numbers, Numbers, Scores]:
    """The same as `scoring.find_best`. `weights` holds the question's weights, times the step of the stored ones."""
    return _find_best(postings, weights, chunks.offsets, excluded, k, MAX_TIES)


@cache
def compile_all() -> None:
    """Compiles the functions of this module: see `scoring.compile_all`."""
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    chunks = Chunks.from_counts(one, NO_RANGES, 1, {"": 1})
    postings = join_lists([TermLists.from_segments({1: np.array([[0], [1]], DTYPE).tobytes()})], one, SPLADE)
    find_best(chunks, postings, np.ones(1), chunks.dead, 1)
    score_chunks(postings, np.ones(1), zero, zero)


@jit
def _find_best(
    postings: Postings, weights: Scores, offsets: Numbers, excluded: Mask, k: int, max_ties: int
) -> tuple[Numbers, Numbers, Scores]:
    accumulator, best = new_accumulator(offsets), new_best_chunks(k, max_ties)
    count = row = 0
    while row < len(postings.starts):
        first_row, segment = row, postings.segments[row]
        while row < len(postings.starts) and postings.segments[row] == segment:
            weight, start, size = weights[postings.terms[row]], postings.starts[row], postings.sizes[row]
            for offset in range(start, start + size):
                accumulator[postings.flat[offset]] += weight * postings.flat[offset + size]
            row += 1
        count = collect_segment(accumulator, postings, first_row, row, offsets, excluded, best, count, k + max_ties)
    return take_best(best, count, k + max_ties)


@jit
def score_chunks(postings: Postings, weights: Scores, segments: Numbers, local_numbers: Numbers) -> Scores:
    """The scores of these chunks, in the order given: the same numbers, to the bit, as from `find_best`.

    `segments` holds the positions of their segments. A chunk without any of the terms has 0.
    """
    scores = np.zeros(len(segments), np.float64)
    for chunk in range(len(segments)):
        row = np.searchsorted(postings.segments, segments[chunk])
        while row < len(postings.starts) and postings.segments[row] == segments[chunk]:
            start, size = postings.starts[row], postings.sizes[row]
            listed_numbers = postings.flat[start : start + size]
            index = np.searchsorted(listed_numbers, local_numbers[chunk])
            if index < size and listed_numbers[index] == local_numbers[chunk]:
                scores[chunk] += weights[postings.terms[row]] * postings.flat[start + index + size]
            row += 1
    return scores
