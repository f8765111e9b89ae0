"""What tests stand on: a Postgres of their own for the session, and an empty store in it for each test."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import disable_logs
from rag_core.telemetry.metrics import discard, install_sink
from rag_core.telemetry.traces import install_tracer

_numbers = count()


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_developer() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("RAG_")]:
            environment.delenv(name)
        yield


@pytest.fixture(autouse=True)
def telemetry_of_one_test() -> Iterator[None]:
    """What a test has a process of ours tell ends with it: records of the next are its own."""
    yield
    disable_logs()
    install_sink(discard)
    install_tracer(None)


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """Below 100 bytes, for the path of a unix socket; open, because root's Postgres runs as another user."""
    folder = Path(tempfile.mkdtemp(prefix="rag-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(short_folder: Path) -> Iterator[Postgres]:
    """A server of this test process. It forgets what it has not written yet if the machine goes down: faster so."""
    folder = short_folder / "postgres"
    dsn = embedded.start(folder)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
    yield Postgres.open(dsn)
    embedded.stop(folder)


@pytest.fixture(scope="session")
def migrated(postgres: Postgres) -> str:
    """The name of a database that others are copies of."""
    name = "migrated"
    _maintain(postgres, SQL("create database {}").format(Identifier(name)))
    Postgres.open(make_conninfo(postgres.dsn, dbname=name))
    return name


@pytest.fixture
def store(postgres: Postgres, migrated: str) -> Iterator[Postgres]:
    """An empty store."""
    with _new_store(postgres, migrated) as store:
        yield store


@pytest.fixture(scope="module")
def module_store(postgres: Postgres, migrated: str) -> Iterator[Postgres]:
    """One for all tests of a module, empty before the first."""
    with _new_store(postgres, migrated) as store:
        yield store


@contextmanager
def _new_store(postgres: Postgres, migrated: str) -> Iterator[Postgres]:
    name = f"store_{next(_numbers)}"
    create = SQL("create database {} template {}").format(Identifier(name), Identifier(migrated))
    _maintain(postgres, create)
    yield Postgres(make_conninfo(postgres.dsn, dbname=name))
    _maintain(postgres, SQL("drop database {} with (force)").format(Identifier(name)))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One local Ray for the whole run."""
    from jobs.ray_runner import RAY_ENVIRONMENT, start_ray

    with pytest.MonkeyPatch.context() as environment:
        for name, value in RAY_ENVIRONMENT.items():
            environment.setenv(name, value)
        environment.delenv("RAY_ADDRESS", raising=False)
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # tests hand their own objects to workers
        start_ray()
        import ray

        yield
        ray.shutdown()


@pytest.fixture
def tenant() -> str:
    return "tenant-under-test"


def _maintain(postgres: Postgres, statement: psycopg.sql.Composable) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(statement)
