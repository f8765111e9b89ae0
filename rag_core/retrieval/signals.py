"""A retriever that also weighs the metadata and the age of documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.storage.filters import value_elements
from rag_core.types import Hit, Origin, Query, comparison_text

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """The bonus for recent documents: `weight` for one of today, half of it for one that is `half_life` days old."""

    half_life: float
    weight: float


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Sorts the first `depth` hits by the sum of the score's deviation from the mean, the recency, and the weights.

    `weights` are given by key and value, such as {"source": {"handbook": 0.5}}. Keys are those of the document's
    metadata, or `uri`, `title` and `language`. If a value is a list, each of its elements counts. The unit of all
    weights is the standard deviation of the hits' scores.
    """

    retriever: Retriever
    depth: int
    recency: Recency | None = None
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    now: Callable[[], datetime] = now

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage("signals") as running:
            deviations = zip(hits, _deviations(hits), strict=True)
            rescored = [hit.rescored("signals", score + self._signal(hit.origin)) for hit, score in deviations]
            rescored.sort(key=lambda hit: (-hit.score, hit.chunk.id))
            running.ranking = tuple(hit.chunk.id for hit in rescored)
        return rescored[:k]

    def _signal(self, origin: Origin) -> float:
        # as in filters, these three override metadata of the same name
        metadata = {**origin.metadata, "uri": origin.uri, "title": origin.title, "language": origin.language}
        weights = (
            by_value.get(comparison_text(element), 0.0)
            for key, by_value in self.weights.items()
            for element in value_elements(metadata.get(key, ()))
        )
        return self._recency_bonus(origin.updated_at) + sum(weights)

    def _recency_bonus(self, updated_at: datetime | None) -> float:
        """The bonus decays exponentially with age (Li and Croft, Time-based language models, CIKM 2003)."""
        if self.recency is None or updated_at is None:
            return 0.0
        days = max(0.0, (self.now() - updated_at).total_seconds() / DAY)
        return float(self.recency.weight * 0.5 ** (days / self.recency.half_life))


def _deviations(hits: Sequence[Hit]) -> list[float]:
    """The deviation of each score from the mean, in standard deviations; 0 if all scores are equal."""
    scores = np.array([hit.score for hit in hits], np.float64)
    if not hits or np.ptp(scores) == 0:
        return [0.0] * len(hits)
    deviations: list[float] = ((scores - scores.mean()) / scores.std()).tolist()
    return deviations
