"""The words of a question, weighted by how rare they are in the collection that it searches."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from math import fsum

from rag_core.answering.generation.question_type import question_type
from rag_core.text.analysis import terms

MAX_CACHED_QUESTIONS = 64

_CODE = re.compile(r"[^\W\d_]+\d\w*")


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A question, and the inverse document frequencies of its terms. Terms without one have no weight."""

    text: str
    idf: Mapping[str, float]

    def share(self, present: Set[str], language: str) -> float:
        """The share of the question's idf, with its terms read in the text's language, that a text's terms contain."""
        weight = self.weight(self.terms(language), language)
        return self.weight(present, language) / weight if weight else 0.0

    def weight(self, present: Set[str], language: str) -> float:
        """The idf of the question's terms that are present."""
        # an exact sum, because the order of a set, and so the rounding of a plain sum, differs between processes
        read = _read_words(self.text, language).items()
        return fsum(self._idf_of(term, word) for term, word in read if term in present)

    def terms(self, language: str) -> Set[str]:
        return _read_words(self.text, language).keys()

    def subject(self, language: str) -> str:
        """The first weighted term: what the question asks for, such as the price in "What is the price of X?"."""
        read = _read_words(self.text, language).items()
        return next((term for term, word in read if self._idf_of(term, word)), "")

    def content(self, language: str) -> Set[str]:
        """The terms without those that only ask for a type, such as `long` in "How long may a dive last?"."""
        return self.terms(language) - _read_asking_terms(self.text, language)

    def codes(self) -> Set[str]:
        """The terms that name one thing, such as a model or an alarm: letters before digits, as in "E11"."""
        return {term for term in terms(self.text, "") if _CODE.fullmatch(term)}

    def _idf_of(self, term: str, word: str) -> float:
        """The idf of the term, or of the word as it stands: so are the words of an unknown language counted."""
        return self.idf.get(term) or self.idf.get(word, 0.0)


@lru_cache(MAX_CACHED_QUESTIONS)
def _read_words(text: str, language: str) -> Mapping[str, str]:
    """The terms of a text in their order, each with its word as it stands; stop words are left out."""
    words = dict.fromkeys(terms(text, ""))
    return {term: word for word in words for term in terms(word, language)}


@lru_cache(MAX_CACHED_QUESTIONS)
def _read_asking_terms(text: str, language: str) -> Set[str]:
    kind = question_type(text)
    asking = kind.question_pattern.search(text) if kind else None
    return frozenset(terms(asking[0], language) if asking else ())
