"""A store of a former version is brought to the newest one with all that is in it."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from trees import ingest, write

from rag_core.storage import schema
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import DEFAULT_TIMEOUTS, Postgres
from rag_core.storage.queue import Leases
from rag_core.types import DEFAULT_TENANT

pytestmark = pytest.mark.postgres

JOBS = """
insert into rag.jobs (tenant, id, collection, sources, profile, settings, status, same, events, started_at, finished_at)
values ('default-tenant', '00000000-0000-0000-0000-000000000001', 1, '{1}', 'default', '{}', 'completed', 3, 0,
    '2024-05-01 10:00+0', '2024-05-01 10:01+0'),
  ('default-tenant', '00000000-0000-0000-0000-000000000002', 1, '{1}', 'default', '{}', 'running', 0, 0, now(), null)"""
SOURCE = """
insert into rag.collections (tenant, name) values ('default-tenant', 'default');
insert into rag.sources (tenant, collection, uri) values ('default-tenant', 1, %s)"""


def test_a_host_that_vanishes_is_given_up_unless_the_dsn_says_otherwise(store: Postgres) -> None:
    opened = conninfo_to_dict(Postgres.open(make_conninfo(store.dsn, tcp_user_timeout=7)).dsn)
    assert (opened["tcp_user_timeout"], opened["keepalives_idle"]) == ("7", DEFAULT_TIMEOUTS["keepalives_idle"])
    with Postgres.open(store.dsn).connect() as connection:
        assert connection.info.get_parameters()["tcp_user_timeout"] == DEFAULT_TIMEOUTS["tcp_user_timeout"]


def test_a_source_of_a_former_version_is_the_same_one(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Keys\n\nThey are rotated.\n"})
    go_back(store, 6, monkeypatch)
    with psycopg.connect(store.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(SOURCE, [folder.as_uri()])

    schema.migrate(store.dsn)
    assert ingest(store, folder).documents["completed"] == 1
    with psycopg.connect(store.dsn) as connection:
        assert connection.execute("select uri from rag.sources").fetchall() == [(folder.as_uri(),)]


def test_jobs_of_a_version_without_a_queue_are_as_they_were(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Keys\n\nThey are rotated.\n"})
    go_back(store, 13, monkeypatch)
    with psycopg.connect(store.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(SOURCE, [folder.as_uri()])
        connection.execute(JOBS)

    schema.migrate(store.dsn)
    with store.connect() as connection:
        killed, ended = Ledger(connection, DEFAULT_TENANT).jobs()
    assert (killed["status"], ended["status"], ended["same"], ended["attempts"]) == ("running", "completed", 3, 0)
    assert ended["created_at"] == ended["started_at"] == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert ended["sources"] == [folder.as_uri()]
    with store.connect("rag_worker") as connection:
        assert Leases(connection, DEFAULT_TENANT).claim("a-test", 30) is None
    report = ingest(store, folder)
    with store.connect() as connection:
        assert [job["status"] for job in Ledger(connection, DEFAULT_TENANT).jobs()] == [
            "completed",
            "failed",
            "completed",
        ]
    assert report.documents["completed"] == 1


def go_back(store: Postgres, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To an empty store as that version made it."""
    with psycopg.connect(store.dsn, autocommit=True) as connection, monkeypatch.context() as former:
        migrations = schema._list_migrations()
        former.setattr(schema, "_list_migrations", lambda: [each for each in migrations if each[0] <= version])
        connection.execute("drop schema rag cascade")
        schema.migrate(store.dsn)
