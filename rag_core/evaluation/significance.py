"""How far a mean over questions can be trusted, and whether two of them differ.

Every function is deterministic: what is drawn is drawn from its seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
FLIPS = 100_000
EXACT_UP_TO = 16
"""Questions of which all ways to flip signs are counted."""
AT_ONCE = 1_000
"""Resamples that are held in memory together."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def estimates(values: NDArray[np.float64], seed: int = 0, resamples: int = RESAMPLES) -> list[Estimate]:
    """One a column; shape (questions, measures), at least one question.

    The interval is the bootstrap's percentiles over questions (Efron 1979); all columns are resampled alike.
    """
    generator = np.random.default_rng(seed)
    means = np.concatenate([_resampled(values, generator, n) for n in _portions(resamples)])
    lows, highs = np.percentile(means, [2.5, 97.5], axis=0)
    columns = zip(values.mean(axis=0), lows, highs, strict=True)
    return [Estimate(float(mean), float(low), float(high)) for mean, low, high in columns]


def randomisation_p(one: Sequence[float], other: Sequence[float], seed: int = 0, flips: int = FLIPS) -> float:
    """Two-sided: how often a mean difference as large arises when each question's sign is a coin's (Fisher 1935).

    Both are of the same questions in the same order. Exact for few questions; else with the observed one counted in,
    so that it is never 0.
    """
    differences = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    observed = abs(differences.sum()) * (1 - 1e-12)  # a sum of the same numbers in another order may be less
    if len(differences) <= EXACT_UP_TO:
        return float((np.abs(_all_signs(len(differences)) @ differences) >= observed).mean())
    generator, as_large = np.random.default_rng(seed), 1
    for n in _portions(flips):
        signs = generator.integers(0, 2, size=(n, len(differences)), dtype=np.int8) * 2.0 - 1
        as_large += int((np.abs(signs @ differences) >= observed).sum())
    return as_large / (flips + 1)


def _resampled(values: NDArray[np.float64], generator: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Means of n resamples, shape (n, measures)."""
    questions = len(values)
    drawn = generator.integers(questions, size=(n, questions)) + np.arange(n)[:, None] * questions
    times = np.bincount(drawn.ravel(), minlength=n * questions).reshape(n, questions)
    means: NDArray[np.float64] = times @ values / questions
    return means


def _all_signs(n: int) -> NDArray[np.float64]:
    """Shape (2 ** n, n)."""
    return np.where((np.arange(2**n)[:, None] >> np.arange(n)) & 1, 1.0, -1.0)


def _portions(count: int) -> Iterator[int]:
    yield from (min(AT_ONCE, count - done) for done in range(0, count, AT_ONCE))
