"""The snapshots of a search that runs within a search of another store."""

import asyncio

from rag_core.storage.postgres import Postgres
from rag_core.storage.snapshot import Snapshots
from rag_core.types import Query


def test_a_search_shares_its_reading_with_its_own_reads_only() -> None:
    query = Query(text="How often?")

    async def read() -> list[bool]:
        first, other = (Snapshots(Postgres("host=/nowhere")) for _ in range(2))
        async with first.reading(query) as outer, first.reading(query) as same, other.reading(query) as foreign:
            return [same is outer, foreign is outer]

    assert asyncio.run(read()) == [True, False]
