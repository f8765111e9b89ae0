"""Scripted legs and rerankers. tests/contract/ checks that they keep the promises of real ones."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.types import Query


@dataclass(kw_only=True)
class ScriptedLeg:
    """A leg with these scores. It ranks the best `max_ranked` after `seconds`, or raises `error` if there is one."""

    scores: Mapping[UUID, float]
    max_ranked: int = 1000
    seconds: float = 0.0
    error: Exception | None = None
    score_error: Exception | None = None
    scored: list[Sequence[UUID]] = field(default_factory=list)

    async def rank(self, query: Query, k: int) -> Ranking:  # noqa: ARG002
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return sorted(self.scores.items(), key=lambda pair: (-pair[1], pair[0]))[: min(k, self.max_ranked)]

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:  # noqa: ARG002
        self.scored.append(list(chunk_ids))
        if self.score_error:
            raise self.score_error
        return [self.scores.get(id, nan) for id in chunk_ids]


@dataclass(kw_only=True)
class ScriptedReranker:
    """A reranker that counts `word` in each text. It answers after `seconds`, or raises `error` if there is one."""

    word: str
    seconds: float = 0.0
    error: Exception | None = None
    read: list[str] = field(default_factory=list)

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:  # noqa: ARG002
        self.read.extend(texts)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return [float(text.count(self.word)) for text in texts]
