"""A retriever that also weighs the metadata and the age of documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar

import numpy as np

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.storage.filters import value_elements
from rag_core.types import Hit, Origin, Query, comparison_text

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """The bonus for recent documents: `weight` for one of today, half of it for one that is `half_life` days old.

    It decays exponentially with age: Li and Croft, Time-based language models, CIKM 2003.
    """

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

    stage_name: ClassVar[str] = "signals"

    retriever: Retriever
    depth: int
    recency: Recency | None = None
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    now: Callable[[], datetime] = now

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage(self.stage_name) as running:
            deviations = zip(hits, _deviations(hits), strict=True)
            rescored = [hit.rescored("signals", score + self._signal(hit.origin)) for hit, score in deviations]
            rescored.sort(key=lambda hit: (-hit.score, hit.chunk.id))
            running.ranking = tuple(hit.chunk.id for hit in rescored)
        return rescored[:k]

    def _signal(self, origin: Origin) -> float:
        """The recency bonus of a document plus the weights of its metadata."""
        # as in filters, these three override metadata of the same name
        metadata = {**origin.metadata, "uri": origin.uri, "title": origin.title, "language": origin.language}
        weights = (
            by_value.get(comparison_text(element), 0.0)
            for key, by_value in self.weights.items()
            for element in value_elements(metadata.get(key, ()))
        )
        bonus = 0.0
        if self.recency is not None and origin.updated_at is not None:
            days = max(0.0, (self.now() - origin.updated_at).total_seconds() / DAY)
            bonus = float(self.recency.weight * 0.5 ** (days / self.recency.half_life))
        return bonus + sum(weights)


def _deviations(hits: Sequence[Hit]) -> list[float]:
    """The deviation of each score from the mean, in standard deviations; 0 if all scores are equal."""
    scores = np.array([hit.score for hit in hits], np.float64)
    if not hits or np.ptp(scores) == 0:
        return [0.0] * len(hits)
    deviations: list[float] = ((scores - scores.mean()) / scores.std()).tolist()
    return deviations
