"""Dumps of a store: a file of pg_dump's custom format, and its manifest."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import Connection

from rag_core.errors import DumpError, StoreError
from rag_core.storage.client_programs import find_program, read_version, run_program
from rag_core.storage.manifest import MANIFESTS, Manifest, TableContents, manifest_path, measure_file, read_tables
from rag_core.storage.postgres import SET_SNAPSHOT, Postgres, translate_statement_errors
from rag_core.storage.row_security import ASSUME_WORKER, HAS_WORKER, SECURE_DUMPS, SEES_ALL_ROWS
from rag_core.storage.schema import read_versions

PG_DUMP_OPTIONS = ("--format=custom", "--schema=rag", "--no-unlogged-table-data")
EXPORT: LiteralString = "select pg_export_snapshot()"


def dump_store(
    postgres: Postgres, file: Path, replace: bool = False, report_progress: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Writes a consistent dump of all tenants while others read and write. The files appear when they are complete.

    Both files are readable by their owner only. The schema is not migrated. Raises DumpError if a file exists and
    `replace` is false, and StoreError if the login does not see all rows, or pg_dump fails.
    """
    if not file.absolute().parent.is_dir():
        raise DumpError(f"the folder of the dump must exist, got {file.absolute().parent}")
    for existing in (file, manifest_path(file)):
        if existing.exists() and not replace:
            raise DumpError(f"{existing} exists; pass --yes to replace it")
    with (
        translate_statement_errors(),
        psycopg.connect(postgres.read_dsn(), autocommit=True) as connection,
        _partial_files(file) as partial,
    ):
        schema_version, _ = read_versions(connection)
        if not schema_version:
            raise DumpError("the store has no schema, so there is nothing to dump")
        program = find_program("pg_dump", connection.info.server_version // 10_000)
        options = _choose_role(connection)
        with connection.transaction():
            connection.execute(SET_SNAPSHOT)
            ((snapshot,),) = connection.execute(EXPORT).fetchall()
            if options:
                connection.execute(ASSUME_WORKER)
            tables = read_tables(connection, lambda table: report_progress(f"reading {table}"))
            arguments = [*PG_DUMP_OPTIONS, *options, f"--snapshot={snapshot}", f"--file={partial}"]
            run_program(program, arguments, connection, report_progress)
        manifest = _describe_dump(partial, schema_version, read_version(program), tables)
        _publish(partial, file, manifest)
    return manifest


def _choose_role(connection: Connection) -> list[str]:
    """The options of pg_dump with which it sees all rows: the role rag_worker, or none for a login that sees them.

    Schemas before 28 do not let the role read the months of the audit: it gets the right. Raises StoreError if the
    login sees the rows of one tenant only.
    """
    ((sees_all,),) = connection.execute(SEES_ALL_ROWS).fetchall()
    if sees_all:
        return []
    ((is_worker,),) = connection.execute(HAS_WORKER).fetchall()
    if not is_worker:
        raise StoreError(
            f"the login {connection.info.user} sees the rows of one tenant only: grant it the role rag_worker, or "
            "make the dump as a superuser, or as a role with BYPASSRLS"
        )
    with suppress(psycopg.errors.InsufficientPrivilege):  # of a login that is not the owner: pg_dump names the table
        connection.execute(SECURE_DUMPS)
    return ["--role=rag_worker", "--enable-row-security"]


def _describe_dump(file: Path, schema_version: int, postgres: int, tables: dict[str, TableContents]) -> Manifest:
    size, sha256 = measure_file(file)
    return Manifest(
        program=version("rag-on-ray"),
        schema_version=schema_version,
        postgres=postgres,
        created_at=datetime.now(UTC),
        sha256=sha256,
        size=size,
        tables=tables,
    )


@contextmanager
def _partial_files(file: Path) -> Iterator[Path]:
    """Yields the path of the unfinished dump. What is unfinished after the block is deleted."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        yield partial
    finally:
        for path in (partial, manifest_path(partial)):
            with suppress(FileNotFoundError):
                path.unlink()


def _publish(partial: Path, file: Path, manifest: Manifest) -> None:
    with os.fdopen(os.open(manifest_path(partial), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(MANIFESTS.dump_json(manifest, indent=2) + b"\n")
    for path in (partial, manifest_path(partial)):
        with path.open("rb") as opened:
            os.fsync(opened.fileno())
    manifest_path(partial).replace(manifest_path(file))
    partial.replace(file)
