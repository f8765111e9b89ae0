"""The words that a claim and its passages have in common."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from heapq import nsmallest
from itertools import chain
from statistics import fmean

from rag_core.answering.judging.numbers import find_missing_number, find_numbers
from rag_core.text.analysis import terms
from rag_core.text.sentences import sentence_spans
from rag_core.types import Passage

LOWEST_COSINES = 2
"""The number of cosines that count: those of the words that are least similar to any in the passages."""

NEIGHBOURS = 2
"""The number of content words on each side of a number or a name with which it belongs together."""

WINDOW = 8
"""The largest distance in a passage, in content words, of words that stand together."""

MAX_CACHED_TEXTS = 64
"""The number of passages whose words are cached."""

_WORD = re.compile(r"\w+")
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot)\b|n['\u2019]t\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The support of a claim by its passages.

    `stem_count` is the number of the claim's content stems; `missing_words` have stems that the passages do not
    contain. `cosines` compare each content token with its nearest token in the passages; empty without an encoder.
    `missing_number` and `missing_name` are the first that the passages do not contain; `moved_number` and `moved_name`
    the first that they contain far from all its neighbours in the claim. `negation_differs`: the claim is
    negated and the nearest sentence is not, or the other way round. `other_language` is the code of the claim's
    language if the passages have another; words, names and negations are then no evidence.
    """

    stem_count: int = 0
    missing_words: tuple[str, ...] = ()
    cosines: tuple[float, ...] = ()
    missing_number: str = ""
    negation_differs: bool = False
    missing_name: str = ""
    moved_number: str = ""
    moved_name: str = ""
    other_language: str = ""

    @property
    def score(self) -> float:
        """The score, from 0 to 1. The weights are not trained: trained on one kind of error they fail on another.

        Trigrams and pairs of neighbouring words have no weight: they agree with the share of words, and separate
        worse where a summary puts a text into other words (AUROC .69 instead of .70, on SummEdits' e-mails).
        """
        coverage = 1 - len(self.missing_words) / self.stem_count if self.stem_count else 1.0
        similarity = fmean(nsmallest(LOWEST_COSINES, self.cosines)) if self.cosines else coverage
        number = bool(self.missing_number or self.moved_number)
        name = bool(self.missing_name or self.moved_name)
        penalty = 0.375 * number + 0.375 * self.negation_differs + 0.1875 * name
        return min(1.0, max(0.0, 0.5 * coverage + 0.5 * similarity - penalty))

    @property
    def reason(self) -> str:
        """The strongest reason against the claim; empty if there is none."""
        if self.missing_number:
            return f"{self.missing_number} is not in the passages"
        if self.other_language:
            return f"cannot tell: the claim is in another language ({self.other_language}) than the passages"
        if self.negation_differs:
            return "only one of the claim and the nearest sentence of the passages is negated"
        if moved := self.moved_number or self.moved_name:
            return f"{moved} is among other words in the passages"
        if words := list(dict.fromkeys([self.missing_name, *self.missing_words]))[not self.missing_name :][:3]:
            return f"not in the passages: {', '.join(words)}"
        return ""


def merge_evidence(evidences: Sequence[Evidence]) -> Evidence:
    """The evidence for several claims, as if they were one."""
    return Evidence(
        stem_count=sum(evidence.stem_count for evidence in evidences),
        missing_words=tuple(word for evidence in evidences for word in evidence.missing_words),
        cosines=tuple(cosine for evidence in evidences for cosine in evidence.cosines),
        missing_number=next(filter(None, (evidence.missing_number for evidence in evidences)), ""),
        negation_differs=any(evidence.negation_differs for evidence in evidences),
        missing_name=next(filter(None, (evidence.missing_name for evidence in evidences)), ""),
        moved_number=next(filter(None, (evidence.moved_number for evidence in evidences)), ""),
        moved_name=next(filter(None, (evidence.moved_name for evidence in evidences)), ""),
    )


class Premises:
    """The passages of a claim, with their titles and headings. All are read in the language of the first."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.language = next((passage.language for passage in passages), "en")
        self.texts = tuple(
            "\n\n".join(filter(None, (passage.hit.origin.title, passage.chunks[0].prefix, passage.text)))
            for passage in passages
        )
        self._text_words = [_analyze_words(text, self.language) for text in self.texts]

    def evidence(self, claim: str, cosines: Sequence[float]) -> Evidence:
        names = _find_names(claim)
        words = [(word[0], terms(word[0], self.language)) for word in _WORD.finditer(claim)]
        claim_stems = {stem for _, word_stems in words for stem in word_stems}
        stems = frozenset[str]().union(*(text.stems for text in self._text_words))
        numbers = frozenset[Decimal]().union(*(text.numbers for text in self._text_words))
        sentences = [sentence for text in self._text_words for sentence in text.sentences]
        nearest, _ = max(sentences, key=lambda sentence: len(claim_stems & sentence[1]), default=(claim, claim_stems))
        return Evidence(
            stem_count=sum(len(word_stems) for _, word_stems in words),
            missing_words=tuple(word for word, word_stems in words for stem in word_stems if stem not in stems),
            cosines=tuple(cosines),
            missing_number=find_missing_number(claim, numbers),
            negation_differs=_is_negated(claim) != _is_negated(nearest),
            missing_name=self._find_missing_name(names, stems),
            moved_number=self._find_moved_word({word for word, _ in words if word[0].isdigit()}, words),
            moved_name=self._find_moved_word({*names}, words),
        )

    def content_indices(self, text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """The indices of the spans that are inside a word that is not a stop word."""
        words = (word for word in _WORD.finditer(text) if terms(word[0], self.language))
        content = {offset for word in words for offset in range(*word.span())}
        return [index for index, (start, end) in enumerate(spans) if start in content and end - 1 in content]

    def _find_missing_name(self, names: Sequence[str], stems: frozenset[str]) -> str:
        """The first name that is not among the stems; empty if all are.

        Names and stems are compared without a final s: the stemmer keeps the plural of an acronym, such as CNNs.
        """
        singulars = {stem.removesuffix("s") for stem in stems}
        for name in names:
            if not singulars.issuperset(stem.removesuffix("s") for stem in terms(name, self.language)):
                return name
        return ""

    def _find_moved_word(self, sought: Set[str], words: Sequence[tuple[str, list[str]]]) -> str:
        """The first sought word that the passages contain, but far from all its neighbours that they contain."""
        content = [(word, stem) for word, stems in words for stem in stems]
        for index, (word, stem) in enumerate(content):
            neighbours = {near for _, near in content[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]} - {stem}
            if word in sought and self._are_apart(stem, neighbours):
                return word
        return ""

    def _are_apart(self, stem: str, neighbours: Set[str]) -> bool:
        positions = [text.positions for text in self._text_words]
        known = {near for near in neighbours if any(near in text for text in positions)}
        texts = [text for text in positions if stem in text]
        return bool(known and texts) and not any(
            _are_near(text[stem], text.get(near, ())) for text in texts for near in known
        )


@dataclass(frozen=True, slots=True)
class _Words:
    """The stems and numbers of a text, and its sentences with their stems.

    `positions` holds the ascending positions of each stem among all stems of the text.
    """

    stems: frozenset[str]
    positions: Mapping[str, Sequence[int]]
    numbers: frozenset[Decimal]
    sentences: tuple[tuple[str, frozenset[str]], ...]


@lru_cache(MAX_CACHED_TEXTS)
def _analyze_words(text: str, language: str) -> _Words:
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    stems = [terms(sentence, language) for sentence in sentences]
    positions = defaultdict[str, list[int]](list)
    for position, stem in enumerate(chain.from_iterable(stems)):
        positions[stem].append(position)
    pairs = tuple(zip(sentences, map(frozenset, stems), strict=True))
    return _Words(frozenset(positions), dict(positions), find_numbers(text), pairs)


def _find_names(claim: str) -> list[str]:
    """The capitalized words that do not begin a sentence."""
    sentences: list[list[str]] = [_WORD.findall(claim[start:end]) for start, end in sentence_spans(claim)]
    return [word for sentence in sentences for word in sentence[1:] if word[0].isupper() and len(word) > 1]


def _are_near(positions: Sequence[int], others: Sequence[int]) -> bool:
    """True if one of the positions is at most WINDOW from one of the others. Both ascend."""
    nearest = ((position, bisect_left(others, position - WINDOW)) for position in positions)
    return any(index < len(others) and others[index] <= position + WINDOW for position, index in nearest)


def _is_negated(sentence: str) -> bool:
    return bool(_NEGATION.search(sentence))
