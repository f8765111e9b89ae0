"""Several legs, fused: each under its own timeout, and the answer without those that fail."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from rag_core.errors import RagError, RetrievalError, UsageError
from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.fusion import Candidates, merge_rankings
from rag_core.retrieval.legs import translate_errors
from rag_core.stage import attempt, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query

T = TypeVar("T")
Fusion: TypeAlias = Callable[[Candidates], Ranking]

DEPTH = 100
"""Candidates of each leg. 50 cost .003 of nDCG@10, 200 gain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Legs by name, which is their stage's. `timeout`, in seconds, is that of every leg without one in `timeouts`.

    A leg counts only the time of its own work, not what it waits for its turn on the snapshot that all read under.
    """

    corpus: CorpusReader
    legs: Mapping[str, Leg]
    fusion: Fusion
    depth: int = DEPTH
    timeout: float = inf
    timeouts: Mapping[str, float] = field(default_factory=dict)

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        """Scores are the fused ones; `scores` has those of every leg, too. RetrievalError if no leg answered."""
        async with self.corpus.reading(query):
            candidates = await self._candidates(query, max(k, self.depth))
            async with stage("fuse") as fused:
                candidates = await self._filled(query, candidates)
                ranking = self.fusion(candidates)
                fused.ranking = tuple(id for id, _ in ranking)
            async with stage("fetch") as fetched:
                hits = await self.corpus.fetch_hits(query, "fused", ranking[:k])
                fetched.ranking = tuple(hit.chunk.id for hit in hits)
        return _explained(hits, candidates)

    async def _candidates(self, query: Query, depth: int) -> Candidates:
        asked = await _together({name: self._ranked(name, leg, query, depth) for name, leg in self.legs.items()})
        answered = {name: ranking for name, ranking in asked.items() if not isinstance(ranking, RagError)}
        if not answered:
            errors = "; ".join(f"{name}: {error}" for name, error in asked.items())
            raise RetrievalError(f"no leg answered: {errors}")
        return merge_rankings(answered)

    async def _ranked(self, name: str, leg: Leg, query: Query, depth: int) -> Ranking | RagError:
        try:
            async with stage(name, self._timeout(name)) as ranked:
                ranking = await translate_errors(leg.rank(query, depth))
                ranked.ranking = tuple(id for id, _ in ranking)
                return ranking
        except UsageError:
            raise
        except RagError as error:
            return error

    async def _filled(self, query: Query, candidates: Candidates) -> Candidates:
        """With each leg's own score for what only others found; a leg that fails now keeps those that it gave."""
        missing = {name: candidates.find_unscored(name) for name in candidates.legs}
        scores = await _together({name: self._scores(name, query, ids) for name, ids in missing.items() if ids})
        for name, given in scores.items():
            candidates = candidates.with_scores(name, given) if given else candidates
        return candidates

    async def _scores(self, name: str, query: Query, ids: list[UUID]) -> list[float]:
        work = translate_errors(self.legs[name].score(query, ids))
        return await attempt(f"{name} scores", work, otherwise=[], timeout=self._timeout(name))

    def _timeout(self, name: str) -> float:
        return self.timeouts.get(name, self.timeout)


async def _together(work: Mapping[str, Coroutine[Any, Any, T]]) -> dict[str, T]:
    """Side by side, all to their end; then the first error is raised."""
    tasks = {name: asyncio.ensure_future(each) for name, each in work.items()}
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {name: task.result() for name, task in tasks.items()}


def _explained(hits: list[Hit], candidates: Candidates) -> list[Hit]:
    scores = candidates.scores_by_leg([hit.chunk.id for hit in hits])
    return [replace(hit, scores={**own, **hit.scores}) for hit, own in zip(hits, scores, strict=True)]
