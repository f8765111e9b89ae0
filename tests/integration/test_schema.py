"""A store of a former version is brought to the newest one with all that is in it."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from fakes.conversations import converse
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from targets import superuser
from trees import ingest, write

from rag_core.storage import schema
from rag_core.storage.fsck import find_violations
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import DEFAULT_TIMEOUTS, Postgres
from rag_core.storage.queue import Leases
from rag_core.types import DEFAULT_TENANT, Query, conversation_id

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
    opened = conninfo_to_dict(Postgres.open(make_conninfo(store.dsn, tcp_user_timeout=7)).read_dsn())
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


VERSION_1 = """
insert into rag.conversations (tenant, id, session_id, groups, user_id, metadata) values
  (%(tenant)s, %(id)s, 's', '{}', 'u-1', '{"turn_count": 2, "topic": "keys"}');
insert into rag.messages (tenant, conversation_id, n, role, text, metadata) values
  (%(tenant)s, %(id)s, 1, 'user', 'Who keeps the keys?', '{"intent": "search", "entities": ["Ada"]}'),
  (%(tenant)s, %(id)s, 2, 'assistant', 'Ada does [1].', '{"confidence": 0.8, "entities": ["Ada", "Bob"]}'),
  (%(tenant)s, %(id)s, 3, 'user', 'And the locks?', '{"shown": true}')"""


def test_a_session_state_of_version_1_goes_on_in_version_2(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(text="And the gates?", session_id="s")
    go_back(store, 20, monkeypatch)
    with psycopg.connect(store.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(VERSION_1, {"tenant": DEFAULT_TENANT, "id": conversation_id(query)})

    schema.migrate(store.dsn)
    converse(store, query)
    with superuser(store) as connection:
        (state,) = connection.execute("select title, n_messages, n_turns, metadata from conversations").fetchall()
        turns = connection.execute(
            "select turn_number, question, answer, entities_mentioned, intent, confidence, metadata"
            " from conversation_turns order by turn_number"
        ).fetchall()
        participants = connection.execute("select name from participants order by name").fetchall()
        assert find_violations(connection) == []
    assert state == ("Who keeps the keys?", 5, 3, {"topic": "keys"})
    assert turns == [
        (1, "Who keeps the keys?", "Ada does [1].", ["Ada", "Bob"], "search", 0.8, {}),
        (2, "And the locks?", None, [], "", None, {"shown": True}),
        (3, "And the gates?", "AND THE GATES?", ["GATES"], "search", None, {}),
    ]
    assert participants == [("assistant",), ("user",)]


def go_back(store: Postgres, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the store by an empty one of that schema version."""
    with psycopg.connect(store.dsn, autocommit=True) as connection, monkeypatch.context() as former:
        migrations = schema.list_migrations()
        former.setattr(
            schema, "list_migrations", lambda: [migration for migration in migrations if migration.number <= version]
        )
        connection.execute("drop schema rag cascade")
        schema.migrate(store.dsn)
