"""A model behind an OpenAI-compatible endpoint: chat completions, streamed or whole.

Whatever goes wrong is a GenerationError with the endpoint's own reason, but without the key and the prompt.
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
from rag_core.models.chat import DONE, STREAMED, Chunk, Failure, Whole, answer_form, failure, understood, unquoted

T = TypeVar("T")

ChatMessage: TypeAlias = Mapping[str, str]
"""`role` is system, user or assistant; and `content`."""

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PASSING = (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError)
_FIRST_WAIT, _LONGEST_WAIT, _JITTER = 0.2, 5.0, 0.1
_OPENAI = "api.openai.com"
_LAST_PORT = 65_535
_REST = 1.0
"""Seconds for what is told after the piece that says why an answer ended: its usage, and that the stream is done."""
_DRAIN = 0.05
"""Seconds for the end of a response after its last piece: a connection that was read to its end is used again."""
_BODY_LENGTH, _KIND_LENGTH = 65_536, 32
_USABLE_KEY = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer. The last one has no text; it says why the answer ended (`stop`, `length` ...), and what it
    took if the endpoint told so."""

    text: str = ""
    finish: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer. `logprobs` has for each of its tokens those that could have stood there, with the natural
    logarithms of their probabilities; it is empty if they were not asked for, or not given."""

    text: str
    logprobs: tuple[Mapping[str, float], ...] = ()


class Completer(Protocol):
    """A language model that gives whole answers, wherever it runs."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        max_tokens: int,
    ) -> Completion:
        """GenerationError if it is refused, late or not understood. What reaches `max_tokens` is given as far as it
        came: whoever asks for a token and its alternatives reads no further."""
        ...


def weight(alternatives: Mapping[str, float], word: str) -> float:
    """The probability of all tokens together that are this word: in capitals, or with a blank, it is another token."""
    return sum(exp(logprob) for token, logprob in alternatives.items() if token.strip().lower() == word)


async def deltas(chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Delta, None]:
    """Closes the chunks."""
    finish, usage = "", None
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.text:
                yield Delta(text=chunk.text)
            finish, usage = chunk.finish or finish, chunk.told_usage or usage
        yield Delta(finish=finish or "stop", usage=usage)


class Client:
    """One model of one endpoint. `api_key_env` names the environment variable that holds the key, if it is set; where
    it is empty, OpenAI's own host is sent OPENAI_API_KEY.

    `first_token_timeout`, in seconds, is for all attempts together, of a whole completion to its end; `stall_timeout`
    is for what lies between two pieces of a stream. Connections are kept, and closed with their event loop.
    ConfigError if `base_url` is no URL or holds a password, or the key what no header may; and of what is asked, if a
    proxy of the environment is no URL.
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
        self._model, self._url = model, _url(base_url)
        self._key = _key(api_key_env, self._url)
        self._first_token_timeout, self._stall_timeout = first_token_timeout, stall_timeout
        self._attempts = attempts
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float, max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        """GenerationError if it is refused, late, cut or not understood; it is tried again until the first word only.
        Whoever stops reading closes the response, which ends the work at the endpoint."""
        body = {**self._body(messages, temperature, max_tokens), **STREAMED}
        with _told_plainly():
            first, others = await self._retried(partial(_begun, await self._exchange(body)))
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
        """The likeliest answer, of the JSON `schema` if there is one. GenerationError as for `stream`."""
        exchange = await self._exchange(self._body(messages, 0.0, max_tokens) | answer_form(schema, logprobs))
        with _told_plainly():
            return await self._retried(exchange.completion)

    def _body(self, messages: Sequence[ChatMessage], temperature: float, max_tokens: int) -> dict[str, Any]:
        # OpenAI's newer models refuse the name that others know
        limit = "max_completion_tokens" if self._url.host == _OPENAI else "max_tokens"
        told = [dict(message) for message in messages]
        return {"model": self._model, "messages": told, "temperature": temperature, limit: max_tokens}

    async def _exchange(self, body: Mapping[str, Any]) -> "_Exchange":
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = await _opened_pool(self._key)
        return _Exchange(
            http=self._pools[loop].http, url=self._url, key=self._key, body=body, stall_timeout=self._stall_timeout
        )

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._first_token_timeout) as limit:
                async for attempt in stamina.retry_context(
                    partial(_wait, limit),
                    attempts=self._attempts,
                    timeout=None,
                    wait_initial=_FIRST_WAIT,
                    wait_max=_LONGEST_WAIT,
                    wait_jitter=_JITTER,
                ):
                    with attempt:
                        return await work()
        except TimeoutError as late:
            patience = f"{self._first_token_timeout:g} s"
            raise GenerationError(f"{_shown(self._url)} gave no word of an answer within {patience}") from late
        raise AssertionError("a retry context ends with what it raises")


def _wait(limit: asyncio.Timeout, error: Exception) -> bool | float:
    """Whether to try again; if the endpoint named them, after so many seconds, but not after those that are left."""
    if not isinstance(error, _TransientError) or error.after is None:
        return isinstance(error, _TransientError)
    left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
    return error.after if error.after < left else False


class _TransientError(GenerationError):
    """The same may succeed a little later: `after` so many seconds, if the endpoint says."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason, after)
        self.after = after

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def _told_plainly() -> Iterator[None]:
    """What is not tried again any more is a failure like others."""
    try:
        yield
    except _TransientError as error:
        raise GenerationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Pool:
    http: httpx2.AsyncClient
    keeper: AsyncGenerator[None, None]


async def _opened_pool(key: str) -> _Pool:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        http = httpx2.AsyncClient(headers=headers, timeout=None)  # every wait has one of ours
    except (httpx2.InvalidURL, ValueError, ImportError) as error:
        # unshown: it may hold a password
        raise ConfigError("HTTP_PROXY, HTTPS_PROXY and ALL_PROXY must be URLs of http or https, if set") from error
    keeper = _closing(http)
    await anext(keeper)
    return _Pool(http, keeper)


async def _closing(http: httpx2.AsyncClient) -> AsyncGenerator[None, None]:
    """A loop that ends closes the asynchronous generators that were begun in it: the only sign of its end there is."""
    try:
        yield
    finally:
        await http.aclose()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Exchange:
    """One request, which may be made several times, and the reading of what comes back."""

    http: httpx2.AsyncClient
    url: httpx2.URL
    key: str
    body: Mapping[str, Any]
    stall_timeout: float

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        async with self._response() as response, aclosing(deltas(self._chunks(response))) as told:
            async for delta in told:
                yield delta

    async def completion(self) -> Completion:
        async with self._response() as response:
            try:
                whole = understood(Whole, await response.aread())
            except httpx2.HTTPError as error:
                raise self._lost(error) from error
        if isinstance(whole, Failure):
            raise self._refused(whole)
        if whole is None:
            raise self._failed("answered with what is no chat completion")
        return Completion(text=whole.text, logprobs=whole.alternatives)

    @asynccontextmanager
    async def _response(self) -> AsyncIterator[httpx2.Response]:
        request = self._request()
        try:
            response = await self.http.send(request, stream=True)
        except (httpx2.HTTPError, ExceptionGroup) as error:  # a group comes of a proxy at a port above 65,535
            raise self._lost(error) from error
        async with aclosing(response):
            if response.status_code != httpx2.codes.OK:
                raise self._refused(await self._read_failure(response), _retry_after(response))
            yield response

    def _request(self) -> httpx2.Request:
        try:
            return self.http.build_request("POST", self.url, json=dict(self.body))
        except UnicodeEncodeError:
            # not chained: that error holds the whole prompt
            raise self._failed("was not asked: the prompt must be Unicode text, got half a surrogate pair") from None

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk, None]:
        """Up to the one that says why it ended, and what is told after it."""
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            raise await self._not_streamed(response)
        begun, last = False, None
        async with aclosing(_events(response)) as events:
            while (data := await self._next(events, begun, last)) != DONE:
                chunk = self._chunk(data)
                yield chunk
                begun = begun or bool(chunk.text)
                if chunk.finish and last is None:
                    last = asyncio.get_running_loop().time() + _REST
            with suppress(TimeoutError, httpx2.HTTPError):
                async with asyncio.timeout(_DRAIN):
                    await anext(events, None)

    async def _next(self, events: AsyncGenerator[httpx2.ServerSentEvent, None], begun: bool, last: float | None) -> str:
        """`last`, by the loop's clock, is until when an answer that ended is read on."""
        stalled = asyncio.get_running_loop().time() + self.stall_timeout if begun else None
        try:
            async with asyncio.timeout_at(last or stalled):
                return await _told(events)
        except (TimeoutError, StopAsyncIteration, httpx2.HTTPError) as error:
            if last:
                return DONE
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> GenerationError:
        match error:
            case TimeoutError():
                return self._failed(f"gave no further piece of its answer within {self.stall_timeout:g} s")
            case StopAsyncIteration():
                return self._passing("cut its answer short")
            case _:
                return self._lost(error)

    def _chunk(self, data: str) -> Chunk:
        chunk = understood(Chunk, data)
        if isinstance(chunk, Failure):
            raise self._refused(chunk)
        if chunk is None:
            raise self._failed("sent a piece that is no chat completion chunk")
        return chunk

    async def _not_streamed(self, response: httpx2.Response) -> GenerationError:
        told = await self._read_failure(response)
        if told.named:
            return self._refused(told)
        kind = response.headers.get("content-type") or "no content type"
        return self._failed(f"must answer with text/event-stream, got {kind[:_KIND_LENGTH]}")

    async def _read_failure(self, response: httpx2.Response) -> Failure:
        body = b""
        try:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _BODY_LENGTH:
                    break
        except httpx2.HTTPError as error:
            raise self._lost(error) from error
        return failure(body, response.status_code)

    def _refused(self, told: Failure, after: float | None = None) -> GenerationError:
        what = f"refused with {told.status}" if told.status else "broke off"
        reason = f"{what}: {self._clean(told.reason)}" if told.reason else what
        return self._passing(reason, after) if told.status in _TRANSIENT else self._failed(reason)

    def _lost(self, error: Exception) -> GenerationError:
        what = "cannot be reached" if isinstance(error, httpx2.ConnectError) else "broke off"
        reason = f"{what}: {type(error).__name__}: {self._clean(str(error))}"
        return self._passing(reason) if isinstance(error, _PASSING) else self._failed(reason)

    def _passing(self, what: str, after: float | None = None) -> GenerationError:
        return _TransientError(f"{_shown(self.url)} {what}", after)

    def _failed(self, what: str) -> GenerationError:
        return GenerationError(f"{_shown(self.url)} {what}")

    def _clean(self, reason: str) -> str:
        return unquoted(reason.replace(self.key, "***") if self.key else reason, self.body["messages"])


async def _begun(exchange: _Exchange) -> tuple[Delta, AsyncGenerator[Delta, None]]:
    told = exchange.deltas()
    return await anext(told), told


def _events(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    return cast(AsyncGenerator[httpx2.ServerSentEvent, None], aiter(httpx2.EventSource(response)))


async def _told(events: AsyncGenerator[httpx2.ServerSentEvent, None]) -> str:
    """By the next event that is more than a sign of life."""
    while True:
        event = await anext(events)
        if event.event != "ping" and (data := event.data.strip()) not in ("", "{}"):
            return data


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, which the header gives as such or as a date."""
    told = response.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(told))
    with suppress(ValueError):
        return max(0.0, (parsedate_to_datetime(told).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    return None


def _url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url.rstrip("/") + "/chat/completions")
    except httpx2.InvalidURL as error:
        raise ConfigError(f"base_url must be a URL: {error}") from error
    if not url.host:
        raise ConfigError("base_url must name a host, got none")
    if (url.port or 0) > _LAST_PORT:
        raise ConfigError(f"base_url's port must be at most {_LAST_PORT}, got {url.port}")
    if url.userinfo:
        raise ConfigError("base_url must hold no password: give api_key_env, the name of a variable that holds the key")
    return url


def _key(variable: str, url: httpx2.URL) -> str:
    """A key that nobody named an endpoint for goes to OpenAI alone."""
    named = variable or ("OPENAI_API_KEY" if url.host == _OPENAI else "")
    key = os.environ.get(named, "").strip()
    if not _USABLE_KEY.fullmatch(key):
        raise ConfigError(f"the key in {named} must be printable ASCII without blanks")
    return key


def _shown(url: httpx2.URL) -> str:
    return f"the endpoint {url.netloc.decode()}"
