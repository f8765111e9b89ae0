"""Legs take turns on one snapshot: what one of them does to its connection does not affect the others."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import psycopg
import pytest
from anyio import to_thread
from drafts import SPACE, TENANT, draft, vector
from targets import publish, superuser

from rag_core.errors import NotFoundError, RetrievalError, StoreError
from rag_core.protocols import Ranking
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import fuse_distribution
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.legs import LegRetriever
from rag_core.stage import recording, stage
from rag_core.storage import snapshot as snapshot_module
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.storage.snapshot import CONNECTIONS
from rag_core.types import Hit, Matrix, Query, StageReport

pytestmark = pytest.mark.postgres

T = TypeVar("T")
QUERY = Query(text="one", tenant=TENANT)
NOTE = draft("file:///a.md", "one", "two", "three")
CLOSE_OTHERS = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()"""


class Vectors:
    """An embedder that takes `seconds` in a thread."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def embed(self, texts: list[str]) -> Matrix:
        await to_thread.run_sync(time.sleep, self._seconds)
        return np.stack([vector(text) for text in texts])


class SqlLeg:
    """A leg that runs a statement in its turn, and then gives all chunks the same score."""

    def __init__(self, corpus: CorpusReader, statement: str) -> None:
        self._corpus, self._statement = corpus, statement

    async def rank(self, query: Query, k: int) -> Ranking:
        async with self._corpus.snapshot(query) as snapshot:
            await snapshot.connection.execute(self._statement.encode())
            return [(chunk.id, 1.0) for chunk in NOTE.chunks][:k]

    async def score(self, query: Query, chunk_ids: Any) -> list[float]:  # noqa: ARG002
        return [1.0 for _ in chunk_ids]


class KillingLeg:
    """A leg that ends the server process that it reads from."""

    def __init__(self, corpus: CorpusReader, store: Postgres) -> None:
        self._corpus, self._store = corpus, store

    async def rank(self, query: Query, k: int) -> Ranking:  # noqa: ARG002
        async with self._corpus.snapshot(query) as snapshot:
            with superuser(self._store) as connection:
                connection.execute("select pg_terminate_backend(%s, 5000)", [snapshot.connection.info.backend_pid])
            await snapshot.connection.execute("select 1")
        return []

    async def score(self, query: Query, chunk_ids: Any) -> list[float]:  # noqa: ARG002
        return []


def run_with_reader(store: Postgres, work: Callable[[CorpusReader], Awaitable[T]]) -> T:
    async def run_with_corpus() -> T:
        corpus = CorpusReader(store)
        try:
            return await work(corpus)
        finally:
            await corpus.close()

    return asyncio.run(run_with_corpus())


def search(store: Postgres, statement: str, seconds: float = 0.0, **timeouts: float) -> tuple[list[Hit], Any]:
    async def work(corpus: CorpusReader) -> tuple[list[Hit], dict[str, StageReport]]:
        legs = {"broken": SqlLeg(corpus, statement), "dense": DenseLeg(corpus, Vectors(seconds), SPACE)}
        fusion = partial(fuse_distribution, weights={})
        with recording() as stages:
            hits = await Hybrid(corpus=corpus, legs=legs, fusion=fusion, timeouts=timeouts).retrieve(QUERY, 10)
        return hits, {report.stage: report for report in stages}

    return run_with_reader(store, work)


def count_running(store: Postgres) -> int:
    with superuser(store) as connection:
        active = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(60)%'"
        (count,) = connection.execute(active + " and pid <> pg_backend_pid()").fetchone() or (0,)
        return int(count)


def test_a_statement_that_fails_leaves_the_snapshot_to_the_other_legs(store: Postgres) -> None:
    publish(store, NOTE)
    hits, stages = search(store, "select 1 / 0")
    assert hits[0].chunk.text == "one"
    assert len(hits) == 3
    assert "division by zero" in stages["broken"].error
    assert not stages["dense"].error


def test_a_leg_that_is_late_is_stopped_on_the_server_and_the_others_use_the_connection(store: Postgres) -> None:
    publish(store, NOTE)
    hits, stages = search(store, "select pg_sleep(60)", broken=0.2, dense=10)
    assert len(hits) == 3
    assert stages["broken"].error == "timeout after 0.200 s"
    assert not stages["dense"].error
    assert count_running(store) == 0


def test_waiting_for_a_slow_legs_turn_costs_a_leg_none_of_its_own_time(store: Postgres) -> None:
    publish(store, NOTE)
    _, stages = search(store, "select pg_sleep(1.5)", broken=30, dense=1)
    assert (stages["broken"].error, stages["dense"].error) == ("", "")


def test_a_leg_whose_encoder_hangs_in_a_thread_is_left_out(store: Postgres) -> None:
    publish(store, NOTE)
    hits, stages = search(store, "select 1", seconds=1.0, dense=0.1)
    assert len(hits) == 3
    assert stages["embed"].error == "cancelled"
    assert stages["dense"].error == "timeout after 0.100 s"


def test_the_server_knows_the_limit_even_if_opening_failed_before(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, NOTE)
    described, failures = snapshot_module._read_scope, [StoreError("not yet")]

    async def fail_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await described(*arguments)

    async def limit(corpus: CorpusReader) -> tuple[object, ...] | None:
        async with corpus.reading(QUERY), stage("limited", timeout=30):
            with pytest.raises(StoreError):
                async with corpus.snapshot(QUERY):
                    pass
            async with corpus.snapshot(QUERY) as snapshot:
                return await (await snapshot.connection.execute("show statement_timeout")).fetchone()

    monkeypatch.setattr(snapshot_module, "_read_scope", fail_once)
    assert run_with_reader(store, limit) not in (None, ("0",))


def test_the_server_stops_a_statement_by_itself_when_its_stage_is_over(store: Postgres) -> None:
    publish(store, NOTE)

    async def limits(corpus: CorpusReader) -> list[str]:
        async def limit() -> str:
            async with corpus.snapshot(QUERY) as snapshot:
                (setting,) = await (await snapshot.connection.execute("show statement_timeout")).fetchone() or ("",)
                return str(setting)

        async with corpus.reading(QUERY):
            async with stage("limited", timeout=30):
                limited = await limit()
            return [limited, await limit()]

    limited, unlimited = run_with_reader(store, limits)
    assert 30_000 < int(limited.removesuffix("ms").replace("s", "000")) <= 2 * 30_100
    assert unlimited == "0"


def test_all_turns_of_a_reading_see_one_snapshot(store: Postgres) -> None:
    publish(store, NOTE)

    async def read_across_change(corpus: CorpusReader) -> list[str]:
        async with corpus.reading(QUERY):
            ranking = await corpus.rank_dense(QUERY, vector("one"), SPACE, 1)
            await asyncio.to_thread(publish, store, draft("file:///a.md", "changed"))
            return [hit.chunk.text for hit in await corpus.fetch_hits(QUERY, "dense", ranking)]

    assert run_with_reader(store, read_across_change) == ["one"]


def test_a_reading_opens_nothing_before_something_is_read(store: Postgres) -> None:
    publish(store, NOTE)

    async def count_while_encoding(corpus: CorpusReader) -> list[int]:
        opened = "select count(*) from pg_stat_activity where state = 'idle in transaction'"

        class Watching(Vectors):
            async def embed(self, texts: list[str]) -> Matrix:
                with superuser(store) as connection:
                    counts.extend(connection.execute(opened).fetchone() or ())
                return await super().embed(texts)

        counts: list[int] = []
        await LegRetriever(corpus, "dense", DenseLeg(corpus, Watching(), SPACE)).retrieve(QUERY, 3)
        return counts

    assert run_with_reader(store, count_while_encoding) == [0]


def test_a_turn_within_a_turn_is_the_same_one(store: Postgres) -> None:
    publish(store, NOTE)

    async def nest_snapshots(corpus: CorpusReader) -> bool:
        async with corpus.snapshot(QUERY) as outer, corpus.snapshot(QUERY) as inner:
            return inner is outer

    assert run_with_reader(store, nest_snapshots)


def test_a_retrieval_within_somebody_elses_turn_has_turns_of_its_own(store: Postgres) -> None:
    publish(store, NOTE)

    async def work(corpus: CorpusReader) -> list[Hit]:
        legs = {"broken": SqlLeg(corpus, "select 1 / 0"), "dense": DenseLeg(corpus, Vectors(), SPACE)}
        async with corpus.snapshot(QUERY) as snapshot:
            hits = await Hybrid(corpus=corpus, legs=legs, fusion=partial(fuse_distribution, weights={})).retrieve(
                QUERY, 10
            )
            await snapshot.connection.execute("select 1")
            return hits

    assert len(run_with_reader(store, work)) == 3


def test_a_collection_that_is_not_there_is_named(store: Postgres) -> None:
    with pytest.raises(NotFoundError, match="no collection 'default'"):
        search(store, "select 1")


def test_when_the_connection_is_lost_no_leg_answers_and_the_next_question_is_answered(store: Postgres) -> None:
    publish(store, NOTE)

    async def work(corpus: CorpusReader) -> list[Hit]:
        legs = {"broken": KillingLeg(corpus, store), "dense": DenseLeg(corpus, Vectors(), SPACE)}
        retriever = Hybrid(corpus=corpus, legs=legs, fusion=partial(fuse_distribution, weights={}))
        with pytest.raises((RetrievalError, StoreError)):
            await retriever.retrieve(QUERY, 3)
        return await LegRetriever(corpus, "dense", legs["dense"]).retrieve(QUERY, 3)

    assert len(run_with_reader(store, work)) == 3


def test_many_questions_at_once_wait_for_connections_and_not_against_their_time(store: Postgres) -> None:
    publish(store, NOTE)

    async def work(corpus: CorpusReader) -> list[list[Hit]]:
        retriever = Hybrid(
            corpus=corpus,
            legs={"slow": SqlLeg(corpus, "select pg_sleep(0.2)"), "dense": DenseLeg(corpus, Vectors(), SPACE)},
            fusion=partial(fuse_distribution, weights={}),
            timeout=5,
        )
        return await asyncio.gather(*(retriever.retrieve(QUERY, 3) for _ in range(20)))

    assert [len(hits) for hits in run_with_reader(store, work)] == [3] * 20


def test_psycopg_still_says_that_the_server_is_gone(store: Postgres) -> None:
    nowhere = Postgres(psycopg.conninfo.make_conninfo(store.dsn, dbname="nowhere"))

    async def work(corpus: CorpusReader) -> None:
        corpus._snapshots._pool.timeout = 1.0
        await corpus.rank_dense(QUERY, vector("one"), SPACE, 1)

    with pytest.raises(StoreError, match="cannot read from the store"):
        run_with_reader(nowhere, work)


def test_connections_that_the_server_closed_while_nobody_read_fail_no_read(store: Postgres) -> None:
    publish(store, NOTE)

    async def work(corpus: CorpusReader) -> list[int]:
        await asyncio.gather(*(corpus.rank_dense(QUERY, vector("one"), SPACE, 10) for _ in range(CONNECTIONS)))
        with superuser(store) as connection:
            connection.execute(CLOSE_OTHERS)
        return [len(await corpus.rank_dense(QUERY, vector("one"), SPACE, 10)) for _ in range(CONNECTIONS)]

    assert run_with_reader(store, work) == [3] * CONNECTIONS
