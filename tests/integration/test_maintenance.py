"""Vector indexes: when they are built and dropped, that searches use them, and what happens during a build."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pytest
from drafts import SPACE, TENANT, draft, vector
from psycopg import AsyncConnection, Connection
from psycopg.sql import SQL, Composed
from readers import query_corpus
from targets import begin, publish, superuser
from targets import write as publish_as
from trees import hashing_settings, violations, write
from waiting import wait_until

from rag_core.errors import StoreError
from rag_core.ingestion import sync as syncing
from rag_core.ingestion.report import RunTimes, SyncReport
from rag_core.ingestion.sync import Runner
from rag_core.ingestion.watch import Check
from rag_core.protocols import Source
from rag_core.storage import corpus, statistics
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.maintenance import Change, Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Draft, Query
from rag_core.wiring.ingestion import build_inline_runner, build_sync

pytestmark = pytest.mark.postgres

T = TypeVar("T")
QUERY = Query(text="", tenant=TENANT)
EAGER = Maintenance(build_at=100, drop_below=50, bulk_documents=10)
CHUNKS_A_NOTE = 4
EXECUTIONS = 12
INDEXES = (
    "select relname, indisvalid from pg_index join pg_class on oid = indexrelid where relname like 'vectors_hnsw%'"
)
BUILDER = """
select pid from pg_stat_activity
where datname = current_database() and query ilike '%create index concurrently%' and wait_event_type = 'Lock'"""
GENERIC_PLANS = "select sum(generic_plans)::int from pg_prepared_statements where statement like '%<#>%'"
SCANS = "select idx_scan::int from pg_stat_user_indexes where indexrelname = %s"


def notes(count: int, first: int = 0, **place: Any) -> list[Draft]:
    """Documents of four chunks, with numbers to filter by."""
    return [
        draft(
            f"file:///{n}.md",
            *(f"text {n} {part}" for part in range(CHUNKS_A_NOTE)),
            metadata={"half": n % 2, "twentieth": n % 20, "one": n},
            **place,
        )
        for n in range(first, first + count)
    ]


def indexes(store: Postgres) -> dict[str, bool]:
    """The names of the vector indexes, each with True if it is valid."""
    with superuser(store) as connection:
        return dict(connection.execute(INDEXES).fetchall())


def actions(changes: list[Change]) -> list[str]:
    """The changes of vector indexes."""
    return [change.action for change in changes if change.action in ("built", "dropped")]


def ranking(store: Postgres, text: str, k: int = 10, query: Query = QUERY) -> list[tuple[UUID, float]]:
    return query_corpus(store, lambda reader: reader.rank_dense(query, vector(text), SPACE, k))


def query_with_filter(key: str, value: object, type: str = "eq") -> Query:
    return replace(QUERY, filters=parse_filter({"key": key, "type": type, "value": value}))


@pytest.fixture
def store_with_index(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    """A store with 1,200 chunks and their index, which is used if more than 40 chunks pass the filter."""
    monkeypatch.setattr(corpus, "MAX_EXACT_CHUNKS", 40)
    publish(store, *notes(300))
    assert actions(EAGER.run(store, TENANT)) == ["built"]
    return store


def test_an_index_is_built_for_many_vectors_and_dropped_for_few(store: Postgres) -> None:
    first, second = notes(24), notes(1, first=24)
    publish(store, *first)
    assert EAGER.run(store, TENANT) == []
    publish(store, *second)
    built, *others = EAGER.run(store, TENANT)
    assert (built.action, built.collection, others) == ("built", "default", [])
    assert indexes(store) == {built.subject: True}
    assert EAGER.run(store, TENANT) == []


def test_between_the_two_bounds_all_stays_as_it_is(store: Postgres) -> None:
    publish(store, *notes(25))
    EAGER.run(store, TENANT)
    delete(store, notes(12))
    assert actions(EAGER.run(store, TENANT)) == []
    delete(store, notes(1, first=12))
    assert actions(EAGER.run(store, TENANT)) == ["dropped"]
    assert indexes(store) == {}
    publish(store, *notes(12))
    assert EAGER.run(store, TENANT) == []


def test_each_tenant_and_collection_has_its_own(store: Postgres) -> None:
    publish(store, *notes(25))
    publish(store, *notes(25, collection="second"), collection="second")
    publish(store, *notes(25, tenant='it\'s "theirs"'), tenant='it\'s "theirs"')
    changes = EAGER.run_all(store, TENANT)
    index_changes = [change for change in changes if change.action != "analyzed"]
    assert sorted((change.action, change.collection) for change in index_changes) == [
        ("built", "default"),
        ("built", "default"),
        ("built", "second"),
    ]
    assert len(indexes(store)) == 3
    with store.connect() as connection:
        Catalog(connection, TENANT).drop_collection("second")
    assert actions(EAGER.run_all(store, TENANT)) == ["dropped"]
    assert len(indexes(store)) == 2


def test_a_search_uses_the_index_under_row_level_security_after_many_executions(store_with_index: Postgres) -> None:
    async def collect_plans(reader: CorpusReader) -> tuple[list[str], tuple[int]]:
        async with reader.snapshot(QUERY) as snapshot:
            query_plans = record_plans(snapshot.connection)
            for execution in range(EXECUTIONS):
                await reader.rank_dense(QUERY, vector(f"question {execution}"), SPACE, 10)
                await reader.rank_dense(query_with_filter("half", 1), vector(f"question {execution}"), SPACE, 10)
            role = await (await snapshot.connection.execute("select current_user")).fetchone()
            assert role == ("rag_reader",)
            counted = await (await snapshot.connection.execute(GENERIC_PLANS)).fetchone()
            assert counted is not None
            return query_plans, counted

    query_plans, (generic,) = query_corpus(store_with_index, collect_plans)
    (index,) = indexes(store_with_index)
    assert len(query_plans) == 2 * EXECUTIONS
    assert all(f"Index Scan using {index}" in plan and "Sort" not in plan for plan in query_plans)
    assert generic > 0
    with superuser(store_with_index) as connection:
        assert connection.execute(SCANS, [index]).fetchone() == (2 * EXECUTIONS,)


def record_plans(connection: AsyncConnection) -> list[str]:
    """Returns a list to which the plan of every later ranking of the connection is appended."""
    plans: list[str] = []
    execute = connection.execute

    async def explain_and_execute(statement: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(statement, Composed) and "order by" in statement.as_string():
            rows = await execute(SQL("explain (costs off) ") + statement, *arguments)
            plans.append("\n".join([row[0] async for row in rows]))
        return await execute(statement, *arguments, **options)

    connection.execute = explain_and_execute  # type: ignore[assignment,method-assign]
    return plans


def test_a_search_of_a_small_collection_scans(store: Postgres) -> None:
    publish(store, *notes(20))

    async def collect_plans(reader: CorpusReader) -> list[str]:
        async with reader.snapshot(QUERY) as snapshot:
            query_plans = record_plans(snapshot.connection)
            await reader.rank_dense(QUERY, vector("question"), SPACE, 10)
            return query_plans

    assert "hnsw" not in query_corpus(store, collect_plans)[0]


@pytest.mark.parametrize(
    ("query", "passing"),
    [
        pytest.param(QUERY, range(300), id="all"),
        pytest.param(query_with_filter("half", 1), range(1, 300, 2), id="half"),
        pytest.param(query_with_filter("half", 1, "ne"), range(0, 300, 2), id="the other half"),
        pytest.param(query_with_filter("twentieth", 3), range(3, 300, 20), id="one in twenty, by the index"),
        pytest.param(query_with_filter("one", 8, "lt"), range(8), id="so few that each is compared"),
        pytest.param(query_with_filter("one", 7), [7], id="one document"),
        pytest.param(query_with_filter("one", 7_000), [], id="none"),
    ],
)
def test_the_index_finds_what_a_scan_finds(store_with_index: Postgres, query: Query, passing: list[int]) -> None:
    drafts = [note for number, note in enumerate(notes(300)) if number in set(passing)]
    ids = np.array([chunk.id for note in drafts for chunk in note.chunks])
    stored = np.concatenate([np.empty((0, 16)), *(note.vectors for note in drafts if note.vectors is not None)])
    shares = []
    for number in range(20):
        products = stored.astype(np.float16).astype(float) @ vector(f"question {number}").astype(np.float16)
        true = list(ids[np.argsort(-products)[:10]])
        pairs = ranking(store_with_index, f"question {number}", query=query)
        assert len(pairs) == len(true)
        assert pairs == sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
        shares.append(len({id for id, _ in pairs} & set(true)) / max(1, len(true)) if true else 1.0)
    assert np.mean(shares) >= 0.97


def test_more_are_found_than_the_index_was_searched_for(store_with_index: Postgres) -> None:
    assert len(ranking(store_with_index, "question", k=700)) == 700
    assert len(ranking(store_with_index, "question", k=5_000)) == 1_200


def test_what_restricted_documents_hide_does_not_make_a_ranking_shorter(store_with_index: Postgres) -> None:
    with superuser(store_with_index) as connection:
        connection.execute("update documents set access = '{staff}' where (metadata ->> 'twentieth')::int <> 3")
    pairs = ranking(store_with_index, "question", k=60)
    assert {id for id, _ in pairs} == {chunk.id for note in notes(300)[3::20] for chunk in note.chunks}


@contextmanager
def block_build(store: Postgres, work: Callable[[], T]) -> Iterator["tuple[Future[T], int]"]:
    """Yields the work and the process id of its server. Its build has begun and cannot end before the block does."""
    with (
        ThreadPoolExecutor() as threads,
        superuser(store) as watcher,
        superuser(store) as blocker,
        blocker.transaction(),
    ):
        blocker.execute("lock table rag.vectors in row exclusive mode")
        future = threads.submit(work)
        yield future, builder(watcher)


def builder(watcher: "Connection[Any]") -> int:
    wait_until(lambda: watcher.execute(BUILDER).fetchone() is not None)
    ((process,),) = watcher.execute(BUILDER).fetchall()
    return int(process)


def test_a_build_blocks_neither_publishing_nor_searching(store: Postgres) -> None:
    publish(store, *notes(25))
    late = notes(1, first=25)
    with block_build(store, lambda: EAGER.run(store, TENANT)) as (building, _):
        publish(store, *late)
        (best,) = ranking(store, "text 25 2", k=1)
        assert best[0] == late[0].chunks[2].id
        assert not building.done()
    assert actions(building.result()) == ["built"]
    assert ranking(store, "text 25 2", k=1) == [best]


def test_what_a_killed_build_leaves_is_not_used_and_built_again(store: Postgres) -> None:
    publish(store, *notes(25))
    with block_build(store, lambda: EAGER.run(store, TENANT)) as (building, pid), superuser(store) as killer:
        killer.execute("select pg_terminate_backend(%s)", [pid])
        with pytest.raises(StoreError, match="vector indexes could not be brought up to date"):
            building.result()
        assert list(indexes(store).values()) == [False]
        assert len(ranking(store, "question")) == 10
    assert actions(EAGER.run(store, TENANT)) == ["dropped", "built"]
    assert list(indexes(store).values()) == [True]


def test_of_two_that_maintain_the_same_one_builds_and_the_other_finds_it_done(store: Postgres) -> None:
    publish(store, *notes(25))
    with ThreadPoolExecutor() as threads, block_build(store, lambda: EAGER.run(store, TENANT)) as (first, _):
        second = threads.submit(EAGER.run, store, TENANT)
        time.sleep(0.5)
        assert not second.done()
    assert actions(first.result()) == ["built"]
    assert second.result() == []


def test_a_bulk_load_goes_without_the_index_and_a_small_one_keeps_it(store_with_index: Postgres) -> None:
    target = begin(store_with_index)
    place = (store_with_index, TENANT, target.collection, target.space)
    assert EAGER.prepare_bulk_load(*place, 9) == []
    assert EAGER.prepare_bulk_load(*place, 60) == []
    assert len(indexes(store_with_index)) == 1
    assert actions(EAGER.prepare_bulk_load(*place, 61)) == ["dropped"]
    assert EAGER.prepare_bulk_load(*place, 61) == []
    publish_as(target, notes(61, first=300))
    assert actions(EAGER.run(store_with_index, TENANT)) == ["built"]


def test_statistics_exist_after_a_load(store: Postgres) -> None:
    publish(store, *notes(300))
    maintain_until_stable(store)
    with superuser(store) as connection:
        estimated = connection.execute("select reltuples from pg_class where oid = 'rag.chunks'::regclass").fetchone()
    assert estimated == (1_200,)


@pytest.mark.slow
def test_statistics_follow_a_collection_that_is_new_among_large_ones(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "LOW_ESTIMATE", 20)
    monkeypatch.setattr(statistics, "MANY_ROWS", 200)
    publish(store, *notes(600))
    maintain_until_stable(store)
    second = publish(store, *notes(55, collection="second"), collection="second").collection
    assert planner_estimate(store, second) == 1
    maintain_until_stable(store)
    assert 200 <= planner_estimate(store, second) <= 240
    assert EAGER.run(store, TENANT) == []


@dataclass(frozen=True)
class Lingering:
    """A runner that ends when the planner expects so many chunks of the collection."""

    runner: Runner
    store: Postgres
    chunks: int

    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        times = self.runner.run(target, sources, drafts, check)
        assert planner_estimate(self.store, target.collection) < self.chunks
        wait_until(lambda: planner_estimate(self.store, target.collection) >= self.chunks)
        return times


@pytest.mark.slow
def test_statistics_follow_while_a_collection_is_loaded(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing, "ANALYZE_AFTER", 0.1)
    with superuser(store) as connection:
        connection.execute("alter table chunks set (autovacuum_enabled = false)")
    folder = write(tmp_path / "docs", {f"{n}.txt": f"Number {n} was counted by hand.\n" for n in range(300)})
    settings = hashing_settings()
    build_sync(settings, store, [str(folder)]).run(Lingering(build_inline_runner(settings), store, 300))


def maintain_until_stable(store: Postgres) -> None:
    """Runs until nothing changes. Postgres counts the written rows a moment after the writer has closed."""
    wait_until(lambda: EAGER.run(store, TENANT) != [])
    wait_until(lambda: EAGER.run(store, TENANT) == [])


def planner_estimate(store: Postgres, collection: int) -> int:
    """The number of chunks that the planner expects."""
    with superuser(store) as connection:
        ((plan,),) = connection.execute(
            "explain (format json) select from rag.chunks where collection = %s", [collection]
        )
    return int(plan[0]["Plan"]["Plan Rows"])


@pytest.mark.slow
def test_a_sync_keeps_the_index_of_its_collection(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {f"{n}.txt": f"Number {n} was counted by hand.\n" for n in range(120)})
    report = ingest(store, folder)
    assert report.seconds["index"] > 0
    assert report.notices == []
    (first,) = indexes(store)
    write(folder, {f"{n}.txt": f"Number {n} was counted by hand.\n" for n in range(120, 150)})
    ingest(store, folder)
    assert indexes(store) == {first: True}
    ingest(store, folder, "embedding.dimension=32")
    (second,) = indexes(store)
    assert second != first


@pytest.mark.slow
def test_a_sync_whose_index_cannot_be_built_reports_it_and_succeeds(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {f"{n}.txt": f"Number {n} was counted by hand.\n" for n in range(120)})
    with superuser(store) as connection:
        connection.execute("alter table vectors owner to postgres")
    (notice,) = ingest(store, folder).notices
    assert "could not be brought up to date: permission denied for table vectors" in notice


def ingest(store: Postgres, folder: Path, *overrides: str) -> SyncReport:
    settings = hashing_settings(*overrides)
    report = replace(build_sync(settings, store, [str(folder)]), maintenance=EAGER).run(build_inline_runner(settings))
    assert violations(store) == []
    return report


def test_a_login_without_roles_maintains_what_it_owns(store: Postgres) -> None:
    publish(store, *notes(25))
    with superuser(store) as connection:
        connection.execute("create role single login in role rag_owner")
        connection.execute("alter role single inherit")
    alone = Postgres(store.dsn.replace("user=postgres", "user=single"))
    try:
        assert actions(EAGER.run_all(alone, TENANT)) == ["built"]
        assert len(ranking(alone, "question")) == 10
    finally:
        with superuser(store) as connection:
            connection.execute("drop role single")


def delete(store: Postgres, drafts: list[Draft]) -> None:
    target = begin(store, deleted=drafts)
    writer = target.open()
    try:
        writer.delete([note.id for note in drafts])
    finally:
        writer.close()
