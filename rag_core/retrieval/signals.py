"""What metadata says for a hit, beside its text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.types import Hit, Metadata, Origin, Query, comparison_text

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """`weight` for a document of today, half of it for one that is `half_life` days old."""

    half_life: float
    weight: float


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Reorders the first `depth` hits: the deviation of a hit's score, its recency and its values' weights, added up.

    `weights` by key and value of the document's metadata, such as {"source": {"handbook": 0.5}}, or of its `uri`,
    `title` and `language`; of a list of values each counts. The unit of all weights is the standard deviation of the
    hits' scores.
    """

    retriever: Retriever
    depth: int
    recency: Recency | None = None
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    now: Callable[[], datetime] = now

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage("signals") as reordered:
            scores = zip(hits, _deviations(hits), strict=True)
            rescored = [hit.rescored("signals", score + self._signal(hit)) for hit, score in scores]
            rescored.sort(key=lambda hit: (-hit.score, hit.chunk.id))
            reordered.ranking = tuple(hit.chunk.id for hit in rescored)
        return rescored[:k]

    def _signal(self, hit: Hit) -> float:
        return self._fresh(hit.origin.updated_at) + sum(_weights(_metadata(hit.origin), self.weights))

    def _fresh(self, updated_at: datetime | None) -> float:
        """Li and Croft, Time-based language models, CIKM 2003: age decays exponentially."""
        if self.recency is None or updated_at is None:
            return 0.0
        days = max(0.0, (self.now() - updated_at).total_seconds() / DAY)
        return float(self.recency.weight * 0.5 ** (days / self.recency.half_life))


def _deviations(hits: Sequence[Hit]) -> list[float]:
    scores = np.array([hit.score for hit in hits], np.float64)
    if not hits or np.ptp(scores) == 0:
        return [0.0] * len(hits)
    deviations: list[float] = ((scores - scores.mean()) / scores.std()).tolist()
    return deviations


def _metadata(origin: Origin) -> Metadata:
    """With what filters compare, too; as for them, it goes before metadata of the same name."""
    return {**origin.metadata, "uri": origin.uri, "title": origin.title, "language": origin.language}


def _weights(metadata: Metadata, weights: Mapping[str, Mapping[str, float]]) -> Iterator[float]:
    for key, by_value in weights.items():
        value = metadata.get(key, ())
        for each in value if isinstance(value, list | tuple) else [value]:
            yield by_value.get(comparison_text(each), 0.0)
