"""Batching of questions from many callers: a batch of four takes half the time for each of them."""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from rag_core.protocols import QueryEmbedder
from rag_core.types import Matrix

MAX_TEXTS = 8
"""The largest batch. Larger ones take no less time per text, and delay the first of them."""


@dataclass(frozen=True, slots=True)
class _Call:
    texts: Sequence[str]
    rows: asyncio.Future[Matrix]


class BatchingEmbedder:
    """A QueryEmbedder that collects calls while the model is busy, and encodes them together then.

    A single call does not wait. Cancelled calls are not encoded. If a batch fails, its calls are encoded one by one, so
    that only the faulty ones fail. Use it with one event loop at a time.
    """

    def __init__(self, embedder: QueryEmbedder) -> None:
        self._embedder = embedder
        self._waiting: list[_Call] = []
        self._work: asyncio.Task[None] | None = None

    async def embed(self, texts: Sequence[str]) -> Matrix:
        call = _Call(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._work is None:
            # an empty context: the task serves many callers, so it belongs to no caller's operation
            self._work = asyncio.create_task(self._encode_waiting(), context=Context())
        return await call.rows

    async def _encode_waiting(self) -> None:
        try:
            while calls := self._take_batch():
                await self._encode_calls(calls)
        finally:
            self._work = None

    def _take_batch(self) -> list[_Call]:
        """Removes the first waiting call, and as many of the following ones as fit in a batch."""
        waiting = [call for call in self._waiting if not call.rows.done()]
        batch, texts = waiting[:1], sum(len(call.texts) for call in waiting[:1])
        for call in waiting[1:]:
            texts += len(call.texts)
            if texts > MAX_TEXTS:
                break
            batch.append(call)
        self._waiting = waiting[len(batch) :]
        return batch

    async def _encode_calls(self, calls: Sequence[_Call]) -> None:
        texts = [text for call in calls for text in call.texts]
        (outcome,) = await asyncio.gather(self._embedder.embed(texts), return_exceptions=True)
        if not isinstance(outcome, BaseException):
            first = 0
            for call in calls:
                if not call.rows.done():
                    call.rows.set_result(outcome[first : first + len(call.texts)])
                first += len(call.texts)
        elif len(calls) > 1:
            for call in calls:
                await self._encode_calls([call])
        elif not calls[0].rows.done():
            calls[0].rows.set_exception(outcome)
