import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from rag_core.errors import UsageError
from rag_core.models.encoders.batching import MAX_TEXTS, BatchingEmbedder
from rag_core.types import Matrix

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class GatedEmbedder:
    """Encodes a text as its length, and one call as long as the test says."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.free = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.calls.append(list(texts))
        await self.free.wait()
        if "bad" in texts:
            raise UsageError("what a model reads must not be bad")
        return np.array([[len(text)] for text in texts], np.float32)


async def begin_calls(joined: BatchingEmbedder, *calls: Sequence[str]) -> list["asyncio.Task[Matrix]"]:
    """Begins one call after another."""
    tasks = []
    for texts in calls:
        tasks.append(asyncio.create_task(joined.embed(texts)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return tasks


async def test_a_lone_call_waits_for_nothing() -> None:
    embedder = GatedEmbedder()
    embedder.free.set()
    assert (await BatchingEmbedder(embedder).embed(["a", "abc"])).tolist() == [[1], [3]]


async def test_calls_that_come_while_the_model_is_busy_become_one() -> None:
    embedder = GatedEmbedder()
    first, *others = await begin_calls(BatchingEmbedder(embedder), ["a"], ["ab"], ["abc", "abcd"])
    embedder.free.set()
    assert [task.tolist() for task in await asyncio.gather(first, *others)] == [[[1]], [[2]], [[3], [4]]]
    assert embedder.calls == [["a"], ["ab", "abc", "abcd"]]


async def test_a_call_without_room_in_a_batch_begins_the_next() -> None:
    embedder = GatedEmbedder()
    sizes = [1, MAX_TEXTS - 1, 2, MAX_TEXTS + 3, 1]
    tasks = await begin_calls(BatchingEmbedder(embedder), *(["x"] * size for size in sizes))
    embedder.free.set()
    assert [len(rows) for rows in await asyncio.gather(*tasks)] == sizes
    assert [len(call) for call in embedder.calls] == sizes


async def test_a_cancelled_call_is_not_made() -> None:
    embedder = GatedEmbedder()
    running, cancelled, other = await begin_calls(BatchingEmbedder(embedder), ["a"], ["ab"], ["abc"])
    cancelled.cancel()
    await asyncio.sleep(0)
    embedder.free.set()
    assert (await other).tolist() == [[3]]
    assert (await running).tolist() == [[1]]
    assert embedder.calls == [["a"], ["abc"]]


async def test_a_call_that_is_cancelled_while_it_is_made_leaves_the_others_theirs() -> None:
    embedder = GatedEmbedder()
    running, other = await begin_calls(BatchingEmbedder(embedder), ["a"], ["ab"])
    running.cancel()
    embedder.free.set()
    assert (await other).tolist() == [[2]]


async def test_a_call_that_fails_does_so_alone() -> None:
    embedder = GatedEmbedder()
    first, good, bad, late = await begin_calls(BatchingEmbedder(embedder), ["a"], ["ab"], ["bad"], ["abc"])
    embedder.free.set()
    outcomes = await asyncio.gather(first, good, bad, late, return_exceptions=True)
    assert isinstance(outcomes[2], UsageError)
    assert [rows.tolist() for rows in outcomes if not isinstance(rows, BaseException)] == [[[1]], [[2]], [[3]]]


def test_it_serves_one_event_loop_after_another() -> None:
    embedder = GatedEmbedder()
    joined = BatchingEmbedder(embedder)

    async def abandon_calls() -> None:
        await begin_calls(joined, ["a"], ["ab"])

    async def embed_three() -> list[list[float]]:
        embedder.free = asyncio.Event()
        embedder.free.set()
        return (await joined.embed(["abc"])).tolist()

    asyncio.run(abandon_calls())
    assert asyncio.run(embed_three()) == [[3]]


@pytest.mark.parametrize("texts", [[], ["a"] * 100])
async def test_any_number_of_texts_can_be_embedded_at_once(texts: list[str]) -> None:
    embedder = GatedEmbedder()
    embedder.free.set()
    assert len(await BatchingEmbedder(embedder).embed(texts)) == len(texts)
