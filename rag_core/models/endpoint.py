"""Client of an OpenAI-compatible endpoint: chat completions, streamed or whole.

Every failure is a GenerationError. It holds the endpoint's own reason, but never the key or the prompt.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from math import exp
from typing import Any, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import httpx2
import stamina

from rag_core.errors import ConfigError, GenerationError
from rag_core.events import Usage
from rag_core.models.chat import (
    DONE,
    STREAM_FIELDS,
    CompletionBody,
    CompletionChunk,
    EndpointFailure,
    answer_fields,
    parse_body,
    parse_failure,
    redact_reason,
)

T = TypeVar("T")

ChatMessage: TypeAlias = Mapping[str, str]
"""A message with the keys `role` (system, user or assistant) and `content`."""

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_TRANSIENT_ERRORS = (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError)
_FIRST_WAIT, _MAX_WAIT, _JITTER = 0.2, 5.0, 0.1
_OPENAI_HOST = "api.openai.com"
_MAX_PORT = 65_535
_END_TIMEOUT = 1.0
"""Seconds to wait, after the chunk with the finish reason, for the usage and the end of the stream."""
_DRAIN_TIMEOUT = 0.05
"""Seconds to wait for the end of a response after its last event: only then can its connection be used again."""
_MAX_ERROR_BYTES, _MAX_TYPE_LENGTH = 65_536, 32
_VALID_KEY = re.compile(r"[!-~]*")


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
    the endpoint sends none.
    """

    text: str
    logprobs: tuple[Mapping[str, float], ...] = ()


class Completer(Protocol):
    """A language model that returns whole answers, behind an endpoint or a deployment."""

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


def word_probability(alternatives: Mapping[str, float], word: str) -> float:
    """The probability of a word: the sum over its tokens, which differ in case and surrounding blanks."""
    return sum(exp(logprob) for token, logprob in alternatives.items() if token.strip().lower() == word)


async def read_deltas(chunks: AsyncGenerator[CompletionChunk, None]) -> AsyncGenerator[CompletionDelta, None]:
    """Yields the deltas of the chunks, and closes the chunks."""
    finish, usage = "", None
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.text:
                yield CompletionDelta(text=chunk.text)
            finish, usage = chunk.finish or finish, chunk.token_usage or usage
        yield CompletionDelta(finish=finish or "stop", usage=usage)


class EndpointClient:
    """A client for one model of one endpoint.

    `api_key_env` names the environment variable that holds the key. If it is empty, only OpenAI's own host receives a
    key: OPENAI_API_KEY. `first_token_timeout`, in seconds, limits all attempts together until the first token, or until
    the end of a whole completion. `stall_timeout`, in seconds, limits the wait between two events of a stream.
    Connections are kept open, and closed with their event loop.

    Raises ConfigError if `base_url` is not a URL or contains a password. Raises it too if the key has characters that
    a header cannot hold. Requests raise ConfigError if a proxy of the environment is not a URL.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key_env: str,
        first_token_timeout: float,
        stall_timeout: float,
        attempts: int,
    ) -> None:
        self._model, self._url = model, _parse_endpoint_url(base_url)
        # OPENAI_API_KEY must not be sent to any other host
        variable = api_key_env or ("OPENAI_API_KEY" if self._url.host == _OPENAI_HOST else "")
        self._key = os.environ.get(variable, "").strip()
        if not _VALID_KEY.fullmatch(self._key):
            raise ConfigError(f"the key in {variable} must be printable ASCII without blanks")
        self._first_token_timeout, self._stall_timeout = first_token_timeout, stall_timeout
        self._attempts = attempts
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[CompletionDelta, None]:
        """Yields the answer in pieces. It is retried only until the first token.

        Raises GenerationError if the request is refused or late, or if the answer is cut off or invalid. A reader that
        stops early must close the generator: that closes the response, which ends the work at the endpoint.
        """
        body = {**self._request_body(messages, temperature, max_tokens), **STREAM_FIELDS}
        with _hide_transient_errors():
            exchange = await self._open_exchange(body)
            first, others = await self._retry_request(exchange.start_stream)
            async with aclosing(others):
                yield first
                async for delta in others:
                    yield delta

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
        exchange = await self._open_exchange(body)
        with _hide_transient_errors():
            return await self._retry_request(exchange.request_completion)

    def _request_body(self, messages: Sequence[ChatMessage], temperature: float, max_tokens: int) -> dict[str, Any]:
        # OpenAI's newer models reject the name that other endpoints use
        limit = "max_completion_tokens" if self._url.host == _OPENAI_HOST else "max_tokens"
        return {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            limit: max_tokens,
        }

    async def _open_exchange(self, body: Mapping[str, Any]) -> "_Exchange":
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = await _Pool.open(self._key)
        return _Exchange(
            http=self._pools[loop].http, url=self._url, key=self._key, body=body, stall_timeout=self._stall_timeout
        )

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
            timeout = f"{self._first_token_timeout:g} s"
            raise GenerationError(f"{_describe_endpoint(self._url)} sent no answer within {timeout}") from error
        raise AssertionError("unreachable: the last attempt returns or raises")


def _should_retry(limit: asyncio.Timeout, error: Exception) -> bool | float:
    """True if the error is transient; the seconds to wait, if the endpoint named them and that many are left."""
    if not isinstance(error, _TransientError) or error.after is None:
        return isinstance(error, _TransientError)
    seconds_left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
    return error.after if error.after < seconds_left else False


class _TransientError(GenerationError):
    """A failure after which the same request can succeed, `after` some seconds if the endpoint names them."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason, after)
        self.after = after

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def _hide_transient_errors() -> Iterator[None]:
    """Turns a transient error of the last attempt into a plain GenerationError."""
    try:
        yield
    except _TransientError as error:
        raise GenerationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Pool:
    """The connections of one event loop. They are closed when `keeper` is."""

    http: httpx2.AsyncClient
    keeper: AsyncGenerator[None, None]

    @classmethod
    async def open(cls, key: str) -> "_Pool":
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            http = httpx2.AsyncClient(headers=headers, timeout=None)  # the waits here have timeouts of their own
        except (httpx2.InvalidURL, ValueError, ImportError) as error:
            # the value is not shown: it can hold a password
            raise ConfigError("HTTP_PROXY, HTTPS_PROXY and ALL_PROXY must be URLs of http or https, if set") from error
        keeper = _close_with_loop(http)
        await anext(keeper)
        return cls(http, keeper)


async def _close_with_loop(http: httpx2.AsyncClient) -> AsyncGenerator[None, None]:
    """Closes the client with the event loop. A loop that ends closes its asynchronous generators: its only signal."""
    try:
        yield
    finally:
        await http.aclose()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Exchange:
    """One request, which can be sent several times, and the parsing of its responses."""

    http: httpx2.AsyncClient
    url: httpx2.URL
    key: str
    body: Mapping[str, Any]
    stall_timeout: float

    async def start_stream(self) -> tuple[CompletionDelta, AsyncGenerator[CompletionDelta, None]]:
        """Sends the request. Returns the first delta and the generator of the others."""
        deltas = read_deltas(self._read_chunks())
        return await anext(deltas), deltas

    async def request_completion(self) -> Completion:
        async with self._send() as response:
            try:
                completion = parse_body(CompletionBody, await response.aread())
            except httpx2.HTTPError as error:
                raise self._connection_error(error) from error
        if isinstance(completion, EndpointFailure):
            raise self._refusal_error(completion)
        if completion is None:
            raise self._endpoint_error("sent an invalid chat completion")
        return Completion(text=completion.text, logprobs=completion.alternatives)

    @asynccontextmanager
    async def _send(self) -> AsyncIterator[httpx2.Response]:
        """Sends the request and yields the response, which has status 200."""
        try:
            request = self.http.build_request("POST", self.url, json=dict(self.body))
        except UnicodeEncodeError:
            # not chained: that error holds the whole prompt
            reason = "was not called: the prompt must be Unicode text, got half a surrogate pair"
            raise self._endpoint_error(reason) from None
        try:
            response = await self.http.send(request, stream=True)
        except (httpx2.HTTPError, ExceptionGroup) as error:  # a proxy at a port above 65,535 causes a group
            raise self._connection_error(error) from error
        async with aclosing(response):
            if response.status_code != httpx2.codes.OK:
                raise self._refusal_error(await self._read_failure(response), _parse_retry_after(response))
            yield response

    async def _read_chunks(self) -> AsyncGenerator[CompletionChunk, None]:
        """Yields chunks up to the one with the finish reason, and any that follow it within `_END_TIMEOUT`."""
        has_text, end = False, None
        async with self._send() as response:
            await self._check_content_type(response)
            stream = cast(AsyncGenerator[httpx2.ServerSentEvent, None], aiter(httpx2.EventSource(response)))
            async with aclosing(stream) as events:
                while (data := await self._read_data(events, has_text, end)) != DONE:
                    chunk = parse_body(CompletionChunk, data)
                    if isinstance(chunk, EndpointFailure):
                        raise self._refusal_error(chunk)
                    if chunk is None:
                        raise self._endpoint_error("sent an invalid chat completion chunk")
                    yield chunk
                    has_text = has_text or bool(chunk.text)
                    if chunk.finish and end is None:
                        end = asyncio.get_running_loop().time() + _END_TIMEOUT
                with suppress(TimeoutError, httpx2.HTTPError):
                    async with asyncio.timeout(_DRAIN_TIMEOUT):
                        await anext(events, None)

    async def _read_data(
        self, events: AsyncGenerator[httpx2.ServerSentEvent, None], has_text: bool, end: float | None
    ) -> str:
        """The data of the next event that is not a keep-alive.

        `end` is the time by the loop's clock until which a finished answer is read, None while it is unfinished.
        """
        stalled = asyncio.get_running_loop().time() + self.stall_timeout if has_text else None
        try:
            async with asyncio.timeout_at(end or stalled):
                while True:
                    event = await anext(events)
                    if event.event != "ping" and (data := event.data.strip()) not in ("", "{}"):
                        return data
        except (TimeoutError, StopAsyncIteration, httpx2.HTTPError) as error:
            if end:
                return DONE
            match error:
                case TimeoutError():
                    reason = f"sent no further piece of its answer within {self.stall_timeout:g} s"
                    raise self._endpoint_error(reason) from error
                case StopAsyncIteration():
                    raise self._transient_error("ended the stream before the answer was complete") from error
                case _:
                    raise self._connection_error(error) from error

    async def _check_content_type(self, response: httpx2.Response) -> None:
        """Raises GenerationError if the response is not a stream, with the reason in its body if it has one."""
        media_type = response.headers.get("content-type", "")
        if media_type.lower().startswith("text/event-stream"):
            return
        failure = await self._read_failure(response)
        if failure.is_error:
            raise self._refusal_error(failure)
        media_type = media_type[:_MAX_TYPE_LENGTH] or "no content type"
        raise self._endpoint_error(f"must answer with text/event-stream, got {media_type}")

    async def _read_failure(self, response: httpx2.Response) -> EndpointFailure:
        body = b""
        try:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MAX_ERROR_BYTES:
                    break
        except httpx2.HTTPError as error:
            raise self._connection_error(error) from error
        return parse_failure(body, response.status_code)

    def _refusal_error(self, failure: EndpointFailure, after: float | None = None) -> GenerationError:
        what = f"refused with {failure.status}" if failure.status else "broke off"
        reason = f"{what}: {self._redact(failure.reason)}" if failure.reason else what
        if failure.status in _TRANSIENT_STATUSES:
            return self._transient_error(reason, after)
        return self._endpoint_error(reason)

    def _connection_error(self, error: Exception) -> GenerationError:
        what = "cannot be reached" if isinstance(error, httpx2.ConnectError) else "broke off"
        reason = f"{what}: {type(error).__name__}: {self._redact(str(error))}"
        return self._transient_error(reason) if isinstance(error, _TRANSIENT_ERRORS) else self._endpoint_error(reason)

    def _transient_error(self, reason: str, after: float | None = None) -> GenerationError:
        return _TransientError(f"{_describe_endpoint(self.url)} {reason}", after)

    def _endpoint_error(self, reason: str) -> GenerationError:
        return GenerationError(f"{_describe_endpoint(self.url)} {reason}")

    def _redact(self, reason: str) -> str:
        """Removes the key and quotes of the prompt."""
        return redact_reason(reason.replace(self.key, "***") if self.key else reason, self.body["messages"])


def _parse_retry_after(response: httpx2.Response) -> float | None:
    """The seconds to wait; the header holds seconds or a date. None if it is missing or invalid."""
    value = response.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError):
        return max(0.0, (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    return None


def _parse_endpoint_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url.rstrip("/") + "/chat/completions")
    except httpx2.InvalidURL as error:
        raise ConfigError(f"base_url must be a URL: {error}") from error
    if not url.host:
        raise ConfigError("base_url must name a host, got none")
    if (url.port or 0) > _MAX_PORT:
        raise ConfigError(f"base_url's port must be at most {_MAX_PORT}, got {url.port}")
    if url.userinfo:
        raise ConfigError(
            "base_url must not contain a password: set api_key_env to the name of a variable that holds the key"
        )
    return url


def _describe_endpoint(url: httpx2.URL) -> str:
    return f"the endpoint {url.netloc.decode()}"
