"""The confidence in a mean over questions, and the significance of a difference between two means.

Every function is deterministic: its random numbers depend only on its seed.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

RESAMPLES = 10_000
FLIPS = 100_000
MAX_EXACT_QUESTIONS = 16
"""The number of questions up to which all combinations of signs are counted."""
BATCH_SIZE = 1_000
"""The number of resamples in memory at a time."""
TIE = 1e-12
"""The difference of two values below which they are equal: sums of the same numbers in another order differ by less."""
DETECTABLE_ERRORS = 1.959963984540054 + 0.8416212335729143
"""The standard errors of a mean that a two-sided test at 5 % detects with a power of 80 %."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def estimates(values: Floats, seed: int = 0, resamples: int = RESAMPLES) -> list[Estimate]:
    """One estimate per column; the shape of `values` is (questions, measures), with at least one question.

    The intervals are percentiles of a bootstrap over questions (Efron 1979), with the same resamples for all columns.
    """
    means = _resample_means(values, np.random.default_rng(seed), resamples)
    lows, highs = np.percentile(means, [2.5, 97.5], axis=0)
    columns = zip(values.mean(axis=0), lows, highs, strict=True)
    return [Estimate(float(mean), float(low), float(high)) for mean, low, high in columns]


def estimate_groups(groups: Sequence[Floats], seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The estimate of the mean over all values. Each group, such as a dataset, is resampled by itself."""
    generator, total = np.random.default_rng(seed), sum(map(len, groups))
    means = sum(len(group) / total * _resample_means(group[:, None], generator, resamples) for group in groups)
    low, high = np.percentile(means, [2.5, 97.5])
    return Estimate(float(np.concatenate(groups).mean()), float(low), float(high))


def randomisation_p(one: Sequence[float], other: Sequence[float], seed: int = 0, flips: int = FLIPS) -> float:
    """The two-sided p of the mean difference between values of the same questions in the same order (Fisher 1935).

    It is the share of random signs of the differences for which their mean is at least as large. For few questions it
    is exact; for more, the observed signs count as one of the random ones, so that p is never 0. Ties change no mean,
    and are left out.
    """
    differences = _drop_ties(one, other)
    observed = abs(differences.sum()) * (1 - TIE)  # the sum of the same numbers in another order can be smaller
    return _share_of_flips(differences, seed, flips, lambda sums: np.abs(sums) >= observed)


def worse_p(one: Sequence[float], other: Sequence[float], seed: int = 0, flips: int = FLIPS) -> float:
    """The one-sided p of the hypothesis that `one` is not worse than `other`, as in `randomisation_p`."""
    differences = _drop_ties(one, other)
    observed = differences.sum() + TIE * np.abs(differences).sum()
    return _share_of_flips(differences, seed, flips, lambda sums: sums <= observed)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values adjusted for their number (Holm 1979), in the order given."""
    adjusted: dict[Key, float] = {}
    highest = 0.0
    for rank, key in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[key]))
        adjusted[key] = highest
    return {key: adjusted[key] for key in p_values}


def detectable_difference(differences: Floats) -> float:
    """The smallest mean difference that a two-sided test at 5 % finds with a power of 80 %; 0 for one question."""
    questions = len(differences)
    return DETECTABLE_ERRORS * float(differences.std(ddof=1)) / sqrt(questions) if questions > 1 else 0.0


def _resample_means(values: Floats, generator: np.random.Generator, resamples: int) -> Floats:
    """Shape (resamples, measures): the means of random choices of questions, with replacement."""
    questions, means = len(values), []
    for count in _batch_sizes(resamples):
        draws = generator.integers(questions, size=(count, questions)) + np.arange(count)[:, None] * questions
        frequencies = np.bincount(draws.ravel(), minlength=count * questions).reshape(count, questions)
        means.append(frequencies @ values / questions)
    return np.concatenate(means)


def _drop_ties(one: Sequence[float], other: Sequence[float]) -> Floats:
    differences = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    return differences[np.abs(differences) >= TIE]


def _share_of_flips(differences: Floats, seed: int, flips: int, counts: Callable[[Floats], NDArray[np.bool_]]) -> float:
    """The share of signs whose sum of differences counts: of all signs for few questions, or else of random ones."""
    questions = len(differences)
    if questions <= MAX_EXACT_QUESTIONS:
        all_signs = np.where((np.arange(2**questions)[:, None] >> np.arange(questions)) & 1, 1.0, -1.0)
        return float(counts(all_signs @ differences).mean())
    generator, counted = np.random.default_rng(seed), 1
    for count in _batch_sizes(flips):
        signs = generator.integers(0, 2, size=(count, questions), dtype=np.int8) * 2.0 - 1
        counted += int(counts(signs @ differences).sum())
    return counted / (flips + 1)


def _batch_sizes(count: int) -> Iterator[int]:
    yield from (min(BATCH_SIZE, count - start) for start in range(0, count, BATCH_SIZE))
