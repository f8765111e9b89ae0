"""The free parameters of BM25."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bm25:
    """`k1`: the higher, the more a repeated term counts. `b`: how strongly long chunks are penalized, from 0 to 1."""

    k1: float
    b: float
