"""A deployment of `ray.serve.llm` as a client: all that a call of its handle yields, raises or leaves out."""

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from fakes.chat_deployment import HANG, ScriptedDeployment, event, piece
from pydantic import BaseModel, ValidationError
from ray.exceptions import ActorDiedError

from rag_core.errors import CircuitOpenError, GenerationError, OverloadedError, RefusedError
from rag_core.events import Usage
from rag_core.models.chat import ChatClient, Completion, CompletionDelta

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray's own making
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

    from rag_core.breaker import FAILURE_LIMIT, Breaker
    from serve.models.llm import LlmSettings, deployment_client, llm_config

PROMPT = "What may nobody read in a log, since a customer has written it?"
MESSAGES = [{"role": "user", "content": PROMPT}]
LONG, SOON = 60.0, 0.01


class ErrorInfo(BaseModel):
    message: str
    type: str = "BadRequestError"
    code: int = 400


class ErrorResponse(BaseModel):
    """An error in the form of vLLM."""

    error: ErrorInfo


class ChatCompletion(BaseModel):
    choices: list[dict[str, Any]]


USAGE = event({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 4}})
DONE = ["data: [DONE]\n\n"]
SAID = {"message": {"content": "true"}}
WATER = (piece("Water "), piece("boils.", "stop"), USAGE, DONE)


def client(deployment: ScriptedDeployment, **timeouts: float) -> ChatClient:
    limits = {"first_token_timeout": LONG, "stall_timeout": LONG} | timeouts
    return deployment_client(deployment.chat, model="llama", breaker=Breaker("the deployment of llama"), **limits)


def stream_deltas(deployment: ScriptedDeployment, **timeouts: float) -> list[CompletionDelta]:
    async def read() -> list[CompletionDelta]:
        chat = client(deployment, **timeouts)
        return [delta async for delta in chat.stream(MESSAGES, temperature=0.1, max_tokens=64)]

    return asyncio.run(read())


def complete(deployment: ScriptedDeployment, **options: Any) -> Completion:
    return asyncio.run(client(deployment).complete(MESSAGES, max_tokens=8, **options))


def test_an_answer_comes_in_its_pieces_then_why_it_ended_and_what_it_took() -> None:
    deployment = ScriptedDeployment(WATER)
    assert stream_deltas(deployment) == [
        CompletionDelta(text="Water "),
        CompletionDelta(text="boils."),
        CompletionDelta(finish="stop", usage=Usage(40, 4)),
    ]
    assert deployment.cancelled == [False]
    assert deployment.asked == [
        {
            "model": "llama",
            "messages": MESSAGES,
            "temperature": 0.1,
            "max_tokens": 64,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


@pytest.mark.parametrize(
    "yields",
    [
        [[*piece("Yes."), *piece("", "stop"), *DONE]],
        ["".join([*piece("Yes."), *DONE])],
        [*piece("Yes."), *DONE],
        [piece("Yes.", "stop")],
    ],
    ids=["many in a list", "many in a string", "strings", "without an end"],
)
def test_events_are_read_however_they_are_batched(yields: Sequence[object]) -> None:
    assert stream_deltas(ScriptedDeployment(yields)) == [CompletionDelta(text="Yes."), CompletionDelta(finish="stop")]


def test_a_line_separator_inside_a_text_ends_no_event() -> None:
    text = "one\u2028two"
    frame = [f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n']
    assert stream_deltas(ScriptedDeployment([frame, DONE]))[0].text == text


@pytest.mark.parametrize(
    ("yields", "reason"),
    [
        ([[ErrorResponse(error=ErrorInfo(message="at most 1024 tokens"))]], "refused with 400: at most 1024 tokens"),
        ([ErrorResponse(error=ErrorInfo(message="at most 1024 tokens"))], "refused with 400: at most 1024 tokens"),
        ([ErrorResponse(error=ErrorInfo(message=f"cannot read {PROMPT}"))], "reason withheld, it quotes the prompt"),
        ([piece("Wa"), event({"error": {"message": "engine died", "code": 500}})], "refused with 500: engine died"),
        ([piece("Wa")], "ended the stream before the answer was complete"),
        ([], "ended the stream before the answer was complete"),
        ([["data: {\n\n"]], "sent an invalid chat completion chunk"),
        ([b"data: {}"], "sent an invalid event of type bytes"),
        ([ActorDiedError()], "broke off: ActorDiedError"),
        ([piece("Wa"), ActorDiedError()], "broke off: ActorDiedError"),
        ([ValueError(PROMPT)], "broke off: ValueError"),
        ([piece("Wa"), asyncio.CancelledError()], "broke off: CancelledError"),
        ([DeploymentUnavailableError(None)], "broke off: DeploymentUnavailableError"),
    ],
)
def test_whatever_goes_wrong_is_one_named_error_without_the_prompt(yields: Sequence[object], reason: str) -> None:
    with pytest.raises(GenerationError) as caught:
        stream_deltas(ScriptedDeployment(yields))
    assert str(caught.value).startswith("the deployment of llama ")
    assert str(caught.value).endswith(reason)
    assert PROMPT not in str(caught.value)


@pytest.mark.parametrize(
    ("lost", "calls"),
    [(ActorDiedError(), 2), (DeploymentUnavailableError(None), 2), (asyncio.CancelledError(), 2), (ValueError(), 1)],
)
def test_a_call_that_lost_its_replica_before_the_first_piece_is_made_twice(lost: BaseException, calls: int) -> None:
    deployment = ScriptedDeployment([lost])
    with pytest.raises(GenerationError):
        stream_deltas(deployment)
    assert len(deployment.calls) == calls


def test_the_second_replica_answers_and_a_replica_that_is_lost_amid_an_answer_is_not_replaced() -> None:
    assert stream_deltas(ScriptedDeployment(WATER, replaced=1))[0] == CompletionDelta(text="Water ")
    assert complete(ScriptedDeployment([ChatCompletion(choices=[SAID])], replaced=1)).text == "true"
    lost = ScriptedDeployment([piece("Wa"), ActorDiedError()])
    with pytest.raises(GenerationError):
        stream_deltas(lost)
    assert len(lost.calls) == 1


def test_a_second_replica_has_no_more_time_than_the_first_one_left() -> None:
    deployment = ScriptedDeployment([HANG], replaced=1)
    with pytest.raises(GenerationError, match=r"sent no answer within 0\.5 s"):
        stream_deltas(deployment, first_token_timeout=0.5)
    assert deployment.cancelled == [False, True]


def test_too_many_calls_are_an_overload_that_opens_no_circuit() -> None:
    deployment = ScriptedDeployment([BackPressureError(num_queued_requests=2, max_queued_requests=2)])
    chat = client(deployment)
    for _ in range(FAILURE_LIMIT + 1):
        with pytest.raises(OverloadedError, match="the deployment of llama: its queue is full"):
            asyncio.run(whole_completion(chat))


@pytest.mark.parametrize(("status", "kind"), [(400, RefusedError), (413, RefusedError), (500, GenerationError)])
def test_a_refused_prompt_is_distinguished_from_a_failed_engine(status: int, kind: type) -> None:
    with pytest.raises(GenerationError, match=f"refused with {status}: no") as caught:
        stream_deltas(ScriptedDeployment([ErrorResponse(error=ErrorInfo(message="no", code=status))]))
    assert type(caught.value) is kind


def test_a_deployment_that_fails_five_times_is_not_asked_a_sixth_time() -> None:
    deployment = ScriptedDeployment([ErrorResponse(error=ErrorInfo(message="EngineCore is dead", code=500))])
    chat = client(deployment)
    for work in (first_delta, whole_completion, first_delta, whole_completion, first_delta):
        with pytest.raises(GenerationError):
            asyncio.run(work(chat))
    for work in (first_delta, whole_completion):
        with pytest.raises(CircuitOpenError):
            asyncio.run(work(chat))
    assert len(deployment.calls) == 5


def test_an_answer_counts_as_a_success_if_its_reader_stops_at_the_finish_reason() -> None:
    breaker = Breaker("llama")

    async def read_to_the_reason(yields: Sequence[object]) -> None:
        calls = ScriptedDeployment(yields).chat
        chat = deployment_client(calls, model="llama", first_token_timeout=LONG, stall_timeout=LONG, breaker=breaker)
        async with aclosing(chat.stream(MESSAGES, temperature=0.1, max_tokens=64)) as deltas:
            while not (await anext(deltas)).finish:
                pass

    for _ in range(2):
        for _ in range(FAILURE_LIMIT - 1):
            with pytest.raises(GenerationError):
                asyncio.run(read_to_the_reason([ValueError()]))
        asyncio.run(read_to_the_reason(WATER))
    assert breaker.state == "closed"


def test_prompts_that_are_refused_open_no_circuit() -> None:
    deployment = ScriptedDeployment([ErrorResponse(error=ErrorInfo(message="at most 1024 tokens"))])
    chat = client(deployment)
    for _ in range(FAILURE_LIMIT + 1):
        with pytest.raises(RefusedError):
            asyncio.run(whole_completion(chat))


@pytest.mark.parametrize(
    ("yields", "timeouts", "reason"),
    [
        ([HANG], {"first_token_timeout": SOON}, r"sent no answer within 0\.01 s"),
        ([piece("Wa"), HANG], {"stall_timeout": SOON}, r"sent no further piece of its answer within 0\.01 s"),
    ],
    ids=["first piece", "next piece"],
)
def test_a_deployment_that_falls_silent_is_not_waited_for_and_its_call_is_cancelled(
    yields: Sequence[object], timeouts: Mapping[str, float], reason: str
) -> None:
    deployment = ScriptedDeployment(yields)
    with pytest.raises(GenerationError, match=reason):
        stream_deltas(deployment, **timeouts)
    assert deployment.cancelled == [True]


def test_a_reader_that_stops_cancels_the_call() -> None:
    deployment = ScriptedDeployment([piece("Wa"), HANG])

    async def read_one() -> None:
        async with aclosing(client(deployment).stream(MESSAGES, temperature=0.1, max_tokens=64)) as deltas:
            assert (await anext(deltas)).text == "Wa"

    asyncio.run(read_one())
    assert deployment.cancelled == [True]


async def first_delta(chat: ChatClient) -> CompletionDelta:
    return await anext(chat.stream(MESSAGES, temperature=0.1, max_tokens=64))


async def whole_completion(chat: ChatClient) -> Completion:
    return await chat.complete(MESSAGES, max_tokens=8)


@pytest.mark.parametrize("work", [first_delta, whole_completion])
def test_a_task_that_is_cancelled_cancels_the_call_and_stays_cancelled(work: Callable[[ChatClient], Any]) -> None:
    deployment = ScriptedDeployment([HANG])

    async def cancel_call() -> None:
        async with asyncio.timeout(SOON):
            await work(client(deployment))

    with pytest.raises(TimeoutError):
        asyncio.run(cancel_call())
    assert deployment.cancelled == [True]


def test_a_piece_that_is_not_understood_cancels_the_call() -> None:
    deployment = ScriptedDeployment([["data: {\n\n"], HANG])
    with pytest.raises(GenerationError):
        stream_deltas(deployment)
    assert deployment.cancelled == [True]


def test_a_whole_answer_has_its_form_and_its_alternatives() -> None:
    top = [{"token": "true", "logprob": -0.1}, {"token": "false", "logprob": -2.4}]
    choice = {"message": {"content": "true"}, "logprobs": {"content": [{"token": "true", "top_logprobs": top}]}}
    deployment = ScriptedDeployment([ChatCompletion(choices=[choice])])
    schema = {"type": "boolean"}
    assert complete(deployment, schema=schema, logprobs=True) == Completion(
        text="true", logprobs=({"true": -0.1, "false": -2.4},)
    )
    (body,) = deployment.asked
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert (body["temperature"], body["logprobs"], body["top_logprobs"]) == (0.0, True, 20)
    assert "stream" not in body


@pytest.mark.parametrize(
    ("yields", "reason"),
    [
        ([ErrorResponse(error=ErrorInfo(message="at most 1024 tokens"))], "refused with 400: at most 1024 tokens"),
        ([], "invalid chat completion"),
        ([ActorDiedError()], "ActorDiedError"),
    ],
)
def test_a_whole_answer_fails_by_the_same_name(yields: Sequence[object], reason: str) -> None:
    with pytest.raises(GenerationError, match=reason):
        complete(ScriptedDeployment(yields))


def test_a_deployment_streams_at_once_logs_no_prompt_and_limits_its_calls() -> None:
    config = llm_config(LlmSettings(model="llama", engine={"max_model_len": 1024, "enable_log_requests": True}))
    assert config["model_loading_config"] == {"model_id": "llama", "model_source": "llama"}
    assert config["experimental_configs"] == {"stream_batching_interval_ms": 0}
    assert config["engine_kwargs"] == {"max_model_len": 1024, "enable_log_requests": False}
    assert config["deployment_config"]["max_ongoing_requests"] == 64
    assert config["deployment_config"]["max_queued_requests"] == 256
    assert config["deployment_config"]["max_surge_percent"] == 0
    assert config["placement_group_config"] is None


def test_an_engine_on_a_cpu_reserves_one_cpu() -> None:
    assert llm_config(LlmSettings(model="llama", device="cpu"))["placement_group_config"] == {"bundles": [{"CPU": 1}]}


def test_an_unknown_setting_of_a_model_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        LlmSettings.model_validate({"model": "llama", "replicas": 2})
