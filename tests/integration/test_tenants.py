"""The second wall between tenants: what Postgres itself refuses, whatever the statements say."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import hypothesis.strategies as st
import psycopg
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from drafts import SPACE, TENANT, draft, vector
from example_counts import scale_examples
from fakes.conversations import converse
from fakes.replies import stored_reply
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from psycopg import Connection
from targets import begin, end, publish, superuser, write

from rag_core.contract.vector_store.port import Vector
from rag_core.contract.vector_store.postgres import PostgresVectorStore
from rag_core.errors import NotFoundError
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.exposures import Exposure, Exposures
from rag_core.storage.fsck import find_violations
from rag_core.storage.keys import Keys
from rag_core.storage.parts import split_draft
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.storage.rate_limits import Charge, RateLimiter
from rag_core.storage.replies import Feedback, Replies
from rag_core.types import Query

pytestmark = pytest.mark.postgres

STRANGER = "a-stranger"
CONTENT_TABLES = [
    *("chunks", "document_texts", "document_values", "documents", "job_events", "job_items", "mentions"),
    *("relations", "vectors"),
]
"""The tables with rows of documents that only some groups can read."""
TABLES_OF_TENANTS = """
select c.relname, c.relrowsecurity and c.relforcerowsecurity,
  array(select p.polname::text from pg_policy p where p.polrelid = c.oid order by 1)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
where c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1"""
APPEND_ONLY = {"audit", "audit_heads", "audit_users"}
"""Tables that a role of the store cannot update."""


def tables(store: Postgres) -> list[str]:
    with superuser(store) as connection:
        return [row[0] for row in connection.execute(TABLES_OF_TENANTS)]


def count_rows(connection: "Connection[Any]", table: str) -> int:
    row = connection.execute(f"select count(*) from rag.{table}".encode()).fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def fill(store: Postgres) -> None:
    """Fills every table except `sources`."""
    large = draft("file:///large.md", "two", "three")
    first, *_ = split_draft(replace(large, vectors=None), 1)
    note = draft("file:///a.md", "one of Ada and Bob")
    target = replace(begin(store, [note]), builds_graph=True)
    write(target, [note])
    end(target)
    write(begin(store, [large]), [first])
    asyncio.run(add_vector(store, Vector(values=[1, 2], metadata={"kind": "memo"})))
    asyncio.run(charge_search(store))
    with store.connect() as connection:
        pushed = PushedDocument(id="a", body=b"pushed")
        request = IngestRequest(collection="pushes", profile="default", settings={}, documents=(pushed,))
        Queue(connection, TENANT).enqueue(request)
        Keys(connection, TENANT).create({"admin"})
        replies = Replies(connection, TENANT)
        replies.add([stored_reply("ans_1")], timeout=60)
        replies.add_feedback(Feedback(answer_id="ans_1", rating=1))
        exposure = Exposure(experiment="one", variant="control", bucket=1, conversation="c", tenant=TENANT)
        Exposures(connection, TENANT).add({"ans_1": exposure})
    converse(store, Query(text="who?", tenant=TENANT, session_id="s", user_id="u"))


async def charge_search(store: Postgres) -> None:
    limiter = RateLimiter(store)
    await limiter.charge(TENANT, [Charge(kind="searches", cost=1, need=1, per_minute=1, burst=1)])
    await limiter.close()


async def add_vector(store: Postgres, vector: Vector) -> None:
    vectors = PostgresVectorStore(store, TENANT, "vectors", dimension=2)
    await vectors.add([vector])
    await vectors.close()


def test_every_table_with_a_tenant_is_under_forced_row_level_security(store: Postgres) -> None:
    with superuser(store) as connection:
        secured = connection.execute(TABLES_OF_TENANTS).fetchall()
    assert {table for table, _, _ in secured} >= {"collections", "documents", "chunks", "vectors", "jobs", "job_events"}
    expected = {table: ["of_tenant", "of_worker"] for table, _, _ in secured}
    expected["api_keys"] = ["of_presented_key", *expected["api_keys"]]
    for table in CONTENT_TABLES:
        expected[table] = ["of_reader", *expected[table]]
    assert {table: policies for table, is_forced, policies in secured if is_forced} == expected


def test_the_store_is_used_in_a_role_that_security_holds_for(store: Postgres) -> None:
    with store.connect() as connection:
        role = connection.execute(
            "select rolname, rolsuper, rolbypassrls, rolcanlogin from pg_roles where rolname = current_user"
        ).fetchone()
    assert role == ("rag_app", False, False, False)
    with superuser(store) as connection:
        owners = connection.execute("select distinct tableowner from pg_tables where schemaname = 'rag'").fetchall()
    assert owners == [("rag_owner",)]


def test_without_a_tenant_there_are_no_rows(store: Postgres) -> None:
    fill(store)
    with superuser(store) as connection:
        assert [table for table in tables(store) if not count_rows(connection, table)] == ["sources"]
    with store.connect() as connection:
        assert {count_rows(connection, table) for table in tables(store)} == {0}
        with transaction(connection, TENANT):
            assert count_rows(connection, "chunks") == 1
        assert {count_rows(connection, table) for table in tables(store)} == {0}


def test_a_tenant_can_neither_change_nor_take_the_rows_of_another(store: Postgres) -> None:
    fill(store)
    with store.connect() as connection, transaction(connection, STRANGER):
        for table in tables(store):
            assert count_rows(connection, table) == 0
            if table in APPEND_ONLY:
                continue
            assert connection.execute(f"update rag.{table} set tenant = tenant".encode()).rowcount == 0  # noqa: S608
            assert connection.execute(f"delete from rag.{table}".encode()).rowcount == 0  # noqa: S608


def test_a_tenant_cannot_write_rows_in_the_name_of_another(store: Postgres) -> None:
    fill(store)
    with store.connect() as connection:
        for table in [table for table in tables(store) if table != "sources"]:
            refusal = "permission denied" if table in APPEND_ONLY else "row-level security"
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=refusal), as_tenant(connection):
                connection.execute(f"update rag.{table} set tenant = '{STRANGER}'".encode())  # noqa: S608
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), as_tenant(connection):
            connection.execute("insert into collections (tenant, name) values (%s, 'mine')", [STRANGER])


@contextmanager
def as_tenant(connection: "Connection[Any]") -> Iterator[None]:
    with transaction(connection, TENANT):
        yield


def test_the_worker_sees_all_tenants(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "one"))
    publish(store, draft("file:///a.md", "two", tenant=STRANGER), tenant=STRANGER)
    with store.connect("rag_worker") as connection:
        assert count_rows(connection, "chunks") == 2


class Tenants(RuleBasedStateMachine):
    """Three tenants with the same names for everything, over connections that they share."""

    numbers = count()
    names = st.sampled_from(["left", "middle", "right"])
    collections = st.sampled_from(["default", "second"])
    uris = st.sampled_from(["file:///a.md", "file:///b.md", "file:///c.md"])
    words = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=3)

    def __init__(self, store: Postgres, connection: "Connection[Any]", reader: CorpusReader, portal: BlockingPortal):
        super().__init__()
        self._store, self._connection, self._reader, self._portal = store, connection, reader, portal
        self._example = next(self.numbers)
        self._stored: dict[tuple[str, str], dict[str, list[str]]] = {}

    @rule(name=names, collection=collections, uri=uris, words=words)
    def publish(self, name: str, collection: str, uri: str, words: list[str]) -> None:
        tenant = self._tenant(name)
        note = draft(uri, *words, tenant=tenant, collection=collection)
        publish(self._store, note, tenant=tenant, collection=collection)
        self._stored.setdefault((name, collection), {})[uri] = words

    @rule(name=names, collection=collections, uri=uris)
    def delete(self, name: str, collection: str, uri: str) -> None:
        tenant = self._tenant(name)
        if (name, collection) not in self._stored:
            return
        note = draft(uri, "gone", tenant=tenant, collection=collection)
        target = begin(self._store, deleted=[note], tenant=tenant, collection=collection)
        writer = target.open()
        writer.delete([note.id])
        writer.close()
        end(target)
        self._stored[name, collection].pop(uri, None)

    @rule(name=names, collection=collections)
    def drop(self, name: str, collection: str) -> None:
        catalog = Catalog(self._connection, self._tenant(name))
        if self._stored.pop((name, collection), None) is None:
            with pytest.raises(NotFoundError):
                catalog.drop_collection(collection)
        else:
            catalog.drop_collection(collection)

    @rule(name=names, collection=collections, words=words)
    def search(self, name: str, collection: str, words: list[str]) -> None:
        query = Query(text=words[0], tenant=self._tenant(name), collection=collection)
        if (name, collection) not in self._stored:
            with pytest.raises(NotFoundError):
                self._portal.call(self._search, query)
        else:
            expected = [(uri, text) for uri, texts in self._stored[name, collection].items() for text in texts]
            assert self._portal.call(self._search, query) == sorted(expected)

    @invariant()
    def each_lists_its_own(self) -> None:
        for name in ("left", "middle", "right"):
            catalog = Catalog(self._connection, self._tenant(name))
            collections = {collection: notes for (owner, collection), notes in self._stored.items() if owner == name}
            assert [row["name"] for row in catalog.collections()] == sorted(collections)
            for collection, notes in collections.items():
                listed = {row["uri"]: row["chunks"] for row in catalog.documents(collection)}
                assert listed == {uri: len(words) for uri, words in notes.items()}

    def _tenant(self, name: str) -> str:
        return f"{name}-{self._example}"

    async def _search(self, query: Query) -> list[tuple[str, str]]:
        async with self._reader.snapshot(query):
            ranking = await self._reader.rank_dense(query, vector(query.text), SPACE, 100)
            hits = await self._reader.fetch_hits(query, "dense", ranking)
        assert [(hit.chunk.id, hit.score) for hit in hits] == ranking
        return sorted((hit.origin.uri, hit.chunk.text) for hit in hits)


@pytest.mark.slow
def test_whatever_tenants_do_each_finds_its_own_and_nothing_else(store: Postgres) -> None:
    reader = CorpusReader(store)
    with start_blocking_portal() as portal, store.connect() as connection:
        try:
            run_state_machine_as_test(
                lambda: Tenants(store, connection, reader, portal),
                settings=settings(
                    max_examples=scale_examples(15),
                    stateful_step_count=15,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            portal.call(reader.close)
    with store.connect("rag_worker") as connection:
        assert find_violations(connection) == []
