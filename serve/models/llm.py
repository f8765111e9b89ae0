"""A language model in the graph, served by vLLM under `ray.serve.llm`. It is called by its handle, not over HTTP.

Errors of Ray, Serve and the engine become GenerationErrors here, including errors that arrive as a response.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from pydantic import BaseModel, Field

from rag_core.breaker import Breaker
from rag_core.config import Section
from rag_core.errors import GenerationError, RefusedError
from rag_core.models.chat import ChatClient, RetryableError
from rag_core.models.chat_bodies import EndpointFailure, describe_refusal
from serve.models.remote import RETRY_AFTER, translate_call_errors

if TYPE_CHECKING:
    from ray.serve.deployment import Application
    from ray.serve.handle import DeploymentHandle

_DATA = "data: "
_REFUSALS = frozenset({400, 413, 422})
"""The statuses of an engine that would reject the same request again."""
_ATTEMPTS = 2


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
    max_surge_percent: int = Field(
        0, ge=0, le=100, description="percent of the replicas that can start before the replicas that they replace stop"
    )


def llm_deployment(settings: LlmSettings) -> "Application":
    """An application to bind into a graph; `deployment_client` calls its handle. Requires vLLM."""
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
            "max_surge_percent": settings.max_surge_percent,
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


def deployment_client(
    chat: ChatCall, *, model: str, first_token_timeout: float, stall_timeout: float, breaker: Breaker
) -> ChatClient:
    """A client of one deployed model. The wait for a free replica counts as a wait for the first token.

    A call that loses its replica before the first piece is repeated once. Besides GenerationError, the client raises
    RefusedError if the engine rejects the messages, OverloadedError if the queue is full, and CircuitOpenError after
    repeated failures.
    """
    return ChatClient(
        HandleTransport(chat, model),
        model=model,
        first_token_timeout=first_token_timeout,
        stall_timeout=stall_timeout,
        attempts=_ATTEMPTS,
        protect=breaker.protect,
    )


class HandleTransport:
    """A Transport by the handle of a model's deployment."""

    def __init__(self, chat: ChatCall, model: str) -> None:
        self._chat, self.name = chat, f"the deployment of {model}"

    async def open(self, body: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Raises OverloadedError if the queue is full. Closing the generator cancels the call."""
        async with aclosing(self._call(body)) as responses:
            async for response in responses:
                for text in self._split_events(response):
                    yield text

    def refusal_error(self, failure: EndpointFailure, body: Mapping[str, Any]) -> GenerationError:
        kind = RefusedError if failure.status in _REFUSALS else GenerationError
        return kind(f"{self.name} {describe_refusal(failure, body['messages'])}")

    async def _call(self, body: Mapping[str, Any]) -> AsyncGenerator[object, None]:
        responses = self._chat(body)
        try:
            while (response := await self._next(responses)) is not None:
                yield response
        except GeneratorExit:
            responses.cancel()
            raise

    async def _next(self, responses: ResponseStream) -> object:
        """The next response, or None after the last one."""
        with translate_call_errors(self.name, responses.cancel, self._failure_error):
            try:
                return await anext(responses)
            except StopAsyncIteration:
                return None

    def _failure_error(self, failure: str, is_lost: bool) -> GenerationError:
        reason = f"{self.name} broke off: {failure}"  # without the message, which can quote the prompt
        return RetryableError(reason, RETRY_AFTER) if is_lost else GenerationError(reason)

    def _split_events(self, response: object) -> Iterator[str]:
        """Yields the data of each server-sent event, or the whole answer."""
        match response:
            case str():
                yield from (line.removeprefix(_DATA) for line in response.split("\n") if line.startswith(_DATA))
            case list():
                for part in response:
                    yield from self._split_events(part)
            case BaseModel():
                yield response.model_dump_json()
            case _:
                raise GenerationError(f"{self.name} sent an invalid event of type {type(response).__name__}")
