"""Detection of changes of subject: pure functions of the sentences' vectors and lengths."""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from rag_core.types import Matrix

_BLOCK_SENTENCES = 3
"""Sentences that are compared on either side of a boundary. The vector of a single sentence is too noisy."""


def block_similarities(vectors: Matrix) -> NDArray[np.float64]:
    """Shape: (sentences,). The cosine between the block before each sentence and the block that begins with it.

    The first is 0: there is no block before it. TextTiling compares blocks in this way (Hearst 1997).
    """
    count = len(vectors)
    sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
    positions = np.arange(count)
    before = sums[positions] - sums[np.maximum(positions - _BLOCK_SENTENCES, 0)]
    after = sums[np.minimum(positions + _BLOCK_SENTENCES, count)] - sums[positions]
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    products = (before * after).sum(axis=1)
    cosines: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros(count), where=lengths > 0)
    return cosines


def cheapest_cuts(lengths: Sequence[int], costs: Sequence[float], limit: int) -> list[tuple[int, int]]:
    """Half-open runs of at most `limit` that cover everything, with the least sum of costs.

    A cut before a sentence costs `costs` of that sentence; negative costs count as 0. No length exceeds `limit`. Of
    equally cheap solutions, the one with the longest last runs is returned.
    """
    least_costs, best_starts = [0.0], [0]
    for end in range(1, len(lengths) + 1):
        least_cost, best_start, total = inf, end - 1, 0
        for start in range(end - 1, -1, -1):
            total += lengths[start]
            if total > limit and start < end - 1:
                break
            cost = least_costs[start] + (max(costs[start], 0.0) if start else 0.0)
            if cost <= least_cost:
                least_cost, best_start = cost, start
        least_costs.append(least_cost)
        best_starts.append(best_start)
    runs, end = [], len(lengths)
    while end > 0:
        runs.append((best_starts[end], end))
        end = best_starts[end]
    return runs[::-1]
