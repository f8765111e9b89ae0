"""Words hashed into buckets: no model, no meaning, but equal words meet. For tests and benchmarks."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rag_core.types import Matrix, Space

_WORDS = re.compile(r"\w+")
TEXTS_AT_ONCE = 1_024
"""The words of a text, counted and hashed, take twenty times its memory."""


def hashing_space(dimension: int, window: int) -> Space:
    return Space(model="hashing", dimension=dimension, window=window, fingerprint=f"hashing-{dimension}")


class HashingEncoder:
    """Signed feature hashing (Weinberger et al. 2009) of lower-cased words, each weighted 1 + ln(frequency)."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def embed(self, texts: Sequence[str]) -> Matrix:
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            own = slice(first, first + TEXTS_AT_ONCE)
            vectors[own] = self._embedded(texts[own])
        return vectors

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self.embed(texts)

    def _embedded(self, texts: Sequence[str]) -> Matrix:
        counts = [Counter(_WORDS.findall(text.lower())) for text in texts]
        numbers = np.array([_number(word) for each in counts for word in each], np.int64)
        frequencies = np.array([count for each in counts for count in each.values()], np.float64)
        rows = np.repeat(np.arange(len(texts)), list(map(len, counts)))
        places = rows * self._dimension + np.abs(numbers) % self._dimension
        weights = np.where(numbers < 0, -1, 1) * (1 + np.log(frequencies))
        sums = np.asarray(np.bincount(places, weights, minlength=len(texts) * self._dimension), np.float64)
        return _normalised(sums.reshape(len(texts), self._dimension))


@lru_cache(maxsize=1 << 17)
def _number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), signed=True)


def _normalised(rows: NDArray[np.float64]) -> Matrix:
    """A row without words, or whose words cancel out, becomes the first unit vector: every row has length 1."""
    rows[~rows.any(axis=1), 0] = 1.0
    unit: Matrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
