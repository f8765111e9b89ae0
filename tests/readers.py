"""A corpus reader for one question."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rag_core.storage.corpus import CACHE_BYTES, CorpusReader
from rag_core.storage.postgres import Postgres

T = TypeVar("T")


def query_corpus(
    store: Postgres, question: Callable[[CorpusReader], Awaitable[T]], cached_bytes: int = CACHE_BYTES
) -> T:
    async def run() -> T:
        reader = CorpusReader(store, cached_bytes)
        try:
            return await question(reader)
        finally:
            await reader.close()

    return asyncio.run(run())
