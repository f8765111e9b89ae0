"""Questions of many callers, encoded together: a model takes half the time for each of four that it gets at once."""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from rag_core.protocols import QueryEmbedder
from rag_core.types import Matrix

MOST_TEXTS = 8
"""More at once make the first of them wait, and take no less time each."""


@dataclass(frozen=True, slots=True)
class _Call:
    texts: Sequence[str]
    rows: asyncio.Future[Matrix]


class Joined:
    """A QueryEmbedder whose calls wait while the model is busy, and become one call then. A lone call waits for
    nothing; one that was cancelled is not made; one that fails does so alone.

    For one event loop at a time.
    """

    def __init__(self, embedder: QueryEmbedder) -> None:
        self._embedder = embedder
        self._waiting: list[_Call] = []
        self._work: asyncio.Task[None] | None = None

    async def embed(self, texts: Sequence[str]) -> Matrix:
        call = _Call(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._work is None:
            self._work = asyncio.create_task(self._run(), context=Context())  # in nobody's name
        return await call.rows

    async def _run(self) -> None:
        try:
            while calls := self._taken():
                await self._answer(calls)
        finally:
            self._work = None

    def _taken(self) -> list[_Call]:
        """Of those that are still waited for the first, and others while there is room."""
        waiting = [call for call in self._waiting if not call.rows.done()]
        taken, texts = waiting[:1], sum(len(call.texts) for call in waiting[:1])
        for call in waiting[1:]:
            texts += len(call.texts)
            if texts > MOST_TEXTS:
                break
            taken.append(call)
        self._waiting = waiting[len(taken) :]
        return taken

    async def _answer(self, calls: Sequence[_Call]) -> None:
        texts = [text for call in calls for text in call.texts]
        (outcome,) = await asyncio.gather(self._embedder.embed(texts), return_exceptions=True)
        if not isinstance(outcome, BaseException):
            _share(outcome, calls)
        elif len(calls) > 1:
            for call in calls:
                await self._answer([call])
        elif not calls[0].rows.done():
            calls[0].rows.set_exception(outcome)


def _share(rows: Matrix, calls: Sequence[_Call]) -> None:
    first = 0
    for call in calls:
        if not call.rows.done():
            call.rows.set_result(rows[first : first + len(call.texts)])
        first += len(call.texts)
