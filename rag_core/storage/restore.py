"""Restores a dump into a store. The store's former contents are kept until the dump is restored completely."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import Connection

from rag_core.errors import DumpError, StoreError
from rag_core.storage.client_programs import FIRST_WITH_TRANSACTION_TIMEOUT, find_program, run_program
from rag_core.storage.manifest import Manifest, TableContents, all_rows, count_rows, read_manifest, read_tables
from rag_core.storage.migration_files import list_migrations
from rag_core.storage.postgres import Postgres, translate_statement_errors
from rag_core.storage.row_security import CREATE_ROLES, secure
from rag_core.storage.schema import exclusive_turn
from rag_core.storage.statistics import analyze_table

SETTINGS: LiteralString = "set search_path = rag, public"
CREATE_EXTENSION: LiteralString = "create extension if not exists vector"
HAS_SCHEMA: LiteralString = "select to_regnamespace(%(schema)s) is not null"
SET_ASIDE: LiteralString = "alter schema rag rename to rag_replaced"
BRING_BACK: LiteralString = "alter schema rag_replaced rename to rag"
DROP: LiteralString = "drop schema if exists rag cascade"
DROP_REPLACED: LiteralString = "drop schema if exists rag_replaced cascade"
NAMES_A_ROLE = re.compile(r"^\d+; \d+ \d+ POLICY rag \S+ of_(?:worker|reader) ", re.MULTILINE)
"""The policies that exist only if the roles do. `secure` creates them."""


def restore_store(
    postgres: Postgres, file: Path, replace: bool = False, report_progress: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Restores a dump, compares every table with the manifest, and migrates the store to the newest schema.

    Nobody must use the store meanwhile. Raises DumpError if the dump is damaged or too new for this program or server,
    or if the store has rows and `replace` is false, and StoreError if pg_restore fails: the store then stays as it was.
    Raises StoreError also if a migration of the restored rows fails; `rag store migrate` continues it.
    """
    report_progress("reading the dump")
    manifest = read_manifest(file)
    if manifest.schema_version > (newest := list_migrations()[-1].number):
        raise DumpError(
            f"{file} has schema {manifest.schema_version}, made by rag-on-ray {manifest.program}; this program knows "
            f"{newest}: update rag-on-ray"
        )
    with translate_statement_errors(), psycopg.connect(postgres.read_dsn(), autocommit=True) as connection:
        server = connection.info.server_version // 10_000
        if server < FIRST_WITH_TRANSACTION_TIMEOUT <= manifest.postgres:
            raise DumpError(
                f"{file} was made by pg_dump {manifest.postgres}, which servers before "
                f"{FIRST_WITH_TRANSACTION_TIMEOUT} cannot restore; this one has version {server}: update the server"
            )
        program = find_program("pg_restore", server, manifest.postgres)
        with exclusive_turn(connection), _set_aside(connection, replace):
            connection.execute(CREATE_ROLES)
            connection.execute(CREATE_EXTENSION)
            _load(program, file, connection, report_progress)
            _check_contents(connection, manifest, report_progress)
            report_progress("setting policies and rights")
            with connection.transaction():
                connection.execute(SETTINGS)
                secure(connection)
    postgres.migrate(lambda migration, _: report_progress(f"migrating: {migration.name}"))
    _analyze(postgres, manifest, report_progress)
    return manifest


@contextmanager
def _set_aside(connection: Connection, replace: bool) -> Iterator[None]:
    """Renames the schema for the block, drops it afterwards, and brings it back if the block raises."""
    if _has_schema(connection, "rag_replaced"):
        raise DumpError(
            "the schema rag_replaced has the contents of the store from before a restore that was killed: drop it "
            "(`drop schema rag_replaced cascade`), or drop the schema rag and rename this one back to rag"
        )
    had_schema = _has_schema(connection, "rag")
    if had_schema:
        if not replace:
            _refuse_rows(connection)
        connection.execute(SET_ASIDE)
    try:
        yield
    except BaseException:
        with connection.transaction():
            connection.execute(DROP)
            if had_schema:
                connection.execute(BRING_BACK)
        raise
    connection.execute(DROP_REPLACED)


def _refuse_rows(connection: Connection) -> None:
    """Raises DumpError if the store has rows."""
    with all_rows(connection):
        counts = count_rows(connection)
    if counts:
        rows = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DumpError(f"the store is not empty; pass --yes to replace its rows ({rows})")


def _load(program: Path, file: Path, connection: Connection, report_progress: Callable[[str], None]) -> None:
    """Restores in one transaction, without owners, rights, and the policies that name roles."""
    listed = subprocess.run([program, "--list", file], capture_output=True, text=True, check=False)  # noqa: S603
    if listed.returncode:
        raise DumpError(f"{file} is not a dump that {program.name} can read: {listed.stderr.strip()}")
    with tempfile.NamedTemporaryFile("w", suffix=".list") as entries:
        entries.write(NAMES_A_ROLE.sub(r";\g<0>", listed.stdout))
        entries.flush()
        options = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"]
        run_program(program, [*options, f"--use-list={entries.name}", str(file)], connection, report_progress)


def _check_contents(connection: Connection, manifest: Manifest, report_progress: Callable[[str], None]) -> None:
    """Raises StoreError if a table differs from the manifest."""
    with all_rows(connection):
        restored = read_tables(connection, lambda table: report_progress(f"checking {table}"))
    if differing := _compare(manifest.tables, restored):
        raise StoreError(f"the restored rows differ from those that were dumped, in {', '.join(differing)}")


def _compare(dumped: Mapping[str, TableContents], restored: Mapping[str, TableContents]) -> list[str]:
    return sorted(name for name in dumped.keys() | restored.keys() if dumped.get(name) != restored.get(name))


def _analyze(postgres: Postgres, manifest: Manifest, report_progress: Callable[[str], None]) -> None:
    """Updates the planner's statistics, which a dump does not have."""
    with translate_statement_errors(), postgres.connect("rag_owner") as connection:
        for table, contents in manifest.tables.items():
            if contents.rows:
                report_progress(f"analyzing {table}")
                analyze_table(connection, table)


def _has_schema(connection: Connection, name: str) -> bool:
    ((exists,),) = connection.execute(HAS_SCHEMA, {"schema": name}).fetchall()
    return bool(exists)
