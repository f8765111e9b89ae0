"""The builder of clients for language models behind an HTTP API."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rag_core.config import Endpoint
from rag_core.models.chat import ChatClient
from rag_core.models.endpoint import HttpPool, HttpTransport


def build_client(
    settings: Endpoint, pool: HttpPool, protect: Callable[[], AbstractContextManager[None]] = nullcontext
) -> ChatClient:
    """Reads the key from its place. Raises ConfigError if the key or the URL cannot be used.

    `protect` is the method of a circuit breaker.
    """
    return ChatClient(
        HttpTransport(pool, base_url=settings.base_url, api_key_env=settings.api_key_env, api_key=settings.api_key),
        model=settings.model,
        first_token_timeout=settings.first_token_timeout_ms / 1000,
        stall_timeout=settings.stall_timeout_ms / 1000,
        attempts=settings.attempts,
        protect=protect,
    )
