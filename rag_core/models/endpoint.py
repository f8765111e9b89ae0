"""The HTTP transport to OpenAI-compatible endpoints, and the pool of its connections.

Errors hold the endpoint's own reason, but never the key or the prompt.
"""

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2

from rag_core.errors import ConfigError, GenerationError, describe_error
from rag_core.models.chat import RetryableError
from rag_core.models.chat_bodies import EndpointFailure, describe_refusal, parse_failure, redact_reason
from rag_core.secret_references import is_reference, read_secret

TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_TRANSIENT_ERRORS = (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError)
_LIMITS = httpx2.Limits(max_connections=300, max_keepalive_connections=60)
"""100 connections, 20 of them idle, for each of the generator, the judge and the reranker."""
_OPENAI_HOST = "api.openai.com"
_MAX_PORT = 65_535
_MAX_ERROR_BYTES, _MAX_TYPE_LENGTH = 65_536, 32
_VALID_KEY = re.compile(r"[!-~]*")


class HttpPool:
    """The connections to all endpoints, for the requests of one event loop.

    The first request opens the pool. Whoever creates it closes it before that event loop ends.
    """

    def __init__(self) -> None:
        self._http: httpx2.AsyncClient | None = None

    def client(self) -> httpx2.AsyncClient:
        """Raises ConfigError if a proxy of the environment is not a URL."""
        if self._http is None:
            try:
                self._http = httpx2.AsyncClient(timeout=None, limits=_LIMITS)  # ChatClient has the timeouts
            except (httpx2.InvalidURL, ValueError, ImportError) as error:
                # the value is not shown: it can hold a password
                raise ConfigError(
                    "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY must be URLs of http or https, if set"
                ) from error
        return self._http

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


class HttpTransport:
    """A Transport over HTTP.

    `api_key` is the key or a reference to it, and `api_key_env` the environment variable that holds it. If both are
    empty, only OpenAI's own host receives a key: OPENAI_API_KEY.

    Raises ConfigError if `base_url` is not a URL or contains a password. Raises it too if the key cannot be read, or
    has characters that a header cannot hold.
    """

    def __init__(self, pool: HttpPool, *, base_url: str, api_key_env: str, api_key: str = "") -> None:
        self._pool, self._url = pool, parse_endpoint_url(base_url)
        self.name = f"the endpoint {self._url.netloc.decode()}"
        # OPENAI_API_KEY must not be sent to any other host
        variable = api_key_env or ("OPENAI_API_KEY" if self._url.host == _OPENAI_HOST else "")
        self._key = (read_secret(api_key, "api_key") if api_key else os.environ.get(variable, "")).strip()
        self._place = (api_key if is_reference(api_key) else "api_key") if api_key else variable
        if not _VALID_KEY.fullmatch(self._key):
            raise ConfigError(f"the key in {self._place} must be printable ASCII without blanks")

    async def open(self, body: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Yields no keep-alives. Raises ConfigError if a proxy of the environment is not a URL."""
        http = self._pool.client()
        try:
            response = await http.send(self._build_request(http, body), stream=True)
            async with aclosing(response):
                await self._check_response(response, body)
                if "stream" not in body:
                    yield (await response.aread()).decode(errors="replace")
                    return
                stream = cast(AsyncGenerator[httpx2.ServerSentEvent, None], aiter(httpx2.EventSource(response)))
                async with aclosing(stream) as events:
                    async for event in events:
                        if event.event != "ping" and (data := event.data.strip()) not in ("", "{}"):
                            yield data
        except (httpx2.HTTPError, ExceptionGroup) as error:  # a proxy at a port above 65,535 causes a group
            is_unreachable = isinstance(error, httpx2.ConnectError)
            what, hint = ("cannot be reached", "; check base_url") if is_unreachable else ("broke off", "")
            cause = redact_reason(self._hide_key(describe_error(error)), body["messages"])
            reason = f"{self.name} {what}: {cause}{hint}"
            kind = RetryableError if isinstance(error, _TRANSIENT_ERRORS) else GenerationError
            raise kind(reason) from error

    def refusal_error(
        self, failure: EndpointFailure, body: Mapping[str, Any], after: float | None = None
    ) -> GenerationError:
        """`after`: the seconds that the endpoint asks to wait, if it does."""
        failure = replace(failure, reason=self._hide_key(failure.reason))
        reason = f"{self.name} {describe_refusal(failure, body['messages'])}"
        if failure.status == httpx2.codes.UNAUTHORIZED:
            missing = "no key was sent: set api_key to a reference such as env:MODEL_API_KEY"
            reason += f" ({f'check the key in {self._place}' if self._key else missing})"
        return RetryableError(reason, after) if failure.status in TRANSIENT_STATUSES else GenerationError(reason)

    def _build_request(self, http: httpx2.AsyncClient, body: Mapping[str, Any]) -> httpx2.Request:
        fields = dict(body)
        if self._url.host == _OPENAI_HOST:  # its newer models reject the name that other endpoints use
            fields["max_completion_tokens"] = fields.pop("max_tokens")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            return http.build_request("POST", self._url, json=fields, headers=headers)
        except UnicodeEncodeError:
            # not chained: that error holds the whole prompt
            raise GenerationError(
                f"{self.name} was not called: the prompt must be Unicode text, got half a surrogate pair"
            ) from None

    async def _check_response(self, response: httpx2.Response, body: Mapping[str, Any]) -> None:
        """Raises GenerationError unless the response has status 200 and, if requested, is a stream."""
        if response.status_code != httpx2.codes.OK:
            raise self.refusal_error(await _read_failure(response), body, _parse_retry_after(response))
        media_type = response.headers.get("content-type", "")
        if "stream" not in body or media_type.lower().startswith("text/event-stream"):
            return
        failure = await _read_failure(response)
        if failure.is_error:
            raise self.refusal_error(failure, body)
        media_type = media_type[:_MAX_TYPE_LENGTH] or "no content type"
        raise GenerationError(f"{self.name} must answer with text/event-stream, got {media_type}")

    def _hide_key(self, reason: str) -> str:
        return reason.replace(self._key, "***") if self._key else reason


async def _read_failure(response: httpx2.Response) -> EndpointFailure:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MAX_ERROR_BYTES:
            break
    return parse_failure(body.decode(errors="replace"), response.status_code)


def _parse_retry_after(response: httpx2.Response) -> float | None:
    """The seconds to wait; the header holds seconds or a date. None if it is missing or invalid."""
    value = response.headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError):
        return max(0.0, (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    return None


def parse_endpoint_url(base_url: str) -> httpx2.URL:
    """The URL of chat completions. Raises ConfigError if `base_url` is not a URL or contains a password."""
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
            "base_url must not contain a password: set api_key to a reference to the key, such as env:MODEL_API_KEY"
        )
    return url
