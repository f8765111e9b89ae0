"""A model that reads, or compares, question and text, wherever it runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.protocols import PairScorer


@dataclass(frozen=True, slots=True)
class PairReranker:
    """Scores are the model's own. What is too long for its window is cut at its end."""

    pairs: PairScorer

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return await self.pairs.score([(question, text) for text in texts])
