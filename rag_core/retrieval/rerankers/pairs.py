"""A reranker by a model that scores pairs of texts, in this process or in another one."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.protocols import PairScorer


@dataclass(frozen=True, slots=True)
class PairReranker:
    """Returns the scores of the model. A pair that exceeds the model's window is cut at the end of the text."""

    scorer: PairScorer

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return await self.scorer.score([(question, text) for text in texts])
