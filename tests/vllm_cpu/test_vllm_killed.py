"""An engine that is killed while it writes, what is answered without one, and how the graph comes back."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from engine import engine_cores
from httpx2 import Response
from openai import APIError, AsyncOpenAI

from rag_core.breaker import FAILURE_LIMIT
from rag_core.errors import GenerationError
from rag_core.models.chat import ChatClient

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.postgres,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

USER = {"role": "user", "content": "How often are the keys of the vault replaced?"}
ASKED: dict[str, Any] = {"model": "default", "messages": [USER]}
PATIENCE = 300.0
"""Seconds for a new engine."""
LONG = 60.0


def test_an_engine_that_dies_amid_an_answer_leaves_its_words_and_an_error(gateway: str, client: ChatClient) -> None:
    async def kill_engine() -> list[Any]:
        streaming = asyncio.Semaphore(0)
        both = asyncio.gather(_stream(gateway, streaming), _stream_by_handle(client, streaming))
        for _ in range(2):
            await streaming.acquire()
        for core in engine_cores():
            core.kill()
        (chunks, message), error = await both
        assert "refused with 500: EngineCore" in message
        assert str(error).startswith("the deployment of llama refused with 500: EngineCore")
        return chunks

    chunks = asyncio.run(kill_engine())
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert _text(chunks)
    assert choices[-1].finish_reason == "length"
    assert choices[-2].delta.model_extra["rag"]["degraded"] == ["generate"]


def test_without_an_engine_each_failure_says_at_once_that_it_may_be_tried_again(gateway: str) -> None:
    refusals = [_ask(gateway) for _ in range(FAILURE_LIMIT + 1)]
    assert {response.status_code for response in refusals} <= {502, 503}
    assert {(response.json()["retryable"], response.headers["retry-after"]) for response in refusals} == {(True, "1")}
    # not the last one on a busy machine: the circuit's pause can end before it
    assert "circuit_open" in {response.json()["error"]["code"] for response in refusals}


@pytest.mark.chaos
def test_another_engine_is_started_and_answers(gateway: str) -> None:
    until = time.monotonic() + PATIENCE
    while (response := _ask(gateway)).status_code != 200 and time.monotonic() < until:
        assert response.json()["retryable"]
        time.sleep(1)
    assert response.json()["choices"][0]["message"]["content"]


def _ask(gateway: str) -> Response:
    return httpx2.post(f"{gateway}/v1/chat/completions", json=ASKED, timeout=2 * LONG)


async def _stream(gateway: str, streaming: asyncio.Semaphore) -> tuple[list[Any], str]:
    """The chunks that arrived, and the error at the end."""
    chunks: list[Any] = []
    try:
        async with AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as asking:
            async for chunk in await asking.chat.completions.create(**ASKED, stream=True):
                if chunk.choices and chunk.choices[0].delta.content and not _text(chunks):
                    streaming.release()
                chunks.append(chunk)
    except APIError as error:
        return chunks, error.message
    return chunks, ""


def _text(chunks: Sequence[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def _stream_by_handle(client: ChatClient, begun: asyncio.Semaphore) -> GenerationError | None:
    try:
        async with aclosing(client.stream([USER], temperature=0.0, max_tokens=4000)) as deltas:
            await anext(deltas)
            begun.release()
            async for _ in deltas:
                pass
    except GenerationError as error:
        return error
    return None
