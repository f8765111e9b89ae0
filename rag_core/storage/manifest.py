"""The manifest next to a dump: which versions made it, and how many rows with which digest each table has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import LiteralString

from psycopg import Connection, Rollback
from psycopg.sql import SQL, Identifier
from pydantic import TypeAdapter, ValidationError

from rag_core.errors import DumpError, validation_lines
from rag_core.storage.row_security import ASSUME_WORKER, HAS_WORKER, UNFORCE

# The buckets of rate limits are unlogged, and not dumped: they are empty after a crash, too.
TABLES: LiteralString = """
select c.relname from pg_class c where c.relnamespace = to_regnamespace('rag') and c.relkind in ('r', 'p')
  and not c.relispartition and c.relpersistence = 'p' order by c.relname"""
# The digest does not depend on the order of rows: it is the sum of 60 bits of each row's hash.
READ_TABLE: LiteralString = """
select count(*), coalesce(sum(('x' || left(md5(stored_row::text), 15))::bit(60)::bigint), 0)::text
from rag.{table} stored_row"""
COUNT_ROWS: LiteralString = "select count(*) from rag.{table}"
# The digest is of rows as text, which depends on these settings.
TEXT_FORMAT: LiteralString = """
select set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true),
  set_config('intervalstyle', 'postgres', true), set_config('bytea_output', 'hex', true),
  set_config('extra_float_digits', '1', true), set_config('statement_timeout', '0', true),
  set_config('idle_in_transaction_session_timeout', '0', true)"""
SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContents:
    """The number of rows of a table, and their digest."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a dump has. `program` is the version of rag-on-ray, `postgres` the major version of pg_dump, `sha256` and
    `size` are those of the file."""

    program: str
    schema_version: int
    postgres: int
    created_at: datetime
    sha256: str
    size: int
    tables: Mapping[str, TableContents]


MANIFESTS = TypeAdapter(Manifest)


def manifest_path(dump: Path) -> Path:
    return dump.with_name(dump.name + SUFFIX)


def read_manifest(dump: Path) -> Manifest:
    """Reads the manifest of a dump, and compares the file with it.

    Raises DumpError if one of the two is missing, damaged, or from another dump.
    """
    path = manifest_path(dump)
    for file in (dump, path):
        if not file.is_file():
            raise DumpError(f"{file} does not exist; a dump is two files, {dump.name} and {path.name}")
    try:
        manifest = MANIFESTS.validate_json(path.read_bytes())
    except ValidationError as error:
        raise DumpError(f"{path} is not the manifest of a dump: {validation_lines(error)[0]}") from error
    size, sha256 = measure_file(dump)
    if (size, sha256) != (manifest.size, manifest.sha256):
        raise DumpError(
            f"{dump} is damaged, or from another dump than {path.name}: it has {size} bytes with SHA-256 {sha256}, "
            f"and the manifest {manifest.size} with {manifest.sha256}"
        )
    return manifest


def measure_file(file: Path) -> tuple[int, str]:
    """The size in bytes, and the SHA-256 in hexadecimal digits."""
    with file.open("rb") as opened:
        return file.stat().st_size, file_digest(opened, "sha256").hexdigest()


def read_tables(connection: Connection, report_table: Callable[[str], None]) -> dict[str, TableContents]:
    """Reads all rows of all tables that the connection sees. It must be in a transaction."""
    connection.execute(TEXT_FORMAT)
    contents: dict[str, TableContents] = {}
    for name in list_tables(connection):
        report_table(name)
        statement = SQL(READ_TABLE).format(table=Identifier(name))
        ((rows, digest),) = connection.execute(statement).fetchall()
        contents[name] = TableContents(rows=rows, digest=digest)
    return contents


def count_rows(connection: Connection) -> dict[str, int]:
    """The number of rows of each table that has rows, apart from the list of migrations."""
    counts: dict[str, int] = {}
    for name in list_tables(connection):
        ((rows,),) = connection.execute(SQL(COUNT_ROWS).format(table=Identifier(name))).fetchall()
        if rows and name != "migrations":
            counts[name] = rows
    return counts


def list_tables(connection: Connection) -> list[str]:
    return [str(name) for (name,) in connection.execute(TABLES)]


@contextmanager
def all_rows(connection: Connection) -> Iterator[None]:
    """Opens a transaction that sees the rows of all tenants, also for a login without roles. It changes nothing."""
    with connection.transaction():
        ((is_worker,),) = connection.execute(HAS_WORKER).fetchall()
        connection.execute(ASSUME_WORKER if is_worker else UNFORCE)
        yield
        raise Rollback
