"""The words of a question, weighted by how rare they are in the collection that it searches."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import fsum

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
        return fsum(self.idf.get(term, 0.0) for term in self.terms(language) & found)

    def terms(self, language: str) -> frozenset[str]:
        return frozenset(terms(self.text, language))

    def subject(self, language: str) -> str:
        """The first weighted term: what the question asks for, such as the price in "What is the price of X?"."""
        return next((term for term in terms(self.text, language) if term in self.idf), "")
