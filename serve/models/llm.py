"""A language model in the graph, served by vLLM under `ray.serve.llm`. It is called by its handle, not over HTTP.

Errors of Ray, Serve and the engine become GenerationErrors here, including errors that arrive as a response.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast

from pydantic import BaseModel, Field
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

from rag_core.breaker import Breaker
from rag_core.config import Section
from rag_core.errors import GenerationError, OverloadedError, RefusedError
from rag_core.models.chat import (
    DONE,
    STREAM_FIELDS,
    CompletionBody,
    CompletionChunk,
    EndpointFailure,
    answer_fields,
    parse_body,
    redact_reason,
)
from rag_core.models.endpoint import ChatMessage, Completion, CompletionDelta, read_deltas
from serve.models.remote import RETRY_AFTER, is_task_cancelled

if TYPE_CHECKING:
    from ray.serve.deployment import Application
    from ray.serve.handle import DeploymentHandle

B = TypeVar("B", bound=BaseModel)

_DATA = "data: "
_REFUSALS = frozenset({400, 413, 422})
"""The statuses of an engine that would reject the same request again."""
_REPLICA_LOST = (RayActorError, DeploymentUnavailableError, ReplicaUnavailableError, asyncio.CancelledError)
"""The exceptions of a call whose replica was lost: the same call can succeed on another one."""


class LlmSettings(Section):
    """One model, and the replicas of vLLM that serve it."""

    model: str = Field(min_length=1, description="the model's name in requests")
    source: str = Field("", description="a folder, or a name on the model hub; the default is `model`")
    device: Literal["cuda", "cpu"] = "cuda"
    accelerator: str = Field("", description="the type of GPU as Ray names it, such as L4; the default is any")
    engine: dict[str, Any] = Field({}, description="arguments of vLLM, such as max_model_len")
    environment: dict[str, str] = Field({}, description="environment variables of its processes")
    cpus: float = Field(1.0, gt=0, description="CPUs of a replica, besides those of its engine")
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    target_ongoing_requests: float = Field(32, gt=0, description="requests per replica above which replicas are added")
    max_ongoing_requests: int = Field(64, ge=1, description="concurrent requests of a replica; others wait in a queue")
    max_queued_requests: int = Field(256, ge=1, description="queued requests of each caller; others are rejected")


def llm_deployment(settings: LlmSettings) -> "Application":
    """An application to bind into a graph; `HandleClient` calls its handle. Requires vLLM."""
    from ray.serve.llm import LLMConfig, build_llm_deployment

    return build_llm_deployment(LLMConfig(**llm_config(settings)))


def llm_config(settings: LlmSettings) -> dict[str, Any]:
    """The arguments of LLMConfig.

    Tokens are sent one by one; by default Ray collects them for 50 ms. Prompts are not logged. The number of requests
    is limited; by default it is not.
    """
    return {
        "model_loading_config": {"model_id": settings.model, "model_source": settings.source or settings.model},
        "accelerator_type": settings.accelerator or None,
        "engine_kwargs": {**settings.engine, "enable_log_requests": False},
        "deployment_config": {
            "autoscaling_config": {
                "min_replicas": settings.min_replicas,
                "max_replicas": settings.max_replicas,
                "target_ongoing_requests": settings.target_ongoing_requests,
            },
            "max_ongoing_requests": settings.max_ongoing_requests,
            "max_queued_requests": settings.max_queued_requests,
            "ray_actor_options": {"num_cpus": settings.cpus},
        },
        "placement_group_config": {"bundles": [{"CPU": 1}]} if settings.device == "cpu" else None,
        "experimental_configs": {"stream_batching_interval_ms": 0},
        "runtime_env": {"env_vars": settings.environment},
    }


class ResponseStream(Protocol):
    """The responses of a streaming call: lists of server-sent events, a complete answer, or an error."""

    def __anext__(self) -> Awaitable[object]: ...

    def cancel(self) -> None: ...


ChatCall: TypeAlias = Callable[[Mapping[str, Any]], ResponseStream]
"""Starts a call with the body of a chat completion."""


def chat_call(handle: "DeploymentHandle[Any]") -> ChatCall:
    """The chat method of a deployment of `ray.serve.llm`."""
    from ray.serve.llm.openai_api_models import ChatCompletionRequest

    streaming = handle.options(stream=True).chat

    def start(body: Mapping[str, Any]) -> ResponseStream:
        return cast(ResponseStream, streaming.remote(ChatCompletionRequest(**body)))

    return start


class HandleClient:
    """A client of one deployed model, with the methods of `rag_core.models.endpoint.Client`.

    `first_token_timeout`, in seconds, limits the time before the first piece, including the wait for a free replica,
    and the whole duration of a completion. `stall_timeout` limits the time between two pieces. A call that loses its
    replica before the first piece is repeated once. All calls share `breaker`; the default is a new one.

    Raises GenerationError if a call fails, RefusedError if the engine rejects the messages, OverloadedError if the
    queue is full, and CircuitOpenError after repeated failures.
    """

    def __init__(
        self,
        chat: ChatCall,
        *,
        model: str,
        first_token_timeout: float,
        stall_timeout: float,
        breaker: Breaker | None = None,
    ) -> None:
        self._chat, self._model = chat, model
        self._first_token_timeout, self._stall_timeout = first_token_timeout, stall_timeout
        self._breaker = breaker or Breaker(f"the deployment of {model}")

    async def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[CompletionDelta, None]:
        """Yields the answer in pieces. Closing the generator cancels the call, and so the engine's work."""
        call = self._build_call(messages, temperature, max_tokens, STREAM_FIELDS)
        async with aclosing(read_deltas(call.stream_chunks())) as deltas:
            async for delta in deltas:
                yield delta

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        """The most likely answer, which follows the JSON `schema` if there is one."""
        return await self._build_call(messages, 0.0, max_tokens, answer_fields(schema, logprobs)).complete()

    def _build_call(
        self, messages: Sequence[ChatMessage], temperature: float, max_tokens: int, fields: Mapping[str, Any]
    ) -> "_StreamingCall":
        body = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
            **fields,
        }
        return _StreamingCall(
            chat=self._chat,
            breaker=self._breaker,
            body=body,
            first_token_timeout=self._first_token_timeout,
            stall_timeout=self._stall_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _StreamingCall:
    """One call and its responses."""

    chat: ChatCall
    breaker: Breaker
    body: Mapping[str, Any]
    first_token_timeout: float
    stall_timeout: float

    async def complete(self) -> Completion:
        with self.breaker.protect():
            async with aclosing(self._stream_texts()) as stream:
                texts = [text async for text in stream]
            completion = self._parse(CompletionBody, "".join(texts))
        return Completion(text=completion.text, logprobs=completion.alternatives)

    async def stream_chunks(self) -> AsyncGenerator[CompletionChunk, None]:
        is_complete = False
        with self.breaker.protect():
            async with aclosing(self._stream_texts()) as stream:
                async for text in stream:
                    if text == DONE:
                        is_complete = True
                        continue
                    chunk = self._parse(CompletionChunk, text)
                    yield chunk
                    is_complete = is_complete or bool(chunk.finish)
            if not is_complete:
                raise self._call_error("ended the stream before the answer was complete")

    async def _stream_texts(self) -> AsyncGenerator[str, None]:
        """Yields JSON texts, and `DONE`."""
        async with aclosing(self._stream_responses()) as responses:
            async for response in responses:
                for text in self._split_events(response):
                    yield text

    async def _stream_responses(self) -> AsyncGenerator[object, None]:
        responses, response = await self._start()
        try:
            while response is not None:
                yield response
                response = await self._next(responses, self.stall_timeout)
        except (GeneratorExit, asyncio.CancelledError):
            responses.cancel()
            raise

    async def _start(self) -> tuple[ResponseStream, object]:
        """Starts the call; repeats it once if its replica is lost. Returns it with its first response."""
        deadline = asyncio.get_running_loop().time() + self.first_token_timeout
        try:
            return await self._start_once(self.first_token_timeout)
        except GenerationError as error:
            if not isinstance(error.__cause__, _REPLICA_LOST):
                raise
        await asyncio.sleep(RETRY_AFTER)
        return await self._start_once(max(0.0, deadline - asyncio.get_running_loop().time()))

    async def _start_once(self, timeout: float) -> tuple[ResponseStream, object]:
        responses = self.chat(self.body)
        try:
            return responses, await self._next(responses, timeout)
        except asyncio.CancelledError:
            responses.cancel()
            raise

    async def _next(self, responses: ResponseStream, timeout: float) -> object:
        """The next response, or None after the last one."""
        try:
            async with asyncio.timeout(timeout) as limit:
                return await anext(responses)
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError as error:
            if is_task_cancelled():
                raise
            raise self._call_error("cancelled the call") from error
        except BackPressureError as error:
            raise OverloadedError(f"{self._deployment}: its queue is full") from error
        except Exception as error:  # replicas can raise anything, and some modes of Serve pass it on unchanged
            if limit.expired():
                responses.cancel()
                raise self._call_error(f"sent no answer within {timeout:.3g} s") from error
            raise self._call_error(f"broke off: {type(error).__name__}") from error

    def _split_events(self, response: object) -> Iterator[str]:
        """Yields the data of each server-sent event."""
        match response:
            case str():
                yield from (line.removeprefix(_DATA) for line in response.split("\n") if line.startswith(_DATA))
            case list():
                for part in response:
                    yield from self._split_events(part)
            case BaseModel():
                yield response.model_dump_json()
            case _:
                raise self._call_error(f"sent an invalid event of type {type(response).__name__}")

    def _parse(self, model: type[B], text: str) -> B:
        body = parse_body(model, text)
        if isinstance(body, EndpointFailure):
            kind = RefusedError if body.status in _REFUSALS else GenerationError
            reason = redact_reason(body.reason, self.body["messages"])
            raise kind(f"{self._deployment} refused with {body.status}: {reason}")
        if body is None:
            raise self._call_error("sent an invalid chat completion")
        return body

    def _call_error(self, reason: str) -> GenerationError:
        return GenerationError(f"{self._deployment} {reason}")

    @property
    def _deployment(self) -> str:
        return f"the deployment of {self.body['model']}"
