"""What the words of a claim and those of its passages have in common."""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from heapq import nsmallest
from statistics import fmean

from rag_core.answering.judging.numbers import held_numbers, missing_number
from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.types import Passage

LEAST = 2
"""Cosines that count: the words that are farthest from all that the passages say."""

READ = 64
"""Passages that are kept as they were read."""

_WORD = re.compile(r"\w+")
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot)\b|n['\u2019]t\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`stems` counts the content stems of a claim, and `absent` are the words whose stems the passages do not hold.

    `cosines` are those of its content tokens with their nearest tokens of the passages; none without an encoder.
    `number` and `name` are the first that the passages do not hold. `negation`: the claim negates and the nearest
    sentence does not, or the other way round.
    """

    stems: int = 0
    absent: tuple[str, ...] = ()
    cosines: tuple[float, ...] = ()
    number: str = ""
    negation: bool = False
    name: str = ""

    @property
    def score(self) -> float:
        """From 0 to 1. The weights are not trained: trained on one kind of error they fail on another."""
        held = 1 - len(self.absent) / self.stems if self.stems else 1.0
        near = fmean(nsmallest(LEAST, self.cosines)) if self.cosines else held
        vetoes = 0.25 * bool(self.number) + 0.25 * self.negation + 0.125 * bool(self.name)
        return min(1.0, max(0.0, 0.5 * held + 0.5 * near - vetoes))

    @property
    def reason(self) -> str:
        """The strongest one there is against the claim; empty if there is none."""
        if self.number:
            return f"{self.number} is not in the passages"
        if self.negation:
            return "the claim or the nearest sentence of the passages negates, and the other does not"
        if words := list(dict.fromkeys([self.name, *self.absent]))[not self.name :][:3]:
            return f"not in the passages: {', '.join(words)}"
        return ""


def together(evidences: Sequence[Evidence]) -> Evidence:
    """Of several claims read as one."""
    return Evidence(
        stems=sum(each.stems for each in evidences),
        absent=tuple(word for each in evidences for word in each.absent),
        cosines=tuple(cosine for each in evidences for cosine in each.cosines),
        number=next((each.number for each in evidences if each.number), ""),
        negation=any(each.negation for each in evidences),
        name=next((each.name for each in evidences if each.name), ""),
    )


class Source:
    """The passages of a claim, with the titles and headings that stand over them, in the language of the first."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.language = next((passage.language for passage in passages), "en")
        self.texts = tuple(_shown(passage) for passage in passages)
        self._read = [_read(text, self.language) for text in self.texts]

    def evidence(self, claim: str, cosines: Sequence[float]) -> Evidence:
        words = [(word[0], terms(word[0], self.language)) for word in _WORD.finditer(claim)]
        stems = {stem for _, own in words for stem in own}
        return Evidence(
            stems=sum(len(own) for _, own in words),
            absent=tuple(word for word, own in words for stem in own if stem not in self._stems),
            cosines=tuple(cosines),
            number=missing_number(claim, self._numbers),
            negation=_negated(claim) != _negated(self._nearest(stems, claim)),
            name=next((name for name in _names(claim) if not self._names.issuperset(self._name(name))), ""),
        )

    def content(self, text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """Which of the spans lie within a word that is no stop word."""
        words = (word for word in _WORD.finditer(text) if terms(word[0], self.language))
        inside = {place for word in words for place in range(*word.span())}
        return [place for place, (start, end) in enumerate(spans) if start in inside and end - 1 in inside]

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset[str]().union(*(read.stems for read in self._read))

    @cached_property
    def _numbers(self) -> frozenset[Decimal]:
        return frozenset[Decimal]().union(*(read.numbers for read in self._read))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_singular(self._stems))

    def _name(self, word: str) -> Iterator[str]:
        return _singular(terms(word, self.language))

    def _nearest(self, stems: Set[str], claim: str) -> str:
        """The sentence that shares most of the claim's stems; the claim itself where there is none."""
        sentences = [sentence for read in self._read for sentence in read.sentences]
        return max(sentences, key=lambda sentence: len(stems & sentence[1]), default=(claim, stems))[0]


@dataclass(frozen=True, slots=True)
class _Text:
    stems: frozenset[str]
    numbers: frozenset[Decimal]
    sentences: tuple[tuple[str, frozenset[str]], ...]


@lru_cache(READ)
def _read(text: str, language: str) -> _Text:
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    stems = [frozenset(terms(sentence, language)) for sentence in sentences]
    return _Text(frozenset[str]().union(*stems), held_numbers(text), tuple(zip(sentences, stems, strict=True)))


def _shown(passage: Passage) -> str:
    return "\n\n".join(filter(None, (passage.hit.origin.title, passage.chunks[0].prefix, passage.text)))


def _negated(sentence: str) -> bool:
    return bool(_NEGATION.search(sentence))


def _names(claim: str) -> Iterator[str]:
    """Capitalised words but those that begin a sentence."""
    for start, end in sentence_spans(claim):
        words = _WORD.findall(claim[start:end])[1:]
        yield from (word for word in words if word[0].isupper() and len(word) > 1)


def _singular(stems: Iterable[str]) -> Iterator[str]:
    """The stemmer keeps the plural of an acronym: CNNs."""
    return (stem.removesuffix("s") for stem in stems)
