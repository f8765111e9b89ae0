"""A real engine through our client: it streams, counts, stops when nobody reads, and fails by name."""

import asyncio
import json
from contextlib import aclosing
from itertools import pairwise
from time import perf_counter

import pytest
from engine import Engine, eventually
from fakes.answering import passage
from tiny_llama import WINDOW

from rag_core.answering.generation.openai import OpenAIGenerator
from rag_core.errors import GenerationError, OverloadedError, RefusedError
from rag_core.models.chat import ChatClient, Completion, CompletionDelta
from rag_core.stage import recording, stage
from rag_core.types import Prompt, Query, Style

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

CUSTOMERS = "zebras of a customer"
MESSAGES = [{"role": "user", "content": f"What do the {CUSTOMERS} eat?"}]
PROMPT = Prompt(
    query=Query(text="When does water boil?"),
    passages=(passage(1, "Water boils at 100 °C.", title="Physics"),),
    style=Style(pack="qa"),
)
ENDLESS = 1900
SUPPORTED = {
    "type": "object",
    "properties": {"supported": {"type": "boolean"}},
    "required": ["supported"],
    "additionalProperties": False,
}
STEP = 0.001
"""Seconds: less than an engine needs for a token, more than lies between pieces that were sent together."""


def test_an_answer_comes_in_pieces_with_time_between_and_its_tokens_are_counted(client: ChatClient) -> None:
    async def time_deltas() -> list[tuple[float, CompletionDelta]]:
        deltas = client.stream(MESSAGES, temperature=0.0, max_tokens=64)
        return [(perf_counter(), delta) async for delta in deltas]

    asyncio.run(time_deltas())  # an engine is slow until it has answered once
    timed_deltas = asyncio.run(time_deltas())
    gaps = [after - before for (before, _), (after, _) in pairwise(timed_deltas)]
    assert sum(gap > STEP for gap in gaps) >= 2
    last = timed_deltas[-1][1]
    assert last.usage is not None
    assert last.usage.completion_tokens == 64
    assert last.usage.prompt_tokens > len(MESSAGES[0]["content"])
    assert last.finish == "length"


def test_the_generator_streams_from_it_and_refuses_an_answer_that_reached_its_limit(client: ChatClient) -> None:
    pieces: list[str] = []

    async def read() -> None:
        async with stage("generate"), aclosing(OpenAIGenerator(client, 0.0, 64).stream(PROMPT)) as answer:
            while True:
                pieces.append(await anext(answer))

    with recording() as stages, pytest.raises(GenerationError, match="its limit of 64 tokens"):
        asyncio.run(read())
    assert len(pieces) >= 2
    assert stages[0].figures["completion_tokens"] == 64
    assert 0 < stages[0].figures["first_token"] < stages[0].seconds


def test_a_whole_answer_has_the_form_that_was_asked_for(client: ChatClient) -> None:
    completion = asyncio.run(client.complete(MESSAGES, schema=SUPPORTED, logprobs=True, max_tokens=64))
    assert isinstance(json.loads(completion.text)["supported"], bool)
    assert completion.logprobs


def test_a_reader_that_stops_ends_the_work_of_the_engine(client: ChatClient, engine: Engine) -> None:
    async def stop_reading() -> float:
        async with aclosing(client.stream(MESSAGES, temperature=0.0, max_tokens=ENDLESS)) as deltas:
            await anext(deltas)
            assert await eventually(lambda: engine.running == 1)
            before = engine.written
        assert await eventually(lambda: engine.running == 0)
        return engine.written - before

    assert asyncio.run(stop_reading()) < ENDLESS / 2


def test_a_prompt_that_is_too_long_is_a_named_error(client: ChatClient) -> None:
    async def send_long_prompt() -> None:
        messages = [{"role": "user", "content": "x" * WINDOW}]
        async with aclosing(client.stream(messages, temperature=0.0, max_tokens=8)) as deltas:
            await anext(deltas)

    with pytest.raises(RefusedError, match=rf"refused with 400: .*maximum context length is {WINDOW} tokens"):
        asyncio.run(send_long_prompt())


def test_more_than_it_may_queue_is_refused_by_name_and_the_rest_is_answered(client: ChatClient) -> None:
    async def send_crowd() -> list[Completion | BaseException]:
        requests = [client.complete(MESSAGES, max_tokens=300) for _ in range(8)]
        return await asyncio.gather(*requests, return_exceptions=True)

    outcomes = asyncio.run(send_crowd())
    refused = [str(outcome) for outcome in outcomes if isinstance(outcome, OverloadedError)]
    assert set(refused) == {"the deployment of llama: its queue is full"}
    assert sum(isinstance(outcome, Completion) for outcome in outcomes) == 8 - len(refused) >= 2


def test_no_prompt_is_in_any_log(client: ChatClient, engine: Engine) -> None:
    assert engine.find_logs("LLMServer")
    assert not engine.find_logs(CUSTOMERS)
