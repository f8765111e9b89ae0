"""A language model inside the graph: vLLM under `ray.serve.llm`, asked through its handle instead of over HTTP.

What Ray, Serve or the engine raise, or tell in the place of an answer, is ours from here on.
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
from rag_core.errors import GenerationError, OverloadedError, RagError, RefusedError
from rag_core.models.chat import DONE, STREAMED, Chunk, Failure, Whole, answer_form, understood, unquoted
from rag_core.models.endpoint import ChatMessage, Completion, Delta, deltas
from serve.models.remote import RETRY_AFTER, is_ours

if TYPE_CHECKING:
    from ray.serve.deployment import Application
    from ray.serve.handle import DeploymentHandle

B = TypeVar("B", bound=BaseModel)

_DATA = "data: "
_REFUSALS = frozenset({400, 413, 422})
"""What the engine says of a body that it would refuse a second time."""
_GONE = (RayActorError, DeploymentUnavailableError, ReplicaUnavailableError, asyncio.CancelledError)
"""Raised for a replica, by whoever would have called it: the same may succeed with another one."""


class LlmSettings(Section):
    """One model, and how many replicas of vLLM serve it."""

    model: str = Field(min_length=1, description="the name that it is asked by")
    source: str = Field("", description="a folder, or a name on the model hub; without it that is `model`")
    device: Literal["cuda", "cpu"] = "cuda"
    accelerator: str = Field("", description="the kind of GPU as Ray names it, such as L4; without it any")
    engine: dict[str, Any] = Field({}, description="vLLM's own arguments, such as max_model_len")
    environment: dict[str, str] = Field({}, description="variables of its processes")
    cpus: float = Field(1.0, gt=0, description="of a replica, besides those of its engine")
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    target_ongoing_requests: float = Field(32, gt=0, description="of a replica; with more there will be more replicas")
    max_ongoing_requests: int = Field(64, ge=1, description="of a replica; the others wait with whoever asks")
    max_queued_requests: int = Field(256, ge=1, description="that wait with one who asks; the others are refused")


def llm_deployment(settings: LlmSettings) -> "Application":
    """To be bound into a graph; its handle makes a `HandleClient`. Needs vLLM."""
    from ray.serve.llm import LLMConfig, build_llm_deployment

    return build_llm_deployment(LLMConfig(**llm_config(settings)))


def llm_config(settings: LlmSettings) -> dict[str, Any]:
    """The fields of LLMConfig. Each token is sent at once, which Ray would hold back for 50 ms; prompts are never
    logged; how much is done at a time has a limit, where Ray has none."""
    return {
        "model_loading_config": {"model_id": settings.model, "model_source": settings.source or settings.model},
        "accelerator_type": settings.accelerator or None,
        "engine_kwargs": {**settings.engine, "enable_log_requests": False},
        "deployment_config": _replicas(settings),
        "placement_group_config": {"bundles": [{"CPU": 1}]} if settings.device == "cpu" else None,
        "experimental_configs": {"stream_batching_interval_ms": 0},
        "runtime_env": {"env_vars": settings.environment},
    }


def _replicas(settings: LlmSettings) -> dict[str, Any]:
    return {
        "autoscaling_config": {
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.target_ongoing_requests,
        },
        "max_ongoing_requests": settings.max_ongoing_requests,
        "max_queued_requests": settings.max_queued_requests,
        "ray_actor_options": {"num_cpus": settings.cpus},
    }


class Responses(Protocol):
    """What a streaming call yields: of a chat lists of server-sent events, a whole answer, or an error."""

    def __anext__(self) -> Awaitable[object]: ...

    def cancel(self) -> None: ...


Chat: TypeAlias = Callable[[Mapping[str, Any]], Responses]
"""Begins a call with the body of a chat completion."""


def chat(handle: "DeploymentHandle[Any]") -> Chat:
    """Of a deployment of `ray.serve.llm`."""
    from ray.serve.llm.openai_api_models import ChatCompletionRequest

    streaming = handle.options(stream=True).chat

    def begun(body: Mapping[str, Any]) -> Responses:
        return cast(Responses, streaming.remote(ChatCompletionRequest(**body)))

    return begun


class HandleClient:
    """One model of a deployment: what `models.endpoint.Client` is for one over HTTP.

    `first_token_timeout`, in seconds, is for all that comes before the first piece, waiting for a free replica too, and
    of a whole completion to its end; `stall_timeout` is for what lies between two pieces. A call that lost its replica
    before the first piece is made once more. `breaker`, one of its own if there is none, is for all calls.

    What fails is a GenerationError: a RefusedError if the engine does not take the messages. OverloadedError if as many
    calls wait as may, CircuitOpenError if too many failed.
    """

    def __init__(
        self,
        chat: Chat,
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
    ) -> AsyncGenerator[Delta, None]:
        """Whoever stops reading cancels the call, which ends the work of the engine."""
        exchange = self._exchange({**self._body(messages, temperature, max_tokens), **STREAMED})
        async with aclosing(deltas(exchange.chunks())) as told:
            async for delta in told:
                yield delta

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        """The likeliest answer, of the JSON `schema` if there is one."""
        body = self._body(messages, 0.0, max_tokens) | answer_form(schema, logprobs)
        return await self._exchange(body).completion()

    def _body(self, messages: Sequence[ChatMessage], temperature: float, max_tokens: int) -> dict[str, Any]:
        told = [dict(message) for message in messages]
        return {"model": self._model, "messages": told, "temperature": temperature, "max_tokens": max_tokens}

    def _exchange(self, body: Mapping[str, Any]) -> "_Exchange":
        return _Exchange(
            chat=self._chat,
            breaker=self._breaker,
            body=body,
            first_token_timeout=self._first_token_timeout,
            stall_timeout=self._stall_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Exchange:
    """One call, and the reading of what comes back."""

    chat: Chat
    breaker: Breaker
    body: Mapping[str, Any]
    first_token_timeout: float
    stall_timeout: float

    async def completion(self) -> Completion:
        with self.breaker.protect():
            async with aclosing(self._told()) as told:
                texts = [text async for text in told]
            whole = self._understood(Whole, "".join(texts))
        return Completion(text=whole.text, logprobs=whole.alternatives)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        ended = False
        with self.breaker.protect():
            async with aclosing(self._told()) as told:
                async for text in told:
                    if text == DONE:
                        ended = True
                        continue
                    chunk = self._understood(Chunk, text)
                    yield chunk
                    ended = ended or bool(chunk.finish)
            if not ended:
                raise self._failed("cut its answer short")

    async def _told(self) -> AsyncGenerator[str, None]:
        """JSON, or that it is done."""
        async with aclosing(self._received()) as received:
            async for each in received:
                for text in self._texts(each):
                    yield text

    async def _received(self) -> AsyncGenerator[object, None]:
        responses, received = await self._begun()
        try:
            while received is not None:
                yield received
                received = await self._next(responses, self.stall_timeout)
        except (GeneratorExit, asyncio.CancelledError):
            responses.cancel()
            raise

    async def _begun(self) -> tuple[Responses, object]:
        """The call, and what it yields first."""
        until = asyncio.get_running_loop().time() + self.first_token_timeout
        try:
            return await self._tried(self.first_token_timeout)
        except GenerationError as error:
            if not isinstance(error.__cause__, _GONE):
                raise
        await asyncio.sleep(RETRY_AFTER)
        return await self._tried(max(0.0, until - asyncio.get_running_loop().time()))

    async def _tried(self, patience: float) -> tuple[Responses, object]:
        responses = self.chat(self.body)
        try:
            return responses, await self._next(responses, patience)
        except asyncio.CancelledError:
            responses.cancel()
            raise

    async def _next(self, responses: Responses, patience: float) -> object:
        """None at the end."""
        try:
            async with asyncio.timeout(patience) as limit:
                return await anext(responses)
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError as error:
            if is_ours():
                raise
            raise self._failed("ended the call") from error
        except Exception as error:  # a replica raises what it likes, and some modes of Serve hand it on as it is
            if limit.expired():
                responses.cancel()
                raise self._failed(f"gave no piece of an answer within {patience:.3g} s") from error
            raise self._ours(error) from error

    def _ours(self, error: Exception) -> RagError:
        if isinstance(error, BackPressureError):
            return OverloadedError(self._said("has as many calls waiting as may wait"))
        return self._failed(f"broke off: {type(error).__name__}")

    def _texts(self, received: object) -> Iterator[str]:
        match received:
            case str():
                yield from (line.removeprefix(_DATA) for line in received.split("\n") if line.startswith(_DATA))
            case list():
                for each in received:
                    yield from self._texts(each)
            case BaseModel():
                yield received.model_dump_json()
            case _:
                raise self._failed(f"sent what is no event, a {type(received).__name__}")

    def _understood(self, form: type[B], text: str) -> B:
        told = understood(form, text)
        if isinstance(told, Failure):
            raise self._refused(told)
        if told is None:
            raise self._failed("sent a piece that is no chat completion")
        return told

    def _refused(self, told: Failure) -> GenerationError:
        kind = RefusedError if told.status in _REFUSALS else GenerationError
        return kind(self._said(f"refused with {told.status}: {unquoted(told.reason, self.body['messages'])}"))

    def _failed(self, what: str) -> GenerationError:
        return GenerationError(self._said(what))

    def _said(self, what: str) -> str:
        return f"the deployment of {self.body['model']} {what}"
