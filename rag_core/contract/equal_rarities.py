"""The rarities of terms for chunks whose collection is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_core.text.analysis import analyze_question
from rag_core.types import Passage, Query


@dataclass(frozen=True, slots=True)
class EqualRarities:
    """Equal rarities for all terms of a question. The collection of the chunks, which has the real ones, is unknown."""

    passages: Sequence[Passage]

    async def idf(self, query: Query) -> Mapping[str, float]:
        """1.0 for each term: a few chunks that were selected for a question do not show how rare its terms are."""
        question = analyze_question(query.text, sorted({passage.language for passage in self.passages}))
        return dict.fromkeys(question.counts, 1.0)
