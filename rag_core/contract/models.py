"""Calls of the models that answer, rerank and expand, from synchronous code."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

from rag_core.retrieval.legs import translate_errors
from rag_core.wiring.models import RemoteModels

T = TypeVar("T")


def call_models(work: Callable[[RemoteModels], Awaitable[T]]) -> T:
    """Runs the work in an event loop of its own, and closes its connections to models afterwards.

    Raises RetrievalError for an error that is not a RagError.
    """

    async def run() -> T:
        async with aclosing(RemoteModels()) as remote:
            return await translate_errors(work(remote))

    with start_blocking_portal() as portal:
        return portal.call(run)
