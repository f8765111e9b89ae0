"""The words of a question, weighted by how rare they are in the collection that it searches."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import fsum

from rag_core.answering.generation.question_type import question_type
from rag_core.text.analysis import terms


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A question, and the inverse document frequencies of its terms. Terms without one have no weight."""

    text: str
    idf: Mapping[str, float]

    def share(self, found: Set[str], language: str) -> float:
        """The share of the question's idf, with its terms read in the text's language, that a text's terms contain."""
        weight = self.weight(self.terms(language), language)
        return self.weight(found, language) / weight if weight else 0.0

    def weight(self, found: Set[str], language: str) -> float:
        """The idf of the question's terms that are found."""
        # an exact sum, because the order of a set, and so the rounding of a plain sum, differs between processes
        return fsum(self._idf_of(term, word) for word, term in self._read(language) if term in found)

    def terms(self, language: str) -> frozenset[str]:
        return frozenset(term for _, term in self._read(language))

    def subject(self, language: str) -> str:
        """The first weighted term: what the question asks for, such as the price in "What is the price of X?"."""
        return next((term for word, term in self._read(language) if self._idf_of(term, word)), "")

    def content(self, language: str) -> frozenset[str]:
        """The terms without those that only ask for a type, such as `long` in "How long may a dive last?"."""
        kind = question_type(self.text)
        asking = kind.question_pattern.search(self.text) if kind else None
        return self.terms(language) - frozenset(terms(asking[0], language) if asking else ())

    def _read(self, language: str) -> list[tuple[str, str]]:
        """Each word once, as it stands, and its term in the language; stop words are left out."""
        words = dict.fromkeys(terms(self.text, ""))
        return list({term: (word, term) for word in words for term in terms(word, language)}.values())

    def _idf_of(self, term: str, word: str) -> float:
        """The idf of the term, or of the word as it stands: so are the words of an unknown language counted."""
        return self.idf.get(term) or self.idf.get(word, 0.0)
