"""Hits that say nothing new."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rag_core.types import Hit

Triple: TypeAlias = tuple[str, ...]

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class _Shingles:
    triples: frozenset[Triple]
    numbers: frozenset[str]

    def held_by(self, better: "_Shingles", share: float) -> bool:
        equal = len(self.triples & better.triples) >= share * len(self.triples)
        return equal and self.numbers <= better.numbers


def distinct(hits: Sequence[Hit], share: float) -> list[Hit]:
    """Without those of whose word triples at least `share`, above 0, are in a better hit, as all of their numbers are.

    Containment, not resemblance: a short text goes if a better one holds it, a long one stays behind its own excerpt.
    Broder, On the resemblance and containment of documents, SEQUENCES 1997. Numbers count besides, because versions of
    a table, a dose or a date differ in one triple of a hundred, and in what they say. Case does not count, and a text
    of less than three words is one triple.
    """
    kept: list[tuple[Hit, _Shingles]] = []
    for hit in hits:
        shingles = _shingles(hit.chunk.text)
        if not any(shingles.held_by(better, share) for _, better in kept):
            kept.append((hit, shingles))
    return [hit for hit, _ in kept]


def _shingles(text: str) -> _Shingles:
    words = _WORD.findall(text.casefold())
    triples = zip(words, words[1:], words[2:], strict=False) if len(words) > 2 else [tuple(words)]
    return _Shingles(frozenset(triples), frozenset(filter(_DIGIT.search, words)))
