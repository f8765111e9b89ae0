"""An encoder for tests and benchmarks that hashes words into buckets: texts with equal words get similar vectors."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rag_core.types import Matrix, Space

_WORDS = re.compile(r"\w+")
BATCH_SIZE = 1_024
"""Texts to encode at once: the counted and hashed words of a text take twenty times its memory."""


def hashing_space(dimension: int, window: int) -> Space:
    return Space(model="hashing", dimension=dimension, window=window, fingerprint=f"hashing-{dimension}")


class HashingEncoder:
    """Signed feature hashing (Weinberger et al. 2009) of lower-cased words, each weighted 1 + ln(frequency)."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def embed(self, texts: Sequence[str]) -> Matrix:
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for first in range(0, len(texts), BATCH_SIZE):
            batch = texts[first : first + BATCH_SIZE]
            counters = [Counter(_WORDS.findall(text.lower())) for text in batch]
            hashes = np.array([_hash_word(word) for counter in counters for word in counter], np.int64)
            frequencies = np.array([count for counter in counters for count in counter.values()], np.float64)
            rows = np.repeat(np.arange(len(batch)), list(map(len, counters)))
            positions = rows * self._dimension + np.abs(hashes) % self._dimension
            weights = np.where(hashes < 0, -1, 1) * (1 + np.log(frequencies))
            sums = np.asarray(np.bincount(positions, weights, minlength=len(batch) * self._dimension), np.float64)
            vectors[first : first + BATCH_SIZE] = _normalize_rows(sums.reshape(len(batch), self._dimension))
        return vectors

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        return self.embed(texts)


@lru_cache(maxsize=1 << 17)
def _hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), signed=True)


def _normalize_rows(rows: NDArray[np.float64]) -> Matrix:
    """Scales every row to length 1. A row of zeros, without words or with words that cancel out, gets a 1 first."""
    rows[~rows.any(axis=1), 0] = 1.0
    unit: Matrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
