"""The database schema: roles, the extension, numbered migrations, row-level security.

There are four roles. `rag_owner` owns tables and indexes. `rag_app` writes, and forced row-level security limits it to
the rows of one tenant. `rag_reader` reads for requests; the contents of documents that the groups in `app.groups` may
not read do not exist for it. `rag_worker` sees all rows, for fsck, purges, gauges and dumps.

A login without the right to create roles, as on some managed servers, works without them. It then owns the tables, and
forced row-level security applies to it too. Only the conditions of statements then hide documents from other groups.

Gateways answer while a store is migrated. Each migration has its own transaction, which gives up after `LOCK_TIMEOUT`
and is repeated, so that no query waits longer behind a migration that waits for a lock.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import LiteralString, TypeAlias

import psycopg
import stamina
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from rag_core.errors import StoreError
from rag_core.storage.migration_files import Migration, list_migrations
from rag_core.storage.row_security import (
    ASSUME_WORKER,
    CREATE_ROLES,
    HAS_WORKER,
    RESET_ROLE,
    UNFORCE,
    secure,
)

MigrationListener: TypeAlias = Callable[[Migration, int], None]
"""Receives the migration that runs, and the number of rows that its batches have changed so far."""

_logger = logging.getLogger(__name__)

LOCK_TIMEOUT = 0.5
"""Seconds that a migration waits for a lock. New queries of the same table wait as long."""
PATIENCE = 600.0
"""Seconds after which a migration fails that cannot lock its tables."""
POLL_SECONDS = 0.1

LOCK = "select pg_try_advisory_lock(hashtextextended('rag.migrations', 0))"
UNLOCK = "select pg_advisory_unlock(hashtextextended('rag.migrations', 0))"
HAS_SCHEMA = "select to_regclass('rag.migrations') is not null"
VERSION = "select coalesce(max(number), 0) from rag.migrations"
# The column exists since migration 28.
NEEDS = "select coalesce(max((to_jsonb(m) ->> 'needs')::int), 0) from rag.migrations m"
RECORD_FIRST = "insert into rag.migrations (number, name) values (%(number)s, %(name)s)"
RECORD = "insert into rag.migrations (number, name, needs) values (%(number)s, %(name)s, %(needs)s)"
CREATE_SCHEMA = """
create extension if not exists vector;
create schema if not exists rag;
create table if not exists rag.migrations (
  number int primary key, name text not null, applied_at timestamptz not null default now())"""
SEARCH_PATH = "set search_path = rag, public"
LIMIT_WAIT = "select set_config('lock_timeout', %(timeout_ms)s::text, false)"
INVALID_INDEX = "select true from pg_index where indexrelid = to_regclass(%(index)s) and not indisvalid"
DROP_INDEX = "drop index concurrently if exists {index}"
INDEX_NAME = re.compile(r"create (?:unique )?index concurrently if not exists (\w+)", re.IGNORECASE)
BLOCKERS = """
select coalesce(string_agg(format('process %%s (%%s, %%s since %%s)', a.pid, a.usename, a.state,
  to_char(a.xact_start, 'HH24:MI:SS')), ', ' order by a.xact_start), 'none any more')
from pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and exists (
  select from pg_locks l join pg_class c on c.oid = l.relation
  where l.pid = a.pid and c.relnamespace = 'rag'::regnamespace)"""


def migrate(dsn: str, report_progress: MigrationListener = lambda *_: None) -> None:
    """Applies the missing migrations. Several processes can call it at the same time.

    Raises StoreError if the store needs a newer program, or if a migration could not lock its tables.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        check_compatible(connection)
        if not list_pending(connection):
            return
        with exclusive_turn(connection):
            connection.execute(CREATE_ROLES)
            connection.execute(CREATE_SCHEMA)
            connection.execute(SEARCH_PATH)
            pending = list_pending(connection)
            _apply_first([migration for migration in pending if migration.kind == "first"], connection)
            for migration in pending:
                if migration.kind != "first":
                    _logger.info("applying migration %s", migration.name)
                    report_progress(migration, 0)
                    _apply(migration, connection, report_progress)


def list_pending(connection: Connection) -> list[Migration]:
    """The migrations that the store lacks, in order."""
    version, _ = read_versions(connection)
    return [migration for migration in list_migrations() if migration.number > version]


def read_versions(connection: Connection) -> tuple[int, int]:
    """The version of the database's schema, or 0 without a schema, and the newest version that this program knows."""
    has_schema = _scalar(connection, HAS_SCHEMA)
    return _scalar(connection, VERSION) if has_schema else 0, list_migrations()[-1].number


def check_compatible(connection: Connection) -> None:
    """Raises StoreError if a migration of a newer program says that programs like this one cannot use the store."""
    version, newest = read_versions(connection)
    if version > newest and (needed := _scalar(connection, NEEDS)) > newest:
        raise StoreError(
            f"the store has schema {version}, which needs a program that knows schema {needed}; this one knows "
            f"{newest}: update rag-on-ray"
        )


@contextmanager
def exclusive_turn(connection: Connection) -> Iterator[None]:
    """Excludes other processes from changing the schema."""
    while not _scalar(connection, LOCK):
        time.sleep(POLL_SECONDS)  # instead of a waiting statement: a concurrent build waits for running statements
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(UNLOCK)


def _apply_first(migrations: Sequence[Migration], connection: Connection) -> None:
    if not migrations:
        return
    with connection.transaction():
        connection.execute(UNFORCE)
        for migration in migrations:
            connection.execute(migration.statements.encode())
            connection.execute(RECORD_FIRST, {"number": migration.number, "name": migration.name})
        secure(connection)


def _apply(migration: Migration, connection: Connection, report_progress: MigrationListener) -> None:
    """Runs the migration and records it. What an interrupted process has done of it is not done again."""
    with _translate_lock_errors(migration, connection):
        if migration.kind == "concurrent":
            _build_index(migration, connection)
        if migration.kind == "batches":
            _run_batches(migration, connection, report_progress)
        for attempt in _attempts():
            with attempt, _short_waits(connection), connection.transaction():
                if migration.kind == "transaction":
                    connection.execute(migration.statements.encode())
                secure(connection)
                record = {"number": migration.number, "name": migration.name, "needs": migration.needs}
                connection.execute(RECORD, record)


def _build_index(migration: Migration, connection: Connection) -> None:
    """Builds the index unless a former attempt did; the invalid index of a broken attempt is dropped."""
    named = INDEX_NAME.search(migration.statements)
    if not named:
        raise ValueError(f"{migration.name} must be one `create index concurrently if not exists NAME ...`")
    for attempt in _attempts():
        with attempt:
            if connection.execute(INVALID_INDEX, {"index": f"rag.{named[1]}"}).fetchone():
                connection.execute(SQL(DROP_INDEX).format(index=Identifier("rag", named[1])))
            connection.execute(migration.statements.encode())


def _run_batches(migration: Migration, connection: Connection, report_progress: MigrationListener) -> None:
    changed, batch = 0, -1
    while batch:
        for attempt in _attempts():
            with attempt, _short_waits(connection), connection.transaction():
                batch = _run_batch(migration, connection)
        changed += batch
        report_progress(migration, changed)


def _run_batch(migration: Migration, connection: Connection) -> int:
    """Returns the number of rows, of all tenants, that the statement changed."""
    is_worker = _scalar(connection, HAS_WORKER)
    connection.execute(ASSUME_WORKER if is_worker else UNFORCE)
    count = connection.execute(migration.statements.encode()).rowcount
    connection.execute(RESET_ROLE)
    if not is_worker:
        secure(connection)
    return count


def _attempts() -> Iterable[stamina.Attempt]:
    errors = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
    return stamina.retry_context(errors, attempts=None, timeout=PATIENCE, wait_initial=0.2, wait_max=5.0)


@contextmanager
def _short_waits(connection: Connection) -> Iterator[None]:
    """Limits the waits for locks in the block. A concurrent build has no limit, because no query waits behind it."""
    connection.execute(LIMIT_WAIT, {"timeout_ms": round(1000 * LOCK_TIMEOUT)})
    try:
        yield
    finally:
        connection.execute(LIMIT_WAIT, {"timeout_ms": 0})


@contextmanager
def _translate_lock_errors(migration: Migration, connection: Connection) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        row = connection.execute(BLOCKERS, {}).fetchone()
        raise StoreError(
            f"migration {migration.name} could not lock its tables for {PATIENCE:.0f} s; transactions that use them: "
            f"{row[0] if row else ''}. End them, and repeat"
        ) from error


def _scalar(connection: Connection, statement: LiteralString) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0
