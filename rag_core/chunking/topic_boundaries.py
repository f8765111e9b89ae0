"""Where a text changes its subject: pure functions of its sentences' vectors and lengths."""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from rag_core.types import Matrix

_BLOCK = 3
"""Sentences on either side of a boundary: one alone says little, and says it noisily."""


def similarities(vectors: Matrix) -> NDArray[np.float64]:
    """Shape (sentences,): the cosine of the sentences before each and those from it on, as TextTiling compares blocks
    (Hearst 1997); 0 for the first, which has none before it.
    """
    count = len(vectors)
    sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
    here = np.arange(count)
    before = sums[here] - sums[np.maximum(here - _BLOCK, 0)]
    behind = sums[np.minimum(here + _BLOCK, count)] - sums[here]
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(behind, axis=1)
    products = (before * behind).sum(axis=1)
    cosines: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros(count), where=lengths > 0)
    return cosines


def cheapest_cuts(lengths: Sequence[int], costs: Sequence[float], limit: int) -> list[tuple[int, int]]:
    """Runs of at most `limit` that cover everything, half open, with the least sum of costs of those that begin one.

    Costs below 0 count as 0. No length is above `limit`. Of equally cheap ways the one with the longest last runs.
    """
    best, begins = [0.0], [0]
    for end in range(1, len(lengths) + 1):
        least, begin, total = inf, end - 1, 0
        for start in range(end - 1, -1, -1):
            total += lengths[start]
            if total > limit and start < end - 1:
                break
            cost = best[start] + (max(costs[start], 0.0) if start else 0.0)
            if cost <= least:
                least, begin = cost, start
        best.append(least)
        begins.append(begin)
    return _runs(begins)


def _runs(begins: Sequence[int]) -> list[tuple[int, int]]:
    runs, end = [], len(begins) - 1
    while end > 0:
        runs.append((begins[end], end))
        end = begins[end]
    return runs[::-1]
