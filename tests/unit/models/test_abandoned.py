"""Whoever is cancelled by anyio, as a portal's callers are, goes at once: the thread's work ends by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Event

import anyio
import pytest

from rag_core.answering.judging.threads import map_in_thread
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.protocols import Pair
from rag_core.retrieval.rerankers.lexical import LexicalReranker

PATIENCE = 60


class Held:
    """Work that goes on once its caller has gone; `left` has for each piece of it whether that was so."""

    def __init__(self) -> None:
        self.begun, self.gone, self.ended = Event(), Event(), Event()
        self.left: list[bool] = []

    def __call__(self, *given: object) -> list[float]:  # noqa: ARG002
        self.begun.set()
        self.left.append(self.gone.wait(PATIENCE))
        self.ended.set()
        return [1.0]


def abandoned(work: Callable[[], Awaitable[object]], held: Held) -> list[bool]:
    async def leave() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await asyncio.to_thread(held.begun.wait, PATIENCE)
            group.cancel_scope.cancel()
        held.gone.set()
        await asyncio.to_thread(held.ended.wait, PATIENCE)

    asyncio.run(leave())
    return held.left


def test_a_models_caller_and_the_work_ends_with_the_batch_at_hand() -> None:
    held = Held()

    def prepared(_model: object, _pairs: Sequence[Pair]) -> BatchScorer:
        return held

    model = SharedModel("reranker", object, prepared, batch_size=1)
    assert abandoned(lambda: model.score([("question", "text")] * 3), held) == [True]
    assert asyncio.run(model.score([("question", "text")])) == [1.0]  # which waits for the first one's end
    assert held.left == [True, True]


def test_a_judges_caller() -> None:
    held = Held()
    assert abandoned(lambda: map_in_thread(held, ["one", "two", "three"]), held) == [True]


def test_the_lexical_rerankers_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr("rag_core.retrieval.rerankers.lexical._score_texts", held)
    assert abandoned(lambda: LexicalReranker("en").score("question", ["text"]), held) == [True]
