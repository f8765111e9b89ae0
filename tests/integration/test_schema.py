"""A store of a former version is brought to the newest one with all that is in it."""

from pathlib import Path

import psycopg
import pytest
from trees import ingest, write

from rag_core.storage import schema
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

SOURCE = """
insert into rag.collections (tenant, name) values ('default-tenant', 'default');
insert into rag.sources (tenant, collection, uri) values ('default-tenant', 1, %s)"""


def test_a_source_of_a_former_version_is_the_same_one(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Keys\n\nThey are rotated.\n"})
    numbered = schema._numbered()
    monkeypatch.setattr(schema, "_numbered", lambda: [each for each in numbered if each[0] <= 6])
    with psycopg.connect(store.dsn, autocommit=True) as connection:
        connection.execute("drop schema rag cascade")
    schema.migrate(store.dsn)
    with psycopg.connect(store.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(SOURCE, [folder.as_uri()])
    monkeypatch.undo()

    schema.migrate(store.dsn)
    assert ingest(store, folder).documents["completed"] == 1
    with psycopg.connect(store.dsn) as connection:
        assert connection.execute("select uri from rag.sources").fetchall() == [(folder.as_uri(),)]
