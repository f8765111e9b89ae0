"""What every client of a language model promises, over HTTP and over the handle of a deployment."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from fakes import chat_deployment, openai_endpoint
from fakes.chat_deployment import ScriptedDeployment
from fakes.judging import ScriptedClient
from fakes.openai_endpoint import HANG, ScriptedHttpResponse, error_response, run_endpoint
from pydantic import BaseModel

from rag_core.breaker import Breaker
from rag_core.errors import GenerationError
from rag_core.events import Usage
from rag_core.models.chat import ChatClient, Completer, Completion, CompletionDelta

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray's own making
    from serve.models.llm import deployment_client

PROMPT = "What may nobody read in a log, since a customer has written it?"
MESSAGES = [{"role": "user", "content": PROMPT}]
LONG, SOON = 60.0, 0.3
WATER, BOILS = ({"choices": [{"delta": {"content": text}}]} for text in ("Water ", "boils."))
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 4}}
DONE = "[DONE]"


class Body(BaseModel, extra="allow"):
    """A whole response of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The events of a stream, or else the body of a whole answer. The first `failures` requests fail for a moment."""

    events: Sequence[Any] = ()
    body: dict[str, Any] | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Served:
    client: ChatClient
    count_requests: Callable[[], int]
    was_left: Callable[[], bool]


Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def serve_over_http(answer: Answer, **timeouts: float) -> AsyncIterator[Served]:
    steps = [event if event == HANG else openai_endpoint.event(event) for event in answer.events]
    response = error_response(200, answer.body) if answer.body else ScriptedHttpResponse(steps=steps)
    failing = [error_response(503, {"error": "loading"})] * answer.failures
    with run_endpoint(*failing, response) as endpoint:
        async with openai_endpoint.connect(endpoint, attempts=2, **timeouts) as client:
            yield Served(client, lambda: len(endpoint.requests), lambda: endpoint.client_left.wait(LONG))


@asynccontextmanager
async def serve_over_handle(answer: Answer, **timeouts: float) -> AsyncIterator[Served]:
    events = [event if event == HANG else chat_deployment.event(event) for event in answer.events]
    deployment = ScriptedDeployment([Body(**answer.body)] if answer.body else events, replaced=answer.failures)
    settings = {"first_token_timeout": LONG, "stall_timeout": LONG} | timeouts
    client = deployment_client(deployment.chat, model="llama", breaker=Breaker("the deployment of llama"), **settings)
    yield Served(client, lambda: len(deployment.calls), lambda: deployment.cancelled[-1])


@pytest.fixture(params=[serve_over_http, serve_over_handle])
def serve(request: pytest.FixtureRequest) -> Serve:
    connect: Serve = request.param
    return connect


def read(serve: Serve, answer: Answer, **timeouts: float) -> tuple[list[CompletionDelta], str, int]:
    """The deltas, the error's text without the name of the other side, and the number of requests."""
    deltas: list[CompletionDelta] = []

    async def read_deltas() -> tuple[str, int]:
        async with serve(answer, **timeouts) as served:
            stream = served.client.stream(MESSAGES, temperature=0.1, max_tokens=64)
            try:
                while True:
                    deltas.append(await anext(stream))
            except StopAsyncIteration:
                return "", served.count_requests()
            except GenerationError as error:
                return error_reason(error), served.count_requests()

    return (deltas, *asyncio.run(read_deltas()))


def error_reason(error: GenerationError) -> str:
    assert type(error) is GenerationError
    return str(error).removeprefix("the deployment of ").removeprefix("the endpoint ").partition(" ")[2]


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        ([WATER, BOILS, STOP, USAGE, DONE], Usage(40, 4)),
        ([WATER, BOILS, USAGE | STOP], Usage(40, 4)),
        ([WATER, BOILS, STOP, HANG], None),
        ([WATER, BOILS, DONE, HANG], None),
        ([WATER, BOILS, STOP], None),
    ],
    ids=["complete", "usage with the reason", "without an end", "without a reason", "cut after the reason"],
)
def test_an_answer_comes_in_pieces_and_ends_with_a_reason(
    serve: Serve, events: Sequence[Any], usage: Usage | None
) -> None:
    deltas, reason, requests = read(serve, Answer(events=events))
    assert (reason, requests) == ("", 1)
    assert [delta.text for delta in deltas] == ["Water ", "boils.", ""]
    assert deltas[-1] == CompletionDelta(finish="stop", usage=usage)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "ended the stream before the answer was complete"),
        ([HANG], f"sent no further piece of its answer within {SOON} s"),
        (["{nope"], "sent an invalid chat completion chunk"),
        ([{"error": {"message": "engine died", "code": 500}}], "refused with 500: engine died"),
        ([{"error": {"message": f"no {PROMPT}"}}], "broke off: reason withheld, it quotes the prompt"),
    ],
)
def test_an_answer_that_breaks_off_keeps_its_text_is_not_requested_again_and_says_why(
    serve: Serve, events: Sequence[Any], reason: str
) -> None:
    timeouts = {"stall_timeout": SOON} if HANG in events else {}
    deltas, message, requests = read(serve, Answer(events=[WATER, *events]), **timeouts)
    assert ([delta.text for delta in deltas], message, requests) == (["Water "], reason, 1)


def test_without_a_first_token_in_time_there_is_no_answer(serve: Serve) -> None:
    answer = Answer(events=[HANG])
    deltas, reason, requests = read(serve, answer, first_token_timeout=SOON)
    assert (deltas, reason) == ([], f"sent no answer within {SOON} s")
    assert requests <= 1  # the time can be over before the request arrives


def test_a_failure_that_passes_is_hidden_before_the_first_token(serve: Serve) -> None:
    deltas, reason, requests = read(serve, Answer(events=[WATER, STOP, DONE], failures=1))
    assert ([delta.text for delta in deltas], reason, requests) == (["Water ", ""], "", 2)


def test_a_reader_who_leaves_ends_the_work(serve: Serve) -> None:
    async def leave() -> bool:
        async with serve(Answer(events=[WATER, HANG])) as served:
            async with aclosing(served.client.stream(MESSAGES, temperature=0.0, max_tokens=64)) as deltas:
                assert (await anext(deltas)).text == "Water "
            return await asyncio.to_thread(served.was_left)

    assert asyncio.run(leave())


def complete(client: Completer) -> Completion:
    return asyncio.run(_complete(client))


async def _complete(client: Completer) -> Completion:
    return await client.complete(MESSAGES, schema={"type": "boolean"}, logprobs=True, max_tokens=8)


def test_a_whole_answer_has_its_text_and_the_alternatives_of_its_tokens(serve: Serve) -> None:
    top = [{"token": "true", "logprob": -0.1}, {"token": "false", "logprob": -2.4}]
    choice = {"message": {"content": "true"}, "logprobs": {"content": [{"token": "true", "top_logprobs": top}]}}
    expected = Completion(text="true", logprobs=({"true": -0.1, "false": -2.4},))

    async def request_completion() -> Completion:
        async with serve(Answer(body={"choices": [choice]}, failures=1)) as served:
            return await _complete(served.client)

    assert asyncio.run(request_completion()) == expected
    assert complete(ScriptedClient(otherwise=expected)) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"choices": [{"text": "x"}]}, "sent an invalid chat completion"),
        ({"error": {"message": "engine died", "code": 500}}, "refused with 500: engine died"),
    ],
)
def test_a_whole_answer_that_is_invalid_is_a_named_error(serve: Serve, body: dict[str, Any], reason: str) -> None:
    async def request_completion() -> None:
        async with serve(Answer(body=body)) as served:
            await _complete(served.client)

    with pytest.raises(GenerationError, match=f"{reason}$"):
        asyncio.run(request_completion())
    with pytest.raises(GenerationError, match=f"{reason}$"):
        complete(ScriptedClient(error=GenerationError(reason)))
