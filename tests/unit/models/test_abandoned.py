"""A caller that anyio cancels, such as one of a portal, returns at once, and the thread's work ends by itself."""

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


class GatedWork:
    """Work that waits for `gone`. `left` records for each call whether the caller had gone."""

    def __init__(self) -> None:
        self.begun, self.gone, self.ended = Event(), Event(), Event()
        self.left: list[bool] = []

    def __call__(self, *arguments: object) -> list[float]:  # noqa: ARG002
        self.begun.set()
        self.left.append(self.gone.wait(PATIENCE))
        self.ended.set()
        return [1.0]


def abandon(work: Callable[[], Awaitable[object]], gate: GatedWork) -> list[bool]:
    async def leave() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await asyncio.to_thread(gate.begun.wait, PATIENCE)
            group.cancel_scope.cancel()
        gate.gone.set()
        await asyncio.to_thread(gate.ended.wait, PATIENCE)

    asyncio.run(leave())
    return gate.left


def test_a_models_caller_and_the_work_ends_with_the_batch_at_hand() -> None:
    gate = GatedWork()

    def prepare(_model: object, _pairs: Sequence[Pair]) -> BatchScorer:
        return gate

    model = SharedModel("reranker", object, prepare, batch_size=1)
    assert abandon(lambda: model.score([("question", "text")] * 3), gate) == [True]
    assert asyncio.run(model.score([("question", "text")])) == [1.0]  # which waits for the first one's end
    assert gate.left == [True, True]


def test_a_judges_caller() -> None:
    gate = GatedWork()
    assert abandon(lambda: map_in_thread(gate, ["one", "two", "three"]), gate) == [True]


def test_the_lexical_rerankers_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = GatedWork()
    monkeypatch.setattr("rag_core.retrieval.rerankers.lexical._score_texts", gate)
    assert abandon(lambda: LexicalReranker("en").score("question", ["text"]), gate) == [True]
