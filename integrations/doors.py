"""The two ways to a knowledge base, behind one protocol: in this process, and over HTTP at a gateway."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import finalize

import httpx2
import stamina
from anyio import to_thread

from rag_core.errors import UnavailableError, UsageError
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wire.responses import API_KEY_VARIABLE, bearer_header, check_response, read_response, retry_seconds
from rag_core.wire.retrieval import Hit, Retrieval

if TYPE_CHECKING:
    from rag_core import KnowledgeBase

MAX_K = 100
"""The largest number of hits of a search, as at a gateway."""
DEFAULT_TIMEOUT = 30.0
ATTEMPTS = 4
MAX_RETRY_WAIT = 60.0
"""Seconds to wait for a gateway that names a time; if it names a longer one, the search fails at once."""
RETRIED_STATUSES = (httpx2.codes.TOO_MANY_REQUESTS, httpx2.codes.SERVICE_UNAVAILABLE)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for the best `k` hits. `filters` has the grammar of `rag_core.storage.filters`."""

    question: str
    k: int = 10
    collection: str = DEFAULT_COLLECTION
    filters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MAX_K:
            raise UsageError(f"k must be in [1, {MAX_K}], got {self.k}")


class Door(Protocol):
    """A way to a knowledge base. Any thread can use it."""

    def search(self, search: Search) -> list[Hit]:
        """Returns the hits, best first. Raises UsageError or UnavailableError."""
        ...

    def close(self) -> None:
        """Closes the connections. Those of a forgotten door are closed with the object."""
        ...


Source: TypeAlias = str | Door
"""A gateway's URL, a YAML file of settings, a Postgres DSN, `embedded`, or an open door."""


def open_door(source: Source, api_key: str = "") -> Door:
    """Opens the source. `api_key` is for a gateway; without one, the environment variable RAG_API_KEY has it."""
    if not isinstance(source, str):
        return source
    if source.startswith(("http://", "https://")):
        return HttpDoor(url=source, api_key=api_key or os.environ.get(API_KEY_VARIABLE, ""))
    from rag_core import open_knowledge_base  # whoever asks a gateway does not wait for the modules of a search

    return PythonDoor(open_knowledge_base("" if source == "embedded" else source))


async def search_in_thread(door: Door, search: Search) -> list[Hit]:
    """Searches without blocking the event loop.

    A thread serves every event loop with the same connections; those of an asynchronous client belong to one loop.
    """
    return await to_thread.run_sync(door.search, search, abandon_on_cancel=True)


@dataclass(frozen=True, slots=True)
class PythonDoor:
    """A knowledge base in this process.

    `groups` are those of the reader; without any, only documents that everyone can read are found.
    """

    knowledge: "KnowledgeBase"
    groups: Sequence[str] = ()

    def search(self, search: Search) -> list[Hit]:
        hits, stages = self.knowledge.explain(
            search.question, search.k, search.collection, search.filters, groups=self.groups
        )
        _warn_of_failed_stages({report.stage: report.error for report in stages if report.error})
        return [Hit.describe(rank, hit, search.question) for rank, hit in enumerate(hits, start=1)]

    def close(self) -> None:
        self.knowledge.close()


class HttpDoor:
    """A gateway. The key decides about tenant and groups; without one, the gateway must have `auth.mode: none`."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        profile: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        attempts: int = ATTEMPTS,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`timeout` is in seconds, for one attempt. Raises UsageError for an invalid URL or key.

        A search is sent again if the connection fails, or if the gateway is busy or its rate limit is reached; the
        gateway then names the seconds to wait.
        """
        headers = bearer_header(api_key, "the API key")
        try:
            self._client = httpx2.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        except httpx2.InvalidURL as error:
            raise UsageError(f"url must be a URL such as http://127.0.0.1:8000, got {url!r:.80}") from error
        self._url, self._profile, self._attempts = url, profile, attempts
        self._close = finalize(self, self._client.close)

    def search(self, search: Search) -> list[Hit]:
        body = {"query": search.question, "top_k": search.k, "collection": search.collection}
        body |= {"filters": search.filters} if search.filters is not None else {}
        body |= {"profile": self._profile} if self._profile else {}
        retrieval = Retrieval.decode(read_response(self._post(body)))
        _warn_of_failed_stages(retrieval.degraded_reasons)
        return retrieval.results

    def close(self) -> None:
        self._close()

    def _post(self, body: Mapping[str, Any]) -> httpx2.Response:
        try:
            for attempt in stamina.retry_context(on=_find_retry_wait, attempts=self._attempts, timeout=None):
                with attempt:
                    return self._client.post("/v1/retrieve", json=body).raise_for_status()
        except httpx2.HTTPStatusError as error:
            check_response(error.response)
        except httpx2.HTTPError as error:
            raise UnavailableError(f"cannot reach the server at {self._url}: {error}") from error
        raise UnavailableError(f"the server at {self._url} did not respond")


def _find_retry_wait(error: Exception) -> bool | float:
    """True, or the seconds to wait, if the same request can succeed later."""
    if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code in RETRIED_STATUSES:
        seconds = retry_seconds(error.response)
        return seconds if seconds <= MAX_RETRY_WAIT else False
    return isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError)


def _warn_of_failed_stages(reasons: Mapping[str, str]) -> None:
    for stage, reason in reasons.items():
        _log.warning("the search went on without stage %s: %s", stage, reason)
