"""Connections to Postgres on other machines say whether they are encrypted."""

from collections.abc import Mapping

import pytest

from rag_core.errors import ConfigError
from rag_core.storage.postgres import Postgres
from rag_core.storage.transport import check_transport


@pytest.mark.parametrize(
    ("dsn", "environment"),
    [
        ("", {}),
        ("dbname=rag", {"PGHOST": "/run/postgresql"}),
        ("host=/run/postgresql", {}),
        ("host=localhost", {}),
        ("host=localhost,127.0.0.1", {}),
        ("postgresql://me@127.0.0.1:5432/rag", {}),
        ("postgresql://me@[::1]/rag", {}),
        ("host=db.internal hostaddr=127.0.0.1", {}),
        ("host=db.internal sslmode=require", {}),
        ("postgresql://me@db.internal/rag?sslmode=verify-full", {}),
        ("host=db.internal", {"PGSSLMODE": "verify-ca"}),
        ("host=db.internal sslmode=disable", {}),
        ("service=rag sslmode=require", {}),
    ],
)
def test_a_local_server_and_a_stated_mode_are_accepted(dsn: str, environment: Mapping[str, str]) -> None:
    check_transport(dsn, environment)


@pytest.mark.parametrize(
    ("dsn", "environment", "host"),
    [
        ("host=db.internal", {}, "db.internal"),
        ("postgresql://me:hunter2@10.0.0.7/rag", {}, "10.0.0.7"),
        ("host=localhost,db.internal", {}, "localhost,db.internal"),
        ("host=localhost hostaddr=10.0.0.7", {}, "10.0.0.7"),
        ("dbname=rag", {"PGHOST": "db.internal"}, "db.internal"),
        ("dbname=rag", {"PGHOSTADDR": "10.0.0.7"}, "10.0.0.7"),
        ("host=localhost", {"PGHOSTADDR": "10.0.0.7"}, "10.0.0.7"),
        ("host=localhost service=rag", {}, "service rag"),
        ("host=db.internal sslmode=prefer", {"PGSSLMODE": "require"}, "db.internal"),
        ("host=db.internal", {"PGSSLMODE": "allow"}, "db.internal"),
        ("service=rag", {}, "service rag"),
        ("", {"PGSERVICE": "rag"}, "service rag"),
    ],
)
def test_another_machine_without_a_stated_mode_is_refused(dsn: str, environment: Mapping[str, str], host: str) -> None:
    with pytest.raises(ConfigError, match="sslmode=verify-full") as refused:
        check_transport(dsn, environment)
    assert f"the connection to {host} could be unencrypted" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_no_store_is_opened_against_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    with pytest.raises(ConfigError, match=r"store\.url: the connection to db\.internal could be unencrypted"):
        Postgres.open("host=db.internal dbname=rag")
