"""The removal of hits that repeat better ones."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from rag_core.types import Hit

Triple: TypeAlias = tuple[str, ...]

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")


class _Shingles:
    """The word triples of a text without case, and its words with digits. Less than three words are one triple."""

    def __init__(self, text: str) -> None:
        words = _WORD.findall(text.casefold())
        triples = zip(words, words[1:], words[2:], strict=False) if len(words) > 2 else [tuple(words)]
        self.triples: frozenset[Triple] = frozenset(triples)
        self.numbers = frozenset(filter(_DIGIT.search, words))

    def is_contained(self, other: "_Shingles", share: float) -> bool:
        """True if the other text has at least `share` of these triples, and all of these numbers."""
        contains_triples = len(self.triples & other.triples) >= share * len(self.triples)
        return contains_triples and self.numbers <= other.numbers


def drop_near_duplicates(hits: Sequence[Hit], share: float) -> list[Hit]:
    """Drops each hit of whose word triples at least `share`, above 0, are in one better hit, with all its numbers.

    Containment decides, not resemblance: a short text is dropped if a better one contains it, and a long one stays
    after its own excerpt. Broder, On the resemblance and containment of documents, SEQUENCES 1997. Numbers must match
    too, because versions of a table, a dose or a date differ in one triple of a hundred, and in meaning.
    """
    selected: list[tuple[Hit, _Shingles]] = []
    for hit in hits:
        shingles = _Shingles(hit.chunk.text)
        if not any(shingles.is_contained(better, share) for _, better in selected):
            selected.append((hit, shingles))
    return [hit for hit, _ in selected]
