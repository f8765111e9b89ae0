"""Migrations run while others read and write: which locks they take, how long they wait, and how they continue."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from commands import rag_in_process
from schema_catalog import read_locked
from targets import superuser
from waiting import wait_until

from rag_core.errors import StoreError
from rag_core.storage import migration_files, schema
from rag_core.storage.migration_files import Migration, list_migrations, read_migration
from rag_core.storage.postgres import Postgres
from rag_core.storage.row_security import secure

pytestmark = pytest.mark.postgres

NEWEST = list_migrations()[-1].number
WAITS = """
select count(*) from pg_locks l join pg_class c on c.oid = l.relation
where c.relname = 'jobs' and c.relnamespace = 'rag'::regnamespace and not l.granted"""
INDEX = "create index concurrently if not exists jobs_by_profile on jobs (tenant, profile);"
ADD_COLUMN = "alter table jobs add column note text;"
BATCHES = """
update collections set name = name || ' renamed'
where (tenant, id) in (select tenant, id from collections where name not like '% renamed' order by 1, 2 limit 2)"""
COLLECTIONS = """
insert into rag.collections (tenant, name)
select tenant, name from unnest(array['one-tenant', 'another-tenant']) tenant, unnest(array['a', 'b', 'c']) name"""


@contextmanager
def further_migration(monkeypatch: pytest.MonkeyPatch, name: str, statements: str) -> Iterator[Migration]:
    """Adds a migration after the newest for the block."""
    migration = read_migration(f"{NEWEST + 1:04}_{name}.sql", statements)
    with monkeypatch.context() as further:
        further.setattr(schema, "list_migrations", lambda: [*migration_files.list_migrations(), migration])
        yield migration


def read_version(store: Postgres) -> int:
    with superuser(store) as connection:
        return schema.read_versions(connection)[0]


def test_policies_and_rights_that_exist_lock_nothing(store: Postgres) -> None:
    with superuser(store) as connection, connection.transaction():
        secure(connection)
        assert read_locked(connection) == set()


def test_readers_go_on_while_a_migration_waits_for_a_long_transaction(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_TIMEOUT", 0.05)
    with (
        further_migration(monkeypatch, "notes", ADD_COLUMN),
        superuser(store) as long_reader,
        superuser(store) as reader,
    ):
        with long_reader.transaction():
            long_reader.execute("select count(*) from jobs")
            migrating = threading.Thread(target=schema.migrate, args=(store.dsn,))
            migrating.start()
            wait_until(lambda: reader.execute(WAITS).fetchone() == (1,))
            for _ in range(20):
                reader.execute("select count(*) from jobs")
            assert migrating.is_alive()
        migrating.join()
    assert read_version(store) == NEWEST + 1


def test_a_migration_that_cannot_lock_its_tables_names_who_uses_them(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_TIMEOUT", 0.01)
    monkeypatch.setattr(schema, "PATIENCE", 0.3)
    with further_migration(monkeypatch, "notes", ADD_COLUMN), superuser(store) as reader, reader.transaction():
        reader.execute("select count(*) from jobs")
        process = reader.info.backend_pid
        with pytest.raises(
            StoreError, match=rf"{NEWEST + 1:04}_notes.sql could not lock .* process {process} \(postgres, idle in"
        ):
            schema.migrate(store.dsn)
    assert read_version(store) == NEWEST


def test_the_invalid_index_of_a_broken_attempt_is_built_again(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with superuser(store) as connection:
        connection.execute("create index jobs_by_profile on rag.jobs (tenant)")
        connection.execute("update pg_index set indisvalid = false where indexrelid = 'rag.jobs_by_profile'::regclass")
        with further_migration(monkeypatch, "jobs_by_profile.concurrent", INDEX):
            schema.migrate(store.dsn)
        row = connection.execute(
            "select indisvalid, pg_get_indexdef(indexrelid) from pg_index"
            " where indexrelid = 'rag.jobs_by_profile'::regclass"
        ).fetchone()
    assert row == (True, "CREATE INDEX jobs_by_profile ON rag.jobs USING btree (tenant, profile)")


def test_batches_change_the_rows_of_all_tenants_and_continue_after_an_interruption(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with superuser(store) as connection:
        connection.execute(COLLECTIONS)
    counts: list[int] = []

    def interrupt(_: Migration, changed: int) -> None:
        counts.append(changed)
        if changed == 4:
            raise KeyboardInterrupt

    with further_migration(monkeypatch, "names.batches", BATCHES):
        with pytest.raises(KeyboardInterrupt):
            schema.migrate(store.dsn, interrupt)
        assert read_version(store) == NEWEST
        schema.migrate(store.dsn, lambda _, changed: counts.append(changed))
    with superuser(store) as connection:
        names = connection.execute("select count(distinct (tenant, name)), min(name) from rag.collections").fetchone()
    assert (counts, names) == ([0, 2, 4, 0, 2, 2], (6, "a renamed"))
    assert read_version(store) == NEWEST + 1


def test_a_program_goes_on_with_a_newer_store_unless_a_migration_refuses_it(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with further_migration(monkeypatch, "notes", ADD_COLUMN):
        schema.migrate(store.dsn)
    Postgres.open(store.dsn)
    with superuser(store) as connection:
        connection.execute("update rag.migrations set needs = %s where number = %s", [NEWEST + 1, NEWEST + 1])
    with pytest.raises(StoreError, match=f"needs a program that knows schema {NEWEST + 1}; this one knows {NEWEST}"):
        Postgres.open(store.dsn)


def test_two_processes_migrate_a_store_once(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create database migrated_twice")
    store = Postgres(postgres.dsn.replace("dbname=postgres", "dbname=migrated_twice"))
    errors: list[BaseException] = []

    def migrate() -> None:
        try:
            schema.migrate(store.dsn)
        except BaseException as error:  # noqa: BLE001 - the main thread asserts that there is none
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert read_version(store) == NEWEST
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("drop database migrated_twice with (force)")


def test_the_command_shows_what_is_missing_and_then_migrates(
    store: Postgres, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rag, options = rag_in_process(capfd), ("--store", store.dsn)
    up_to_date = rag("store", "migrate", *options)
    assert (up_to_date.code, up_to_date.out, up_to_date.err) == (0, "", "the schema is up to date\n")
    name = f"{NEWEST + 1:04}_notes.sql"
    row = {"number": NEWEST + 1, "name": name, "kind": "transaction", "locks": "jobs, for a change of the catalog only"}
    with further_migration(monkeypatch, "notes", f"-- Locks: {row['locks']}.\n{ADD_COLUMN}"):
        assert rag("store", "migrate", "--dry-run", "--json", *options).json == [row]
        assert read_version(store) == NEWEST
        assert name in rag("store", "migrate", *options).out
        assert read_version(store) == NEWEST + 1
