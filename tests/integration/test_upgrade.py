"""A store of the former version is upgraded: the same hits, no broken invariant, and the schema of a new store.

`python -m benchmarks.upgrade_fixture` made the store and its answers, with the former version of the program.
"""

import json

import pytest
from documents import ROOT
from schema_catalog import read_catalog, read_locked
from targets import superuser
from trees import violations

from benchmarks.upgrade_load import read_answers
from rag_core.storage import schema
from rag_core.storage.audit_reading import Audit
from rag_core.storage.manifest import list_tables
from rag_core.storage.postgres import Postgres
from rag_core.storage.restore import restore_store
from rag_core.storage.row_security import secure

pytestmark = pytest.mark.postgres

FOLDER = ROOT / "tests" / "data" / "upgrade"
AUDIT_MONTHS = "audit_20"
"""The months of the audit have names that depend on when a store was made."""


def test_a_store_of_the_former_version_answers_as_before(store: Postgres) -> None:
    new_catalog = read_catalog(store)
    with superuser(store) as connection:
        newest = schema.read_versions(connection)[0]
    restored = restore_store(store, FOLDER / "former.dump")
    assert restored.schema_version < newest
    with superuser(store) as connection:
        assert schema.read_versions(connection) == (newest, newest)
        kinds = ("documents", "vectors", "mentions", "messages", "audit", "job_items")
        assert all(restored.tables[kind].rows for kind in kinds)
    assert violations(store) == []
    recorded = json.loads((FOLDER / "answers.json").read_text())
    assert json.loads(json.dumps(read_answers(store.dsn))) == recorded
    assert without_months(read_catalog(store)) == without_months(new_catalog)
    for tenant in recorded:
        with store.connect() as connection:
            assert Audit(connection, tenant).verify().broken is None


def test_new_migrations_lock_only_the_tables_that_they_declare(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unmigrated:
        unmigrated.setattr(Postgres, "migrate", lambda *_: None)
        restore_store(store, FOLDER / "former.dump")
    with superuser(store) as connection, superuser(store) as writer, writer.transaction():
        writer.execute("update documents set title = title")
        writer.execute("select count(*) from chunks")
        former_tables = set(list_tables(connection))
        for migration in schema.list_pending(connection):
            if migration.kind == "transaction":
                with connection.transaction():
                    connection.execute("set local lock_timeout = '60s'")
                    connection.execute(migration.statements.encode())
                    secure(connection)
                    locked = {"audit" if name.startswith(AUDIT_MONTHS) else name for name in read_locked(connection)}
                assert {table for table in locked & former_tables if table not in migration.locks} == set()


def without_months(catalog: list[str]) -> list[str]:
    return [line for line in catalog if AUDIT_MONTHS not in line]
