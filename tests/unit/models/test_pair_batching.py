import asyncio
from collections.abc import Sequence

import pytest

from rag_core.errors import ModelError
from rag_core.models.pair_batching import BatchingScorer
from rag_core.protocols import Pair


class BusyScorer:
    """Scores a pair as the length of its claim, after `free` is set. `calls` holds the claims of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.free = asyncio.Event()

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        claims = [claim for _, claim in pairs]
        self.calls.append(claims)
        await self.free.wait()
        if "bad" in claims:
            raise ModelError("the judge could not compute")
        return [float(len(claim)) for claim in claims]


async def score_calls(scorer: BusyScorer, limit: int, *calls: Sequence[str]) -> list[list[float] | BaseException]:
    """Starts one call after another, and then frees the model."""
    batching, tasks = BatchingScorer(scorer, limit), list[asyncio.Task[list[float]]]()
    for claims in calls:
        tasks.append(asyncio.create_task(batching.score([("passage", claim) for claim in claims])))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    scorer.free.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("limit", "received"),
    [
        (4, [["a"], ["bb", "ccc", "d", "ee"]]),
        (2, [["a"], ["bb", "ccc"], ["d", "ee"]]),
    ],
)
def test_claims_of_answers_that_are_judged_at_the_same_time_share_batches(
    limit: int, received: list[list[str]]
) -> None:
    async def judge_three() -> None:
        scorer = BusyScorer()
        assert await score_calls(scorer, limit, ["a"], ["bb", "ccc"], ["d", "ee"]) == [[1], [2, 3], [1, 2]]
        assert scorer.calls == received

    asyncio.run(judge_three())


def test_an_answer_with_many_claims_is_divided_and_keeps_their_order() -> None:
    async def judge_one() -> None:
        scorer = BusyScorer()
        assert await score_calls(scorer, 2, ["a", "bb", "ccc", "dd", "e"]) == [[1, 2, 3, 2, 1]]
        assert scorer.calls == [["a", "bb"], ["ccc", "dd"], ["e"]]

    asyncio.run(judge_one())


def test_a_call_that_fails_does_not_fail_those_in_its_batch() -> None:
    async def judge_three() -> None:
        first, second, third = await score_calls(BusyScorer(), 4, ["a"], ["bad"], ["cc"])
        assert (first, third) == ([1], [2])
        assert isinstance(second, ModelError)

    asyncio.run(judge_three())


def test_without_pairs_the_model_is_not_called() -> None:
    async def judge_nothing() -> None:
        scorer = BusyScorer()
        assert await BatchingScorer(scorer, 4).score([]) == []
        assert scorer.calls == []

    asyncio.run(judge_nothing())
