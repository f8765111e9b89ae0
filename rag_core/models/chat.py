"""The client of language models with OpenAI's chat completions: streamed or whole, over HTTP or a deployment's handle.

A transport sends the bodies of requests. The client has the rest: timeouts, repetitions, and the reading of answers.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from math import exp
from typing import Any, Protocol, TypeAlias, TypeVar

import stamina
from pydantic import BaseModel

from rag_core.errors import GenerationError
from rag_core.events import Usage
from rag_core.models.chat_bodies import (
    STREAM_FIELDS,
    CompletionBody,
    CompletionChunk,
    EndpointFailure,
    answer_fields,
    parse_body,
)

B = TypeVar("B", bound=BaseModel)
T = TypeVar("T")

ChatMessage: TypeAlias = Mapping[str, str]
"""A message with the keys `role` (system, user or assistant) and `content`."""

_DONE = "[DONE]"
"""The data of the event that ends a stream."""
_FIRST_WAIT, _MAX_WAIT, _JITTER = 0.2, 5.0, 0.1
_END_TIMEOUT = 1.0
"""Seconds to wait, after the chunk with the finish reason, for the usage and the end of the stream."""
_DRAIN_TIMEOUT = 0.05
"""Seconds to wait for the end of a response after its last event: only then can its connection be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionDelta:
    """A piece of an answer. The last one has no text, but the finish reason (`stop`, `length` ...).

    The last one also has the usage, if the endpoint reports it.
    """

    text: str = ""
    finish: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer. `logprobs` holds, for each of its tokens, the likeliest alternatives.

    Each alternative has the natural logarithm of its probability. `logprobs` is empty if they were not requested, or if
    the endpoint sends none. `usage` is None if the endpoint reports none.
    """

    text: str
    logprobs: tuple[Mapping[str, float], ...] = ()
    usage: Usage | None = None


class Streamer(Protocol):
    """A language model that streams answers."""

    def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[CompletionDelta, None]: ...


class Completer(Protocol):
    """A language model that returns whole answers."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        """Raises GenerationError if the request is refused or late, or if the answer is invalid.

        An answer that reaches `max_tokens` is returned as it is: a caller that needs one token requests only one.
        """
        ...


class Transport(Protocol):
    """The way to one model: an endpoint's URL, or the handle of a deployment. Errors call the other side `name`."""

    @property
    def name(self) -> str: ...

    def open(self, body: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Sends a request. Yields the data of each event of a streamed answer, or the text of a whole one.

        Raises RetryableError if the same request can succeed, and other errors of the GenerationError family if not.
        Closing the generator ends the work at the other side.
        """
        ...

    def refusal_error(self, failure: EndpointFailure, body: Mapping[str, Any]) -> GenerationError:
        """The error for a response to `body` that reports a failure. It quotes neither the key nor the prompt."""
        ...


class RetryableError(GenerationError):
    """A failure after which the same request can succeed, `after` some seconds if they are known.

    Callers of ChatClient see it as a plain GenerationError.
    """

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


def word_probability(alternatives: Mapping[str, float], word: str) -> float:
    """The probability of a word: the sum over its tokens, which differ in case and surrounding blanks."""
    return sum(exp(logprob) for token, logprob in alternatives.items() if token.strip().lower() == word)


class ChatClient:
    """A client of one model.

    `first_token_timeout`, in seconds, limits all attempts together until the first token, or until the end of a whole
    completion. `stall_timeout`, in seconds, limits the wait between two pieces of a stream. `protect` surrounds each
    answer, with all its attempts: a circuit breaker's method.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        model: str,
        first_token_timeout: float,
        stall_timeout: float,
        attempts: int,
        protect: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._transport, self._model = transport, model
        self._first_token_timeout, self._stall_timeout = first_token_timeout, stall_timeout
        self._attempts, self._protect = attempts, protect

    async def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[CompletionDelta, None]:
        """Yields the answer in pieces. The request is repeated only until the first token.

        Raises GenerationError if the request is refused or late, or if the answer is cut off or invalid. A reader that
        stops early must close the generator: that ends the work at the other side.
        """
        body = {**self._request_body(messages, temperature, max_tokens), **STREAM_FIELDS}
        with self._protect(), _hide_retryable_errors():
            delta, others = await self._retry_request(partial(self._start_stream, body))
            async with aclosing(others):
                while not delta.finish:
                    yield delta
                    delta = await anext(others)
        yield delta  # after the block: a reader that stops here has read a complete answer

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        """Returns the likeliest answer, in the JSON `schema` if there is one. Raises GenerationError as `stream`."""
        body = self._request_body(messages, 0.0, max_tokens) | answer_fields(schema, logprobs)
        with self._protect(), _hide_retryable_errors():
            return await self._retry_request(partial(self._request_completion, body))

    def _request_body(self, messages: Sequence[ChatMessage], temperature: float, max_tokens: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
        }

    async def _retry_request(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._first_token_timeout) as limit:
                async for attempt in stamina.retry_context(
                    partial(_should_retry, limit),
                    attempts=self._attempts,
                    timeout=None,
                    wait_initial=_FIRST_WAIT,
                    wait_max=_MAX_WAIT,
                    wait_jitter=_JITTER,
                ):
                    with attempt:
                        return await request()
        except TimeoutError as error:
            raise self._error(f"sent no answer within {self._first_token_timeout:g} s") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _start_stream(
        self, body: Mapping[str, Any]
    ) -> tuple[CompletionDelta, AsyncGenerator[CompletionDelta, None]]:
        """Sends the request. Returns the first delta and the generator of the others."""
        deltas = self._read_deltas(body)
        return await anext(deltas), deltas

    async def _request_completion(self, body: Mapping[str, Any]) -> Completion:
        async with aclosing(self._transport.open(body)) as texts:
            text = "".join([text async for text in texts])
        completion = self._parse(CompletionBody, text, body)
        return Completion(text=completion.text, logprobs=completion.alternatives, usage=completion.token_usage)

    async def _read_deltas(self, body: Mapping[str, Any]) -> AsyncGenerator[CompletionDelta, None]:
        """Reads chunks up to the one with the finish reason, and any that follow it within `_END_TIMEOUT`."""
        finish, usage, has_text, end = "", None, False, None
        async with aclosing(self._transport.open(body)) as events:
            while (data := await self._read_data(events, has_text, end)) != _DONE:
                chunk = self._parse(CompletionChunk, data, body)
                if chunk.text:
                    yield CompletionDelta(text=chunk.text)
                    has_text = True
                if chunk.finish and end is None:
                    end = asyncio.get_running_loop().time() + _END_TIMEOUT
                finish, usage = chunk.finish or finish, chunk.token_usage or usage
            with suppress(TimeoutError, GenerationError):
                async with asyncio.timeout(_DRAIN_TIMEOUT):
                    await anext(events, None)
        yield CompletionDelta(finish=finish or "stop", usage=usage)

    async def _read_data(self, events: AsyncGenerator[str, None], has_text: bool, end: float | None) -> str:
        """The data of the next event.

        `end` is the time by the loop's clock until which a finished answer is read, None while it is unfinished.
        """
        stalled = asyncio.get_running_loop().time() + self._stall_timeout if has_text else None
        try:
            async with asyncio.timeout_at(end or stalled):
                return await anext(events)
        except (TimeoutError, StopAsyncIteration, GenerationError) as error:
            if end:
                return _DONE
            match error:
                case TimeoutError():
                    reason = f"sent no further piece of its answer within {self._stall_timeout:g} s"
                    raise self._error(reason) from error
                case StopAsyncIteration():
                    reason = f"{self._transport.name} ended the stream before the answer was complete"
                    raise RetryableError(reason) from error
                case _:
                    raise

    def _parse(self, model: type[B], text: str, body: Mapping[str, Any]) -> B:
        parsed = parse_body(model, text)
        if isinstance(parsed, EndpointFailure):
            raise self._transport.refusal_error(parsed, body)
        if parsed is None:
            raise self._error(f"sent an invalid chat completion{' chunk' if 'stream' in body else ''}")
        return parsed

    def _error(self, reason: str) -> GenerationError:
        return GenerationError(f"{self._transport.name} {reason}")


def _should_retry(limit: asyncio.Timeout, error: Exception) -> bool | float:
    """True if the error is retryable; the seconds to wait, if they are known and that many are left."""
    if not isinstance(error, RetryableError) or error.after is None:
        return isinstance(error, RetryableError)
    seconds_left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
    return error.after if error.after < seconds_left else False


@contextmanager
def _hide_retryable_errors() -> Iterator[None]:
    """Turns a retryable error of the last attempt into a plain GenerationError."""
    try:
        yield
    except RetryableError as error:
        raise GenerationError(str(error)) from error
