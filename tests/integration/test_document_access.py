"""Documents that only some groups can read: conditions of the statements and policies of the role, each without the
other."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest
from anyio.from_thread import start_blocking_portal
from drafts import SPACE, TENANT, draft, draft_with_failure, vector, weigh_draft, weights
from psycopg import AsyncConnection
from targets import begin, end, publish, superuser, write

from benchmarks import document_access
from rag_core.errors import NotFoundError
from rag_core.retrieval.graph import GraphLeg
from rag_core.storage import corpus, snapshot
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.ledger import Ledger
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres, read_transaction
from rag_core.types import Hit, Query

pytestmark = pytest.mark.postgres

T = TypeVar("T")
OPEN = draft("file:///open.md", "the open plan of Ada and Bob")
SECRET = draft("file:///secret.md", "the secret plan of Ada and Bob", metadata={"kind": "memo"})
QUERY = Query(text="plan of Ada", tenant=TENANT)
READ_TABLES = ["chunks", "document_texts", "document_values", "documents", "mentions", "relations", "vectors"]
TABLES_OF_DOCUMENTS = """
select distinct c.relname::text, exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'of_reader')
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname in ('document_id', 'access', 'detail')
where c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p')
  and has_table_privilege('rag_reader', c.oid, 'select') order by 1"""
RIGHTS = """
select distinct privilege_type::text from information_schema.role_table_grants
where table_schema = 'rag' and grantee = 'rag_reader'"""


@pytest.fixture
def store_with_secret(store: Postgres) -> Postgres:
    """An open document, and one that only members of `staff` can read."""
    drafts = [weigh_draft(OPEN), weigh_draft(SECRET)]
    target = replace(begin(store, drafts, splade="model"), builds_graph=True)
    write(target, drafts)
    end(target)
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}' where id = %s", [SECRET.id])
    return store


def read(store: Postgres, work: Callable[[CorpusReader], Awaitable[T]]) -> T:
    with start_blocking_portal() as portal:
        reader = CorpusReader(store)
        try:
            return portal.call(work, reader)
        finally:
            portal.call(reader.close)


def search_legs(store: Postgres, *groups: str) -> list[str]:
    """The texts of the hits of all legs."""
    query = replace(QUERY, groups=groups)

    async def search(reader: CorpusReader) -> list[str]:
        hits: list[Hit] = []
        for rank in (
            reader.rank_dense(query, vector("plan"), SPACE, 10),
            reader.rank_bm25(query, 10, Bm25(1.5, 0.75)),
            reader.rank_splade(query, weights(query.text), "model", 10),
            GraphLeg(reader).rank(query, 10),
        ):
            hits += await reader.fetch_hits(query, "leg", await rank)
        return [hit.chunk.text for hit in hits]

    return read(store, search)


def count_rows(store: Postgres, table: str, *groups: str) -> int:
    with store.connect() as connection, read_transaction(connection, TENANT, groups):
        row = connection.execute(f"select count(*) from {table}".encode()).fetchone()  # noqa: S608
        return int(row[0]) if row else 0


def test_each_leg_finds_a_document_for_its_groups_only(store_with_secret: Postgres) -> None:
    open_text, secret_text = OPEN.chunks[0].text, SECRET.chunks[0].text
    assert search_legs(store_with_secret) == [open_text] * 4
    assert sorted(search_legs(store_with_secret, "board", "staff")) == sorted([open_text, secret_text] * 4)


@pytest.mark.parametrize("table", READ_TABLES)
def test_a_statement_without_conditions_sees_no_content_of_other_groups(
    store_with_secret: Postgres, table: str
) -> None:
    everything = count_rows(store_with_secret, table, "staff")
    assert 0 < count_rows(store_with_secret, table) < everything
    assert count_rows(store_with_secret, table, "board") == count_rows(store_with_secret, table)


def test_unset_groups_read_only_what_everyone_can_read(store_with_secret: Postgres) -> None:
    with store_with_secret.connect() as connection, read_transaction(connection, TENANT, ["staff"]):
        assert connection.execute("select count(*) from documents").fetchone() == (2,)
        connection.execute("select set_config('app.groups', '', true)")
        assert connection.execute("select id from documents").fetchall() == [(OPEN.id,)]


def test_every_table_of_documents_that_requests_read_has_the_policy(store: Postgres) -> None:
    with superuser(store) as connection:
        tables = dict(connection.execute(TABLES_OF_DOCUMENTS).fetchall())
        assert connection.execute(RIGHTS).fetchall() == [("SELECT",)]
    assert tables.pop("lexical_documents") is False, "searches exclude hidden chunks by its rows"
    assert set(tables) == {*READ_TABLES, "job_items", "job_events"}
    assert all(tables.values())


@pytest.mark.parametrize("table", READ_TABLES)
def test_without_a_policy_the_statements_hide_the_document(store_with_secret: Postgres, table: str) -> None:
    with superuser(store_with_secret) as connection:
        connection.execute(f"drop policy of_reader on rag.{table}".encode())
    assert search_legs(store_with_secret) == [OPEN.chunks[0].text] * 4
    with store_with_secret.connect() as connection:
        catalog = Catalog(connection, TENANT)
        assert [row["id"] for row in catalog.readable_documents("default", [], None, SECRET.id, 9)] in ([], [OPEN.id])
        with pytest.raises(NotFoundError):
            catalog.readable_document(SECRET.id, [])
        with pytest.raises(NotFoundError):
            catalog.readable_span(SECRET.chunks[0].id, [])


@pytest.fixture
def without_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the conditions of the legs' statements treat every caller as a member of `staff`."""
    read_scope = snapshot._read_scope

    async def read_scope_of_staff(connection: AsyncConnection, query: Query) -> dict[str, Any]:
        return {**await read_scope(connection, query), "groups": ["staff"], "has_hidden": False}

    monkeypatch.setattr(snapshot, "_read_scope", read_scope_of_staff)


@pytest.mark.usefixtures("without_conditions")
def test_without_conditions_in_the_statements_the_policies_hide_the_document(store_with_secret: Postgres) -> None:
    assert SECRET.chunks[0].text not in search_legs(store_with_secret)


@pytest.mark.usefixtures("without_conditions")
def test_without_both_the_document_is_found(store_with_secret: Postgres) -> None:
    """Shows that the tests above would notice a missing wall."""
    with superuser(store_with_secret) as connection:
        for table in READ_TABLES:
            connection.execute(f"drop policy of_reader on rag.{table}".encode())
    assert SECRET.chunks[0].text in search_legs(store_with_secret)


def test_a_user_whose_groups_shrink_loses_the_document_at_once(store_with_secret: Postgres) -> None:
    async def search(reader: CorpusReader) -> list[int]:
        counts = []
        for groups in (("staff",), (), ("staff",)):
            query = replace(QUERY, groups=groups)
            counts.append(len(await reader.rank_bm25(query, 10, Bm25(1.5, 0.75))))
        return counts

    assert read(store_with_secret, search) == [2, 1, 2]


def test_failures_and_events_of_a_job_are_those_of_readable_documents(store: Postgres) -> None:
    publish(store, draft_with_failure(SECRET))
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}'")
        (job,) = connection.execute("select id from jobs").fetchone() or ()
    with store.connect() as connection:
        ledger = Ledger(connection, TENANT)
        for groups, count in (((), 0), (("staff",), 1)):
            events = [event for event in ledger.readable_events(job, groups, 0) if event["stage"] == "document"]
            failures = ledger.readable_failures(job, groups, UUID(int=0), 10)
            assert (len(events), len(failures)) == (count, count)
            assert count_rows(store, "job_items", *groups) == count


@pytest.mark.slow
def test_members_of_few_and_of_many_groups_find_what_a_brute_force_filter_finds(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark with 800 chunks: a search for fewer than 20 documents compares their vectors."""
    monkeypatch.setattr(corpus, "MAX_EXACT_DOCUMENTS", 20)
    access = document_access.build_corpus(800)
    document_access.publish(store, access, document_access.RESTRICTED)
    document_access.publish(store, document_access.build_corpus(800, document_access.OPEN), document_access.OPEN)
    rows = asyncio.run(document_access.compare_members(store, access))
    assert [(row.groups, row.chunks, row.plan.partition(",")[0], row.same_bm25) for row in rows] == [
        (1, 16, "exact", 1.0),
        (10, 160, "hnsw", 1.0),
        (25, 400, "hnsw", 1.0),
        (50, 800, "hnsw", 1.0),
    ]
    assert rows[0].recall == 1
    assert min(row.recall for row in rows) >= 0.97
