"""What BM25 leaves open."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bm25:
    """`k1`: how soon more of the same term stops counting; `b`: how much a long chunk is held back, from 0 to 1."""

    k1: float
    b: float
