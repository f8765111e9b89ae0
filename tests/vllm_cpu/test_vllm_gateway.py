"""A real engine inside our graph, through our gateway, to OpenAI's own client."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from engine import TOKENS, Engine, eventually
from fakes.serving import serve_graph
from openai import APIError, AsyncOpenAI, InternalServerError, OpenAI, UnprocessableEntityError
from tiny_llama import WINDOW

from rag_core.config import Settings
from serve.models.model_connections import VLLM, connect_models
from serve.services import open_shared_resources

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.postgres,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

QUESTION = "How often are the keys of the vault replaced?"
USER = {"role": "user", "content": QUESTION}
ASKED: dict[str, Any] = {"model": "default", "messages": [USER]}
TOO_LONG = ASKED | {"messages": [{"role": "assistant", "content": "x" * WINDOW}, USER]}
CUT = f"the answer reached its limit of {TOKENS} tokens"
STEP = 0.001
"""Seconds: less than an engine needs for a token, more than lies between pieces that were sent together."""


@pytest.fixture
def asking(gateway: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as client:
        yield client


@contextmanager
def serve_with_settings(deployment: "DeploymentHandle", settings: Settings, **generation: Any) -> Iterator[OpenAI]:
    """A client of a gateway in this process that uses the same engine with other settings of its generation."""
    changed = settings.model_copy(update={"generation": settings.generation.model_copy(update=generation)})
    models = connect_models(changed, {"generator": deployment}, VLLM)
    graph = open_shared_resources(changed, models.remote_models, models.dependencies).build_services(changed)
    with serve_graph(graph) as address, OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_an_answer_comes_in_chunks_with_time_between(asking: OpenAI) -> None:
    def list_arrivals() -> list[float]:
        chunks = asking.chat.completions.create(**ASKED, stream=True)
        return [perf_counter() for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]

    list_arrivals()  # an engine is slow until it has answered once
    times = list_arrivals()
    assert len(times) >= TOKENS / 4
    assert sum(after - before > STEP for before, after in pairwise(times)) >= TOKENS / 10


def test_its_tokens_are_counted_and_an_answer_at_their_limit_says_so_and_cites_nothing(asking: OpenAI) -> None:
    chunks = list(asking.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == TOKENS
    assert usage.prompt_tokens > len(QUESTION)
    assert usage.total_tokens == usage.prompt_tokens + TOKENS
    closing = next(chunk.choices[0].delta.model_extra for chunk in chunks if "annotations" in _extra(chunk))
    assert closing["annotations"] == closing["rag"]["citations"] == []
    assert closing["rag"]["degraded"] == ["generate"]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_streamed_or_not_it_is_the_same_answer(
    deployment: "DeploymentHandle", settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_core.answering.generation.openai.fresh_nonce", lambda: "a-nonce")  # it is in the prompt
    with serve_with_settings(deployment, settings, max_tokens=100) as asking:
        completion = asking.chat.completions.create(**ASKED)
        chunks = list(asking.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == completion.choices[0].message.content
    assert len(completion.choices[0].message.content or "") == 100
    assert chunks[-1].usage == completion.usage


@pytest.mark.parametrize("stream", [True, False], ids=["amid a stream", "before a whole answer"])
def test_a_client_that_leaves_ends_the_work_of_the_engine(gateway: str, engine: Engine, stream: bool) -> None:
    async def leave() -> float:
        before = await engine.count_when_idle()
        async with AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as client:
            request = asyncio.create_task(_first_words(client) if stream else client.chat.completions.create(**ASKED))
            assert await eventually(lambda: engine.running == 1)
            request.cancel()
            assert await eventually(lambda: engine.running == 0)
        return await engine.count_when_idle() - before

    # on a busy machine an answer can be complete before the client has left
    assert any(asyncio.run(leave()) < TOKENS for _ in range(5))


async def _first_words(client: AsyncOpenAI) -> None:
    """Reads the first words, and then waits until it is cancelled."""
    async with await client.chat.completions.create(**ASKED, stream=True) as chunks:
        async for chunk in chunks:
            if chunk.choices[0].delta.content:
                await asyncio.Event().wait()


def test_a_prompt_that_is_too_long_is_a_problem_or_the_last_event(asking: OpenAI) -> None:
    with pytest.raises(UnprocessableEntityError, match=f"maximum context length is {WINDOW} tokens") as caught:
        asking.chat.completions.create(**TOO_LONG)
    assert caught.value.code == "refused"
    with pytest.raises(APIError, match=f"maximum context length is {WINDOW} tokens"):
        list(asking.chat.completions.create(**TOO_LONG, stream=True))


def test_with_a_fallback_a_prompt_that_is_too_long_is_answered_from_the_sources(
    deployment: "DeploymentHandle", settings: Settings
) -> None:
    with serve_with_settings(deployment, settings, fallback="extractive") as asking:
        message = asking.chat.completions.create(**TOO_LONG).choices[0].message
    assert "replaced every 45 days" in (message.content or "")
    assert [citation.type for citation in message.annotations or ()] == ["url_citation"]
    assert "model" in (message.model_extra or {})["rag"]["degraded"]


def test_more_than_the_engine_may_queue_is_refused_with_a_time_to_come_back(gateway: str) -> None:
    async def send_crowd() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as client:
            requests = [client.chat.completions.create(**ASKED) for _ in range(8)]
            return await asyncio.gather(*requests, return_exceptions=True)

    # on a busy machine the requests can arrive one after the other
    crowds = (asyncio.run(send_crowd()) for _ in range(5))
    outcomes, refused = next((crowd, refusals) for crowd in crowds if (refusals := _list_refusals(crowd)))
    assert len(refused) <= 4
    assert {(refusal.code, refusal.response.headers["retry-after"]) for refusal in refused} == {("overloaded", "1")}
    answered = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(answered) == 8 - len(refused)


def _list_refusals(outcomes: Iterable[Any]) -> list[InternalServerError]:
    return [outcome for outcome in outcomes if isinstance(outcome, InternalServerError) and outcome.status_code == 503]


def _extra(chunk: Any) -> dict[str, Any]:
    return (chunk.choices[0].delta.model_extra or {}) if chunk.choices else {}
