"""Batches of a token budget: what shares one, and what one caller does to the others."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.errors import ConfigError, ModelError
from rag_core.models.batches import Batches
from rag_core.telemetry.operation import Operation, current_operation, enter_operation
from serve.models.batches import estimate_tokens, parse_batch_settings, reconfigure_batches

TEN = "x" * 36
"""Ten tokens."""


class Model:
    """A model that returns the length of each text. It waits until it is `free`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()

    async def compute(self, texts: Sequence[str]) -> list[int]:
        self.batches.append(list(texts))
        self.begun.set()
        await self.free.wait()
        if "broken" in texts:
            raise ModelError("no memory")
        return [len(text) for text in texts]


def batching(model: Model, tokens: int = 50) -> Batches[str, list[int]]:
    return Batches(model.compute, estimate_tokens, limit=tokens, wait=0.001)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def limit_time() -> Any:
        async with asyncio.timeout(30):
            return await coroutine

    return asyncio.run(limit_time())


async def rows(batches: Batches[str, list[int]], texts: Sequence[str]) -> list[int]:
    return [row for piece in await batches.compute_divided(texts) for row in piece]


def test_a_token_is_four_characters_and_an_empty_text_has_one() -> None:
    assert list(map(estimate_tokens, ["", "abc", "abcd", TEN])) == [1, 1, 2, 10]


def test_calls_that_wait_share_batches_and_each_gets_its_own_rows() -> None:
    async def run_calls() -> tuple[list[list[int]], list[int]]:
        model = Model()
        batches = batching(model)
        model.free.clear()
        first = asyncio.create_task(rows(batches, ["first"]))
        await model.begun.wait()
        others = []
        for n in range(8):
            others.append(asyncio.create_task(rows(batches, [TEN + "y" * (n // 4), "z"])))
            await asyncio.sleep(0.01)
        model.free.set()
        return await asyncio.gather(first, *others), [len(batch) for batch in model.batches]

    got, sizes = run(run_calls())
    assert got == [[5], *([36 + n // 4, 1] for n in range(8))]
    assert sizes == [1, 8, 8]


def test_a_part_above_the_budget_goes_alone_and_a_call_above_it_in_pieces() -> None:
    async def run_calls() -> tuple[list[int], list[list[int]]]:
        model = Model()
        texts = [TEN, "x" * 100_000, TEN, TEN, TEN, TEN, TEN, TEN]
        return await rows(batching(model), texts), [[len(text) for text in batch] for batch in model.batches]

    got, batches = run(run_calls())
    assert got == [36, 100_000, *[36] * 6]
    assert sorted(batches) == [[36], [36], [36] * 5, [100_000]]


def test_a_call_with_nothing_in_it_is_answered_by_the_model_too() -> None:
    async def run_calls() -> tuple[list[int], int]:
        model = Model()
        return await rows(batching(model), []), len(model.batches)

    assert run(run_calls()) == ([], 1)


def test_a_call_that_is_cancelled_before_its_batch_begins_is_not_computed() -> None:
    async def run_calls() -> list[list[str]]:
        model = Model()
        batches = batching(model)
        model.free.clear()
        first = asyncio.create_task(rows(batches, ["first"]))
        await model.begun.wait()
        second, third = (asyncio.create_task(rows(batches, [text])) for text in ("second", "third"))
        await asyncio.sleep(0.01)
        second.cancel()
        model.free.set()
        await asyncio.gather(first, third)
        return model.batches

    assert run(run_calls()) == [["first"], ["third"]]


def test_a_batch_whose_callers_are_all_gone_holds_nobody_up_after_it() -> None:
    async def run_calls() -> list[list[str]]:
        model = Model()
        batches = batching(model)
        model.free.clear()
        first = asyncio.create_task(rows(batches, ["first"]))
        await model.begun.wait()
        first.cancel()
        second = asyncio.create_task(rows(batches, ["second"]))
        await asyncio.sleep(0.01)
        model.free.set()
        await second
        assert await rows(batches, ["third"]) == [5]
        return model.batches

    assert run(run_calls()) == [["first"], ["second"], ["third"]]


def test_a_batch_that_fails_fails_its_callers_and_no_later_ones() -> None:
    async def run_calls() -> list[int]:
        batches = batching(Model())
        with pytest.raises(ModelError, match="no memory"):
            await rows(batches, ["broken"])
        return await rows(batches, ["whole"])

    assert run(run_calls()) == [5]


def test_a_call_that_fails_its_batch_fails_alone() -> None:
    async def run_calls() -> list[list[int] | BaseException]:
        batches = batching(Model())
        return await asyncio.gather(
            *(rows(batches, [text]) for text in ("one", "broken", "three")), return_exceptions=True
        )

    first, broken, third = run(run_calls())
    assert (first, third) == ([3], [5])
    assert isinstance(broken, ModelError)


def test_a_free_model_waits_for_calls_that_follow_unless_a_batch_is_full() -> None:
    async def run_calls(calls: int) -> list[int]:
        model = Model()
        batches = Batches(model.compute, estimate_tokens, limit=50, wait=5.0)
        others = []
        for _ in range(calls):
            others.append(asyncio.create_task(batches.compute([TEN])))
            await asyncio.sleep(0.01)
        await others[0]
        return [len(batch) for batch in model.batches]

    assert run(run_calls(5)) == [5]


def test_a_change_holds_from_the_next_batch_on() -> None:
    async def run_calls() -> list[int]:
        model = Model()
        batches = batching(model, tokens=10)
        await rows(batches, [TEN, TEN])
        reconfigure_batches(batches, {"tokens": 20, "wait_ms": 3})
        await rows(batches, [TEN, TEN])
        reconfigure_batches(batches, {"tokens": 10})
        await rows(batches, [TEN, TEN])
        return [len(batch) for batch in model.batches]

    assert run(run_calls()) == [1, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("user_config", "reason"),
    [
        ({"token": 20}, "user_config.token: unknown key"),
        ({"tokens": 0}, "user_config.tokens: Input should be greater than or equal to 1, got 0"),
        ({"tokens": "many"}, "user_config.tokens: Input should be a valid integer, unable to parse"),
        ({"wait_ms": -1}, "user_config.wait_ms: Input should be greater than or equal to 0, got -1"),
        ([], "user_config: Input should be a valid dictionary"),
    ],
)
def test_an_invalid_change_is_logged_and_changes_nothing(
    user_config: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_batch_settings(user_config)
    assert str(caught.value).startswith(reason)

    async def run_calls() -> list[int]:
        model = Model()
        batches = batching(model, tokens=10)
        with caplog.at_level(logging.ERROR):
            reconfigure_batches(batches, user_config)
        await rows(batches, [TEN, TEN])
        return [len(batch) for batch in model.batches]

    assert run(run_calls()) == [1, 1]
    assert reason in caplog.text


@settings(max_examples=scale_examples(30), deadline=None)
@given(calls=st.lists(st.lists(st.integers(0, 300), max_size=12), min_size=1, max_size=12))
def test_concurrent_calls_get_their_rows_and_no_batch_exceeds_the_budget(calls: list[list[int]]) -> None:
    async def run_calls() -> tuple[list[list[int]], list[list[str]]]:
        model = Model()
        batches = batching(model)
        pending = [rows(batches, ["x" * length for length in call]) for call in calls]
        return await asyncio.gather(*pending), model.batches

    got, batches = run(run_calls())
    assert got == calls
    assert sum(map(len, batches)) == sum(map(len, calls))
    assert all(sum(map(estimate_tokens, batch)) <= 50 or len(batch) == 1 for batch in batches)


def test_no_batch_belongs_to_an_operation_not_even_the_first() -> None:
    names: list[Operation | None] = []

    async def compute(texts: Sequence[str]) -> list[int]:
        names.append(current_operation())
        return [len(text) for text in texts]

    async def run_calls() -> None:
        batches = Batches(compute, estimate_tokens, limit=50, wait=0.001)
        for name in ("answer", "retrieve"):
            with enter_operation(Operation(name=name)):
                await batches.compute([name])

    run(run_calls())
    assert names == [None, None]
