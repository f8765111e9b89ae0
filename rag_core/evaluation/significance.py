"""The confidence in a mean over questions, and the significance of a difference between two means.

Every function is deterministic: its random numbers depend only on its seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
FLIPS = 100_000
MAX_EXACT_QUESTIONS = 16
"""The number of questions up to which all combinations of signs are counted."""
BATCH_SIZE = 1_000
"""The number of resamples in memory at a time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def estimates(values: NDArray[np.float64], seed: int = 0, resamples: int = RESAMPLES) -> list[Estimate]:
    """One estimate per column; the shape of `values` is (questions, measures), with at least one question.

    The intervals are percentiles of a bootstrap over questions (Efron 1979), with the same resamples for all columns.
    """
    generator = np.random.default_rng(seed)
    questions, means = len(values), []
    for count in _batch_sizes(resamples):
        draws = generator.integers(questions, size=(count, questions)) + np.arange(count)[:, None] * questions
        frequencies = np.bincount(draws.ravel(), minlength=count * questions).reshape(count, questions)
        means.append(frequencies @ values / questions)
    lows, highs = np.percentile(np.concatenate(means), [2.5, 97.5], axis=0)
    columns = zip(values.mean(axis=0), lows, highs, strict=True)
    return [Estimate(float(mean), float(low), float(high)) for mean, low, high in columns]


def randomisation_p(one: Sequence[float], other: Sequence[float], seed: int = 0, flips: int = FLIPS) -> float:
    """The two-sided p of the mean difference between values of the same questions in the same order (Fisher 1935).

    It is the share of random signs of the differences for which their mean is at least as large. For few questions it
    is exact; for more, the observed signs count as one of the random ones, so that p is never 0.
    """
    differences = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    questions = len(differences)
    observed = abs(differences.sum()) * (1 - 1e-12)  # the sum of the same numbers in another order can be smaller
    if questions <= MAX_EXACT_QUESTIONS:
        all_signs = np.where((np.arange(2**questions)[:, None] >> np.arange(questions)) & 1, 1.0, -1.0)
        return float((np.abs(all_signs @ differences) >= observed).mean())
    generator, as_large = np.random.default_rng(seed), 1
    for count in _batch_sizes(flips):
        signs = generator.integers(0, 2, size=(count, questions), dtype=np.int8) * 2.0 - 1
        as_large += int((np.abs(signs @ differences) >= observed).sum())
    return as_large / (flips + 1)


def _batch_sizes(count: int) -> Iterator[int]:
    yield from (min(BATCH_SIZE, count - start) for start in range(0, count, BATCH_SIZE))
