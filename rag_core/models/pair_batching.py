"""Batching of pairs from many callers, such as the claims of answers that are judged at the same time."""

from collections.abc import Sequence
from itertools import chain

from rag_core.models.batches import Batches
from rag_core.protocols import Pair, PairScorer


class BatchingScorer:
    """A PairScorer that scores the calls together that arrive while its model is busy. A lone one never waits.

    `limit` is the number of pairs that the model receives at once. It sorts them by length, so more need less padding,
    and it finishes them even if their caller is cancelled.
    """

    def __init__(self, scorer: PairScorer, limit: int) -> None:
        self._batches = Batches[Pair, list[float]](scorer.score, lambda _pair: 1, limit=limit)

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        return list(chain.from_iterable(await self._batches.compute_divided(pairs))) if pairs else []
